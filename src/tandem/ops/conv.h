// Two-dimensional convolution in NCHW, and the two ops that are its gradients (each differentiable in turn).
#pragma once

#include "tandem/core/op.h"

namespace tandem {

struct Conv2dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
};

/// x (N, C, H, W), weight (O, C/groups, KH, KW), bias (O) or undefined -> (N, O, H', W').
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

/// Attributes of the conv ops. Ops conv2d: in x, weight[, bias]. conv2d_input_gradient: in g (N, O, H', W'),
/// weight; out (N, C, height, width). conv2d_weight_gradient: in g, x; out (O, C/groups, kernel_height,
/// kernel_width). height and width are 0 but in the input gradient, the kernel sizes 0 but in the weight
/// gradient.
struct ConvAttrs {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  int64_t height = 0, width = 0;
  int64_t kernel_height = 0, kernel_width = 0;
  static auto fields() {
    return std::tuple{field("stride", &ConvAttrs::stride),
                      field("padding", &ConvAttrs::padding),
                      field("dilation", &ConvAttrs::dilation),
                      field("groups", &ConvAttrs::groups),
                      field("height", &ConvAttrs::height),
                      field("width", &ConvAttrs::width),
                      field("kernel_height", &ConvAttrs::kernel_height),
                      field("kernel_width", &ConvAttrs::kernel_width)};
  }
};
OpDef& op_conv2d();
OpDef& op_conv2d_input_gradient();
OpDef& op_conv2d_weight_gradient();

}  // namespace tandem
