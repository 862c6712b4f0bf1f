// Convolution over one, two or three spatial axes, its transpose, and the two ops that are its gradients (each
// differentiable in turn).
#pragma once

#include "tandem/core/op.h"
#include "tandem/ops/per_axis.h"

namespace tandem {

struct ConvOptions {
  PerAxis stride = 1;
  Padding padding = 0;  ///< zeros on both sides; or "same", which keeps the size where stride is 1
  PerAxis dilation = 1;
  int64_t groups = 1;
};
using Conv1dOptions = ConvOptions;
using Conv2dOptions = ConvOptions;
using Conv3dOptions = ConvOptions;

/// x (N, C, L), weight (O, C/groups, K), bias (O) or undefined -> (N, O, L').
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const ConvOptions& options = {});
/// x (N, C, H, W), weight (O, C/groups, KH, KW), bias (O) or undefined -> (N, O, H', W').
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const ConvOptions& options = {});
/// x (N, C, D, H, W), weight (O, C/groups, KD, KH, KW), bias (O) or undefined -> (N, O, D', H', W').
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const ConvOptions& options = {});

struct ConvTransposeOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;         ///< taken off both ends of the result
  PerAxis output_padding = 0;  ///< added to the far end; less than stride or dilation
  PerAxis dilation = 1;
  int64_t groups = 1;
};

/// x (N, C, …), weight (C, O/groups, K…), bias (O) or undefined -> (N, O, …), each size
/// (size - 1) · stride - 2 · padding + dilation · (K - 1) + output_padding + 1.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});

/// Attributes of the conv ops, which take tensors of rank 3, 4 or 5. Ops conv: in x, weight[, bias].
/// conv_input_gradient: in g (N, O, …), weight; out (N, C, size…). conv_weight_gradient: in g, x; out
/// (O, C/groups, kernel…). size is 0 but in the input gradient, kernel 0 but in the weight gradient. Axes that
/// are not there have size, kernel and stride 1.
struct ConvAttrs {
  Axes3 stride, padding, dilation;
  int64_t groups = 1;
  Axes3 size{}, kernel{};
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("stride", &ConvAttrs::stride), field("padding", &ConvAttrs::padding),
                 field("dilation", &ConvAttrs::dilation), field("groups", &ConvAttrs::groups),
                 field("size", &ConvAttrs::size), field("kernel", &ConvAttrs::kernel));
  }
};
OpDef& op_conv();
OpDef& op_conv_input_gradient();
OpDef& op_conv_weight_gradient();

}  // namespace tandem
