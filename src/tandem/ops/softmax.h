// Softmax, log-softmax.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

Tensor softmax(const Tensor& x, int64_t axis = -1);
Tensor log_softmax(const Tensor& x, int64_t axis = -1);

OpDef& op_softmax();      // AxisAttrs (ops/shape.h), axis non-negative; contiguous input; floating types
OpDef& op_log_softmax();  // likewise

}  // namespace tandem
