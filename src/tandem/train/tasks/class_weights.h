// How much each class counts in a loss, for the tasks that have classes.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/tensor.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

/// Throws Error unless all are finite and at least 0.
inline void check_class_weights(const std::vector<double>& weights) {
  for (const double weight : weights)
    TD_CHECK(std::isfinite(weight) && weight >= 0, "class-weights: must be numbers of at least 0; got ",
             weight, ".");
}

/// What a loss takes for logits (n, classes, …); undefined where there are no weights.
inline Tensor class_weights_for(const Tensor& logits, const std::vector<double>& weights) {
  if (weights.empty()) return {};
  const auto classes = static_cast<int64_t>(weights.size());
  TD_CHECK(logits.rank() >= 2 && logits.size(1) == classes,
           "class-weights: there must be one per class; got ", classes, " for outputs of ", logits.shape(),
           ".");
  return cast(from_vector(weights, {classes}, logits.device()), logits.dtype());
}

/// What such a loss of targets (n, …) divides by, (): the sum of their weights, f64, or how many targets count, i64, where
/// there are no weights. Undefined where all count alike.
inline Tensor sum_of_class_weights(const Tensor& target, const std::vector<double>& weights,
                                   std::optional<int64_t> ignored) {
  if (!is_integer(target.dtype())) return {};  // probabilities of the classes: each sample counts as one
  if (!ignored && weights.empty()) return {};
  const Tensor counts = ignored ? not_equal(target, *ignored) : Tensor();
  if (weights.empty()) return sum(cast(counts, DType::i64));
  const Tensor each = from_vector(weights, {static_cast<Dim>(weights.size())}, target.device());
  const Tensor known = ignored ? where(counts, target, 0) : target;
  const Tensor own = index_select(each, 0, cast(reshape(known, {-1}), DType::i64));
  return sum(ignored ? where(reshape(counts, {-1}), own, 0) : own);
}

}  // namespace tandem
