// Reductions over any axes. No axes given = all of them. Sums run in a fixed order, whatever the layout or
// the number of threads; sums of bf16 and f16 accumulate in f32, sums of integers and bool in i64.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

Tensor sum(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
Tensor mean(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);  ///< floating types only
Tensor max(const Tensor& x, const Dims& axes = {},
           bool keep_axes = false);  ///< NaN wins; ties share the gradient
Tensor min(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
/// Index (i64) of the largest element along an axis; the first among equals; NaN wins.
Tensor argmax(const Tensor& x, int64_t axis, bool keep_axes = false);

/// axes: the reduced axes, ascending, non-negative. Ops sum, max, min keep reduced axes out of the output
/// shape unless keep is set. argmax has one axis.
struct ReduceAttrs {
  Dims axes;
  bool keep = false;
  static auto fields() {
    return std::tuple{field("axes", &ReduceAttrs::axes), field("keep", &ReduceAttrs::keep)};
  }
};
OpDef& op_sum();  // takes_strided; out dtype: x's for floats, i64 for integers and bool
OpDef& op_max();  // takes_strided; any dtype; an empty reduction is refused
OpDef& op_min();
OpDef& op_argmax();  // takes_strided; out i64

}  // namespace tandem
