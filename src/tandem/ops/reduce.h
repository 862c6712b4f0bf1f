// Reductions over any axes. No axes given = all of them. Sums run in a fixed order, whatever the layout or
// the number of threads; sums of bf16 and f16 accumulate in f32, sums of integers and bool in i64.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

Tensor sum(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
/// Floating types only. Of bf16 and f16 only the result is rounded, so that the sum and the count may exceed their range.
Tensor mean(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
Tensor max(const Tensor& x, const Dims& axes = {},
           bool keep_axes = false);  ///< NaN wins; ties share the gradient
Tensor min(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
/// Index (i64) of the largest element along an axis; the first among equals; NaN wins.
Tensor argmax(const Tensor& x, int64_t axis, bool keep_axes = false);
Tensor argmin(const Tensor& x, int64_t axis, bool keep_axes = false);
/// Product; of integers and bool in i64. Its gradient is exact also where elements are zero.
Tensor prod(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
/// Variance and its root (PyTorch: std, a word that C++ has taken) in two passes: the squared distances from the mean over (count - correction). The gradient
/// of a deviation of 0 is 0.
Tensor var(const Tensor& x, const Dims& axes = {}, bool keep_axes = false, double correction = 1);
Tensor stddev(const Tensor& x, const Dims& axes = {}, bool keep_axes = false, double correction = 1);
/// (Σ |x|^p)^(1/p). p = ±infinity: the largest, the smallest |x|; p = 0: how many are not zero. The gradient of a norm
/// of 0 is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& axes = {}, bool keep_axes = false);
/// log Σ exp(x) without overflow; of nothing -infinity.
Tensor logsumexp(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
/// bool: whether any, or every, element is not zero (NaN is not). Of nothing: false, true.
Tensor any(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
Tensor all(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);
Tensor count_nonzero(const Tensor& x, const Dims& axes = {}, bool keep_axes = false);  ///< i64

/// Whether all of isclose(a, b, rtol, atol, equal_nan) (pointwise.h) is true. Reads values: not inside a compiled callable.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

/// axes: the reduced axes, ascending, non-negative. Ops sum, max, min keep reduced axes out of the output
/// shape unless keep is set. argmax has one axis. wide: sums of bf16 and f16 stay in f32, in which they are taken.
struct ReduceAttrs {
  Dims axes;
  bool keep = false;
  bool wide = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axes", &ReduceAttrs::axes), field("keep", &ReduceAttrs::keep),
                 field("wide", &ReduceAttrs::wide));
  }
};
OpDef& op_sum();  // takes_strided; out dtype: x's for floats (f32 where wide), i64 for integers and bool
OpDef& op_max();  // takes_strided; any dtype; an empty reduction is refused
OpDef& op_min();
OpDef& op_argmax();  // takes_strided; out i64
OpDef& op_prod();    // takes_strided; floating types and i64

/// The axes that a reduction named `op` goes over: all where none are given; ascending, non-negative, without repeats.
Dims reduced_axes(const char* op, const Dims& axes, int rank);
/// How many elements make one result.
Dim reduced_count(const Dims& shape, const Dims& axes);

}  // namespace tandem
