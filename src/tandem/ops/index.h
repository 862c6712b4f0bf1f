// Indexing by tensors of integers. Index tensors are i64 or i32; every index must lie in range (checked on
// CPU; on a GPU an index out of range reads as zero, writes nothing and raises an error at the next
// synchronisation).
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// out[i][j] = x[index[i][j]][j] for axis 0, and likewise: index has x's rank; its sizes off the axis must
/// not exceed x's.
Tensor gather(const Tensor& x, int64_t axis, const Tensor& index);
/// Zeros of `shape` with source added at the places that gather would read, in a fixed order.
Tensor scatter_add_zeros(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape);
/// i64 0/1 of shape (…, classes).
Tensor one_hot(const Tensor& index, int64_t classes);

struct ScatterAttrs {
  Dims shape;
  int64_t axis = 0;
  static auto fields() {
    return std::tuple{field("shape", &ScatterAttrs::shape), field("axis", &ScatterAttrs::axis)};
  }
};
struct OneHotAttrs {
  int64_t classes = 0;
  static auto fields() { return std::tuple{field("classes", &OneHotAttrs::classes)}; }
};
OpDef& op_gather();             // in x, index (contiguous); AxisAttrs
OpDef& op_scatter_add_zeros();  // in source, index (contiguous, same shape); ScatterAttrs
OpDef& op_one_hot();            // in index; OneHotAttrs; out i64

}  // namespace tandem
