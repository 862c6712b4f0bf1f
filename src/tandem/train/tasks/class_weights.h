// How much each class counts in a loss, for the tasks that have classes.
#pragma once

#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/tensor.h"
#include "tandem/ops/pointwise.h"

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

}  // namespace tandem
