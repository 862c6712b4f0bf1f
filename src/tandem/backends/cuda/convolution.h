// A convolution as the CUDA kernels see it: one description for the forward pass and the two gradients.
#pragma once

#include <cstdint>

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

/// Kernels of our own for small f32 convolutions. Each runs, or returns false: a choice by the
/// description alone. All buffers are contiguous.
bool small_conv_forward(const KernelArgs& args, const Convolution& conv, const void* x, const void* weight,
                        const void* bias, void* y);
bool small_conv_input_gradient(const KernelArgs& args, const Convolution& conv, const void* g,
                               const void* weight, void* gx);
bool small_conv_weight_gradient(const KernelArgs& args, const Convolution& conv, const void* g, const void* x,
                                void* gw);

/// Plain kernels for any floating type and any description, where cuDNN has nothing deterministic to offer.
void direct_conv_forward(const KernelArgs& args, const Convolution& conv, const void* x, const void* weight,
                         void* y);
void direct_conv_input_gradient(const KernelArgs& args, const Convolution& conv, const void* g,
                                const void* weight, void* gx);
void direct_conv_weight_gradient(const KernelArgs& args, const Convolution& conv, const void* g,
                                 const void* x, void* gw);

/// y (n, o, plane) += bias (o).
void add_channel_bias(const KernelArgs& args, const Convolution& conv, const void* bias, void* y);

/// Keeps the stream busy for so long, and nothing else.
void hold_stream(const KernelArgs& args, int64_t nanoseconds);

}  // namespace tandem::cuda
