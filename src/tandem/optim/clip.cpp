// Clipping of gradients by their common norm or by value.
#include "tandem/optim/clip.h"

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"

namespace tandem::optim {

Tensor global_norm(std::span<const Tensor> gradients) {
  const NoGrad off;
  Tensor total;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    TD_CHECK(is_floating(gradient.dtype()), "global_norm: gradients must have a floating type; got ",
             gradient.dtype(), ".");
    const Tensor g = cast(gradient, promote(gradient.dtype(), DType::f32));
    const Tensor squares = sum(g * g);
    total = total.defined() ? total + squares : squares;
  }
  TD_CHECK(total.defined(), "global_norm: there must be at least one gradient; got none.");
  return sqrt(total);
}

std::vector<Tensor> clip_by_norm(std::span<const Tensor> gradients, double max_norm) {
  TD_CHECK(max_norm > 0, "clip_by_norm: max_norm must be above 0; got ", max_norm, ".");
  const Tensor scale = minimum(max_norm / (global_norm(gradients) + 1e-6), 1.0);
  const NoGrad off;
  std::vector<Tensor> clipped;
  for (const Tensor& g : gradients) clipped.push_back(g.defined() ? cast(g * scale, g.dtype()) : g);
  return clipped;
}

std::vector<Tensor> clip_by_value(std::span<const Tensor> gradients, double limit) {
  TD_CHECK(limit > 0, "clip_by_value: the limit must be above 0; got ", limit, ".");
  const NoGrad off;
  std::vector<Tensor> clipped;
  for (const Tensor& g : gradients) clipped.push_back(g.defined() ? minimum(maximum(g, -limit), limit) : g);
  return clipped;
}

}  // namespace tandem::optim
