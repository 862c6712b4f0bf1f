// A convolution as the CUDA kernels see it: one description for the forward pass and the two gradients, and what can compute it.
#pragma once

#include <cstdint>

#include "tandem/core/implementations.h"
#include "tandem/core/kernel.h"
#include "tandem/ops/per_axis.h"

namespace tandem::cuda {

/// x (n, c, in…) * weight (o, c / groups, kernel…) -> y (n, o, out…), over depth, height and width. An axis that
/// is not there has size 1.
struct Convolution {
  int64_t n, c, o;
  Axes3 in, kernel, out;
  Axes3 stride, padding, dilation;
  int64_t groups;
  DType dtype;

  int64_t x_size() const { return n * c * in[0] * in[1] * in[2]; }
  int64_t y_size() const { return n * o * out_plane(); }
  int64_t weight_size() const { return o * (c / groups) * kernel[0] * kernel[1] * kernel[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
};

enum class Pass { forward, input_gradient, weight_gradient };

struct ConvProblem {
  Pass pass;
  Convolution shape;
  int capability;  // the device's major number
  bool tf32;       // f32 factors may be rounded to it
};
/// a and b: x, weight; g, weight; g, x. The bias, of the forward pass, may be null. All are contiguous; none is empty.
struct ConvCall {
  const KernelArgs& args;
  ConvProblem problem;
  const void *a, *b, *bias;
  void* out;
};
/// conv.cpp has the list of these.
using ConvImplementation = Implementation<ConvProblem, ConvCall>;

/// y (n, o, plane) += bias (o).
void add_channel_bias(const KernelArgs& args, const Convolution& conv, const void* bias, void* y);

}  // namespace tandem::cuda
