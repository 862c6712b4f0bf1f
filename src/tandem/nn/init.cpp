// Initial values of parameters.
#include "tandem/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "tandem/core/tape.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

Tensor uniform_by_fan_in(const Dims& shape, int64_t fan_in) {
  TD_CHECK(fan_in >= 1, "init: the number of inputs of a unit must be at least 1; got ", fan_in, ".");
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return uniform(shape, -bound, bound);
}

namespace init {
namespace {

/// Overwrites a tensor by values of its shape on the CPU.
Tensor overwrite(const Tensor& tensor, const Tensor& values) {
  const NoGrad off;
  assign(tensor, to(values, tensor.device()));
  return tensor;
}
Tensor overwrite(const Tensor& tensor, const std::vector<double>& values) {
  return overwrite(tensor, from_vector(values, tensor.shape()));
}

/// In which draws for a tensor are made, so that it gets all their bits and their bounds hold in it.
DType drawn_in(const Tensor& tensor) { return is_floating(tensor.dtype()) ? tensor.dtype() : DType::f32; }

void check_matrix(const char* what, const Tensor& tensor) {
  TD_CHECK(tensor.rank() == 2, what, ": the tensor must be a matrix; got ", describe(tensor), ".");
}

double deviation_of(const char* what, double deviation) {
  TD_CHECK(std::isfinite(deviation) && deviation >= 0, what, ": the deviation must be at least 0; got ",
           deviation, ".");
  return deviation;
}

double kaiming_deviation(const Tensor& tensor, const KaimingOptions& options) {
  const Fans fans = fans_of(tensor);
  const int64_t fan = options.mode == FanMode::fan_in ? fans.in : fans.out;
  return calculate_gain(options.nonlinearity, options.a) /
         std::sqrt(static_cast<double>(std::max<int64_t>(fan, 1)));
}

double xavier_deviation(const Tensor& tensor, double gain) {
  const Fans fans = fans_of(tensor);
  return gain * std::sqrt(2.0 / static_cast<double>(std::max<int64_t>(fans.in + fans.out, 1)));
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// x with normal_cdf(x) = p, between two bounds: Newton's steps, halving where one would leave the bounds.
double inverse_normal_cdf(double p, double low, double high) {
  double x = std::clamp(0.0, low, high);
  for (int i = 0; i < 60; ++i) {
    const double error = normal_cdf(x) - p;
    (error < 0 ? low : high) = x;
    double next = x - error * std::sqrt(2 * std::numbers::pi) * std::exp(0.5 * x * x);
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (std::abs(next - x) <= 1e-12 * (1 + std::abs(x))) return next;
    x = next;
  }
  return x;
}

}  // namespace

Tensor uniform_(const Tensor& tensor, double low, double high) {
  return overwrite(tensor, uniform(tensor.shape(), low, high, drawn_in(tensor)));
}

Tensor normal_(const Tensor& tensor, double mean, double deviation) {
  return overwrite(tensor,
                   normal(tensor.shape(), mean, deviation_of("normal_", deviation), drawn_in(tensor)));
}

Tensor constant_(const Tensor& tensor, double value) {
  return overwrite(tensor, full({}, value, tensor.dtype()));
}
Tensor zeros_(const Tensor& tensor) { return constant_(tensor, 0); }
Tensor ones_(const Tensor& tensor) { return constant_(tensor, 1); }

Tensor eye_(const Tensor& tensor) {
  check_matrix("eye_", tensor);
  const auto rows = static_cast<size_t>(tensor.size(0)), columns = static_cast<size_t>(tensor.size(1));
  std::vector<double> values(rows * columns, 0.0);
  for (size_t i = 0; i < std::min(rows, columns); ++i) values[i * columns + i] = 1;
  return overwrite(tensor, values);
}

Fans fans_of(const Tensor& tensor) {
  TD_CHECK(tensor.rank() >= 2, "init: a weight must have at least two axes, (out, in, kernel…); got ",
           describe(tensor), ".");
  Dim kernel = 1;
  for (int axis = 2; axis < tensor.rank(); ++axis) kernel *= tensor.size(axis);
  return {tensor.size(1) * kernel, tensor.size(0) * kernel};
}

double calculate_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      return 1;
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2.0 / (1 + slope * slope));
    case Nonlinearity::selu:
      return 0.75;
  }
  throw Error("calculate_gain: the nonlinearity must be one of the enumeration.");
}

Tensor xavier_uniform_(const Tensor& tensor, double gain) {
  const double bound = std::sqrt(3.0) * xavier_deviation(tensor, gain);
  return uniform_(tensor, -bound, bound);
}
Tensor xavier_normal_(const Tensor& tensor, double gain) {
  return normal_(tensor, 0, xavier_deviation(tensor, gain));
}

Tensor kaiming_uniform_(const Tensor& tensor, const KaimingOptions& options) {
  const double bound = std::sqrt(3.0) * kaiming_deviation(tensor, options);
  return uniform_(tensor, -bound, bound);
}
Tensor kaiming_normal_(const Tensor& tensor, const KaimingOptions& options) {
  return normal_(tensor, 0, kaiming_deviation(tensor, options));
}

Tensor trunc_normal_(const Tensor& tensor, double mean, double deviation, double low, double high) {
  TD_CHECK(deviation_of("trunc_normal_", deviation) > 0 && low < high,
           "trunc_normal_: the deviation must be above 0 and low below high; got ", deviation, ", ", low,
           " and ", high, ".");
  const double from = (low - mean) / deviation, until = (high - mean) / deviation;
  const double least = normal_cdf(from), most = normal_cdf(until);
  TD_CHECK(most > least, "trunc_normal_: the interval must hold some of the distribution; got ", low, " to ",
           high, " for mean ", mean, " and deviation ", deviation, ".");
  const double begin = std::max(from, -40.0), end = std::min(until, 40.0);  // beyond, the tails are 0 in f64
  std::vector<double> values;
  for (const float u : uniform(tensor.shape()).to_vector<float>()) {
    const double p = least + (u + 0x1p-25) * (most - least);
    values.push_back(std::clamp(mean + deviation * inverse_normal_cdf(p, begin, end), low, high));
  }
  return overwrite(tensor, values);
}

Tensor orthogonal_(const Tensor& tensor, double gain) {
  TD_CHECK(tensor.rank() >= 2 && tensor.size() > 0,
           "orthogonal_: the tensor must have at least two axes and an element; got ", describe(tensor), ".");
  const Dim first = tensor.size(0), rest = tensor.size() / first;
  // The vectors that are made orthonormal: as many as the smaller side, as long as the larger.
  const auto count = static_cast<size_t>(std::min(first, rest)),
             length = static_cast<size_t>(std::max(first, rest));
  const std::vector<float> drawn =
      normal({static_cast<Dim>(count), static_cast<Dim>(length)}).to_vector<float>();
  std::vector<std::vector<double>> vectors;
  for (size_t i = 0; i < count; ++i) {
    const auto at = drawn.begin() + static_cast<std::ptrdiff_t>(i * length);
    std::vector<double> v(at, at + static_cast<std::ptrdiff_t>(length));
    for (int round = 0; round < 2;
         ++round)  // twice is enough: what rounding left the first time goes the second
      for (const std::vector<double>& q : vectors) {
        const double along = std::inner_product(v.begin(), v.end(), q.begin(), 0.0);
        for (size_t k = 0; k < length; ++k) v[k] -= along * q[k];
      }
    const double norm = std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
    for (double& x : v) x /= norm;
    vectors.push_back(std::move(v));
  }
  std::vector<double> values(count * length);
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < length; ++k)
      values[first <= rest ? i * length + k : k * count + i] = gain * vectors[i][k];
  return overwrite(tensor, values);
}

Tensor sparse_(const Tensor& tensor, double sparsity, double deviation) {
  check_matrix("sparse_", tensor);
  TD_CHECK(sparsity >= 0 && sparsity <= 1, "sparse_: the share of zeros must be between 0 and 1; got ",
           sparsity, ".");
  const auto rows = static_cast<size_t>(tensor.size(0)), columns = static_cast<size_t>(tensor.size(1));
  const auto zeros = static_cast<size_t>(std::ceil(sparsity * static_cast<double>(rows)));
  const std::vector<float> drawn =
      normal(tensor.shape(), 0, deviation_of("sparse_", deviation)).to_vector<float>();
  const std::vector<float> keys = uniform(tensor.shape()).to_vector<float>();
  std::vector<double> values(drawn.begin(), drawn.end());
  std::vector<size_t> order(rows);
  for (size_t c = 0; c < columns; ++c) {  // the rows with the smallest keys are zeroed
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return keys[a * columns + c] < keys[b * columns + c]; });
    for (size_t i = 0; i < zeros; ++i) values[order[i] * columns + c] = 0;
  }
  return overwrite(tensor, values);
}

}  // namespace init
}  // namespace tandem::nn
