// A convolution as the CUDA kernels see it: one description for the forward pass and the two gradients.
#pragma once

#include <cstdint>

#include "tandem/core/kernel.h"

namespace tandem::cuda {

/// x (n, c, h, w) * weight (o, c / groups, kh, kw) -> y (n, o, oh, ow).
struct Convolution {
  int64_t n, c, h, w, o, kh, kw, oh, ow;
  int64_t stride, padding, dilation, groups;
  DType dtype;
};

/// Kernels of our own for small f32 convolutions in tf32. Each runs, or returns false: a choice by the
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

}  // namespace tandem::cuda
