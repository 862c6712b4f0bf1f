// Batch norm over the true steps of sequences: what a batch is padded with takes no part in the statistics, so that it does not matter
// how far it is padded.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::zoo {

/// Names, meanings and defaults of nn::BatchNorm.
class MaskedBatchNorm final : public nn::Module {
 public:
  MaskedBatchNorm(nn::Module* parent, const std::string& name, int64_t channels);
  using Module::forward;
  /// x, whose axis `axis` has the channels; mask of x's rank, 1 at true places and 0 at others, with size 1 where all are alike -> the
  /// same shape. What comes out at other places means nothing.
  Tensor forward(const Tensor& x, const Tensor& mask, int64_t axis);

  Tensor weight, bias, running_mean, running_var;
};

/// 1 at the first lengths[n] of `steps` steps of row n and 0 beyond, (N, steps).
Tensor step_mask(const Tensor& lengths, int64_t steps, DType dtype);

}  // namespace tandem::zoo
