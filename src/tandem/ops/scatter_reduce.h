// scatter_reduce: many elements of one tensor brought together at the places that an index names.
#pragma once

#include "tandem/ops/index.h"

namespace tandem {

enum class ScatterReduction : uint8_t { sum, prod, mean, amax, amin };

/// x with the elements of source put together with it at the places that gather would read. source may be larger than index:
/// what stands at the places of index is used. Without include_self, what x holds at these places does not count. A NaN wins
/// in amax and amin; a mean of integers is rounded down. Equal winners of amax and amin share the gradient.
Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source,
                      ScatterReduction reduction, bool include_self = true);

/// Op scatter_reduce: in x, source, index (source's shape), row-major; out: x with the elements of source taken in, in the
/// order of the index. Sums and means are made of scatter_add_zeros.
struct ScatterReduceAttrs {
  int64_t axis = 0;
  int64_t reduction = static_cast<int64_t>(ScatterReduction::prod);  // prod, amax or amin
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &ScatterReduceAttrs::axis),
                 field("reduction", &ScatterReduceAttrs::reduction));
  }
};
OpDef& op_scatter_reduce();

}  // namespace tandem
