// Softmax and what is made of it.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

Tensor softmax(const Tensor& x, int64_t axis = -1);
Tensor log_softmax(const Tensor& x, int64_t axis = -1);
Tensor softmin(const Tensor& x, int64_t axis = -1);  ///< softmax(-x)

struct GumbelSoftmaxOptions {
  double tau = 1;     ///< temperature: the smaller, the closer to one-hot
  bool hard = false;  ///< one-hot values, with the gradient of the soft ones
  int64_t axis = -1;
};
/// softmax((x + noise) / tau) with noise from Gumbel(0, 1): a sample of the categories whose logits are x.
Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxOptions& options = {});

OpDef& op_softmax();           // AxisAttrs (ops/shape.h), axis non-negative; contiguous input; floating types
OpDef& op_log_softmax();       // likewise
OpDef& op_softmax_gradient();  // in g, y (what softmax gave); out y · (g - Σ g y)
OpDef& op_log_softmax_gradient();  // in g, y; out g - exp(y) Σ g

}  // namespace tandem
