// Initial values of parameters, PyTorch's by name and by distribution. Numbers are drawn from this thread's generator
// (ops/random.h) on the CPU and in f32, so that a seed gives the same weights on every device. The functions of
// nn::init overwrite a tensor of any floating type and device and return it:
//   nn::init::kaiming_normal_(conv.weight, {.nonlinearity = nn::init::Nonlinearity::relu});
#pragma once

#include "tandem/core/tensor.h"

namespace tandem::nn {

/// What PyTorch gives the weights and biases of linear and convolution layers: uniform in ±1/√fan_in. (For
/// weights this is kaiming_uniform with a = √5.)
Tensor uniform_by_fan_in(const Dims& shape, int64_t fan_in);

namespace init {

Tensor uniform_(const Tensor& tensor, double low = 0, double high = 1);
Tensor normal_(const Tensor& tensor, double mean = 0, double deviation = 1);
Tensor constant_(const Tensor& tensor, double value);
Tensor zeros_(const Tensor& tensor);
Tensor ones_(const Tensor& tensor);
/// The identity; a matrix.
Tensor eye_(const Tensor& tensor);

/// Inputs and outputs of a unit: of a weight (out, in, kernel…), in · kernel and out · kernel.
struct Fans {
  int64_t in = 0, out = 0;
};
Fans fans_of(const Tensor& tensor);

enum class Nonlinearity : uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// The factor that keeps the size of signals through a nonlinearity. `slope` is leaky_relu's.
double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

/// Glorot and Bengio 2010: deviation gain · √(2 / (fan_in + fan_out)).
Tensor xavier_uniform_(const Tensor& tensor, double gain = 1);
Tensor xavier_normal_(const Tensor& tensor, double gain = 1);

enum class FanMode : uint8_t { fan_in, fan_out };
struct KaimingOptions {
  double a = 0;  ///< slope of the leaky_relu that follows
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
/// He et al. 2015: deviation gain / √fan.
Tensor kaiming_uniform_(const Tensor& tensor, const KaimingOptions& options = {});
Tensor kaiming_normal_(const Tensor& tensor, const KaimingOptions& options = {});

/// Normal, but never outside [low, high]: by the inverse of the distribution, so that no draw is thrown away.
Tensor trunc_normal_(const Tensor& tensor, double mean = 0, double deviation = 1, double low = -2,
                     double high = 2);
/// A random matrix with orthonormal rows or columns, whichever are fewer, times gain (Saxe et al. 2013). Axes after
/// the first are taken as one.
Tensor orthogonal_(const Tensor& tensor, double gain = 1);
/// Normal, with this share of each column zero (Martens 2010); a matrix.
Tensor sparse_(const Tensor& tensor, double sparsity, double deviation = 0.01);

}  // namespace init
}  // namespace tandem::nn
