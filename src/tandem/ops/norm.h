// Normalisation: each takes a mean and a variance (of the population, over the count) out of groups of elements and
// gives (x - mean) / sqrt(variance + eps), times a weight plus a bias where these are given. Statistics of bf16 and f16
// are taken in f32.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// Over the last axes, whose sizes are `shape`; weight and bias have that shape.
Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x (N, C, …): over each group of C / groups channels of each sample; weight and bias (C).
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x (N, C, …): over each channel of each sample.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

struct BatchNormOptions {
  bool training = false;  ///< statistics of the batch, else the running ones
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of the batch in the running statistics
  /// bool, with the axes of x: 1 on that of the channels, x's size or 1 on the others. What it leaves out is not looked at and comes out
  /// as zeros, as if it was not in the batch: the padding of sequences, (N, 1, steps). Undefined: all of x counts.
  Tensor mask = {};
};
/// x (N, C, …): over each channel of the whole batch. In training running_mean and running_var, where given, move towards
/// the batch's mean and unbiased variance (by assign); where a mask leaves fewer than two values of a channel they stay.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {});

/// x / sqrt(mean of x² + eps) over the last axes. eps = 0 means the spacing of numbers at 1 in x's type, as in PyTorch.
Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight = {}, double eps = 0);
/// x over its p-norm along an axis, or over eps where that is larger.
Tensor normalize(const Tensor& x, double p = 2, int64_t axis = 1, double eps = 1e-12);
/// x (N, C, …) over (k + alpha · mean of x² over `size` neighbouring channels)^beta.
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75,
                           double k = 1);

/// x is seen as (samples, groups, channels, inner). layer_norm and group_norm normalise over (channels, inner), batch_norm
/// over (samples, inner) with groups = 1; weight and bias have groups · channels elements.
struct NormAttrs {
  int64_t samples = 1, groups = 1, channels = 1, inner = 1;
  double eps = 1e-5;
  bool has_weight = false, has_bias = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("samples", &NormAttrs::samples), field("groups", &NormAttrs::groups),
                 field("channels", &NormAttrs::channels), field("inner", &NormAttrs::inner),
                 field("eps", &NormAttrs::eps), field("has_weight", &NormAttrs::has_weight),
                 field("has_bias", &NormAttrs::has_bias));
  }
  /// How many means there are, and of how many elements each.
  int64_t rows(bool over_batch) const { return over_batch ? channels : times_capped(samples, groups); }
  int64_t count(bool over_batch) const { return (over_batch ? samples : channels) * inner; }
};
// In x, then weight and bias where given, all contiguous; out y, mean, variance. All but x and y are f32, or f64 for f64.
OpDef& op_layer_norm();
OpDef& op_group_norm();
OpDef& op_batch_norm();
// In g, x, mean, variance, then weight where given; out dx, then dweight and dbias where these were given.
OpDef& op_layer_norm_gradient();
OpDef& op_group_norm_gradient();
OpDef& op_batch_norm_gradient();

}  // namespace tandem
