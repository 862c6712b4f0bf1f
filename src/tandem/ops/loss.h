// Losses, written with the other ops.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// Mean over the batch of -log softmax(logits)[target]: logits (N, classes), target (N) of i64 or i32.
Tensor cross_entropy(const Tensor& logits, const Tensor& target);
/// Mean of the squared difference.
Tensor mse_loss(const Tensor& prediction, const Tensor& target);

}  // namespace tandem
