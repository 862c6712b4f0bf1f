// Shape operations. permute, expand and slice are views: they cost nothing and share memory. So is reshape where strides
// allow; where it copies, the copy is marked (CopyMark) and cannot be written. concat copies.
#pragma once

#include <vector>

#include "tandem/core/op.h"

namespace tandem {

/// One size may be -1 and is then inferred.
Tensor reshape(const Tensor& x, const Dims& shape);
/// Axes [first, last] become one.
Tensor flatten(const Tensor& x, int64_t first = 0, int64_t last = -1);
/// Output axis i is input axis axes[i].
Tensor permute(const Tensor& x, const Dims& axes);
/// Swaps two axes.
Tensor transpose(const Tensor& x, int64_t a = -2, int64_t b = -1);
/// Broadcasts to `shape` without copying.
Tensor expand(const Tensor& x, const Dims& shape);
/// Elements start, start + step … below stop along an axis; negative start and stop count from the end and
/// are clamped.
Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t stop, int64_t step = 1);
/// Inverse of slice: zeros of size `size` along the axis, x at start, start + step …
Tensor slice_into_zeros(const Tensor& x, int64_t axis, int64_t start, int64_t step, int64_t size);
/// Drops index i of an axis: x (…, n, …) -> (…, …).
Tensor select(const Tensor& x, int64_t axis, int64_t index);
Tensor unsqueeze(const Tensor& x, int64_t axis);
Tensor squeeze(const Tensor& x, int64_t axis);
/// Without the axes of size 1.
Tensor squeeze(const Tensor& x);
Tensor concat(const std::vector<Tensor>& parts, int64_t axis = 0);
/// PyTorch's name for concat().
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t axis = 0) { return concat(tensors, axis); }
/// The same tensor where it is row-major already, else a row-major copy, which is marked (CopyMark).
Tensor contiguous(const Tensor& x);
/// A fresh row-major copy.
Tensor clone(const Tensor& x);
/// Sums the axes along which `shape` was broadcast to x's shape: the reverse of expand.
Tensor sum_to(const Tensor& x, const Dims& shape);
/// Copies to another device (the same tensor where it is there already). Not inside a compiled callable.
Tensor to(const Tensor& x, Device device);

/// Overwrites the values of `target` (which may be a view) with `source`, broadcast and cast to its type. Refused for a
/// copy that reads as a part of another tensor (CopyMark) and for elements that share memory. Not differentiable: refused
/// where the tape would need it.
void assign(const Tensor& target, const Tensor& source);

struct ShapeAttrs {  // reshape (exact sizes), expand
  Dims shape;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("shape", &ShapeAttrs::shape));
  }
};
struct PermuteAttrs {
  Dims axes;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axes", &PermuteAttrs::axes));
  }
};
struct SliceAttrs {  // slice: stop is exact; slice_into_zeros: size along the axis of the output
  int64_t axis = 0, start = 0, stop = 0, step = 1, size = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &SliceAttrs::axis), field("start", &SliceAttrs::start),
                 field("stop", &SliceAttrs::stop), field("step", &SliceAttrs::step),
                 field("size", &SliceAttrs::size));
  }
};
struct AxisAttrs {  // concat, softmax, gather …
  int64_t axis = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &AxisAttrs::axis));
  }
};
OpDef& op_slice_into_zeros();  // in x; out zeros but at the slice. takes_strided
OpDef& op_concat();            // in parts; AxisAttrs. takes_strided
OpDef& op_copy();              // in x (any strides); out row-major
OpDef& op_assign();            // in target, source (same shape and dtype, any strides); out[0] is the target

}  // namespace tandem
