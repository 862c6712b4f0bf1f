// The loss of a last layer over many classes, such as all words of a language, without all of its logits at once.
#pragma once

#include "tandem/ops/loss.h"

namespace tandem {

struct LinearCrossEntropyOptions {
  std::optional<int64_t> ignore_index = -100;  ///< as for cross_entropy
  Reduction reduction = Reduction::mean;       ///< mean or sum
  /// Rows whose logits are there at a time; 0: as many as have 2^22 logits, and at least 16.
  int64_t rows = 0;
};
/// cross_entropy(linear(x, weight, bias), target) of x (n, features), weight (classes, features), bias (classes) or undefined, and target
/// i64 or i32 (n). The rows are walked over in parts. Where gradients are wanted they are computed on the way, in place of being kept for;
/// what is held is of the size of x and weight. Sums are made part by part: the last bits differ from those of
/// cross_entropy and depend on `rows`. Gradients of gradients go through all logits.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace tandem
