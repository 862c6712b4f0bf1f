// Indexing by tensors of integers, sorting and searching. Index tensors are i64 or i32; every index must lie in range:
// checked on CPU; on a GPU an index out of range reads as zero, writes nothing and raises an error at the next
// synchronisation. Where several values go to one place, sums run and the last one wins in the order of the index, on
// every device. NaN is the largest value in every order; equal elements stay in their order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"

namespace tandem {

/// out[i][j] = x[index[i][j]][j] for axis 0, and likewise: index has x's rank; its sizes off the axis must
/// not exceed x's.
Tensor gather(const Tensor& x, int64_t axis, const Tensor& index);
/// gather where x and index are broadcast against each other off the axis.
Tensor take_along(const Tensor& x, const Tensor& index, int64_t axis);
/// Zeros of `shape` with source added at the places that gather would read, in a fixed order.
Tensor scatter_add_zeros(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape);
/// x with source put (scatter) or added (scatter_add) at the places that gather would read. source may be larger than
/// index: what stands at the places of index is used. A number is put everywhere.
Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Operand& source);
Tensor scatter_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source);
/// The slices index[0], index[1] … along an axis; index has one axis.
Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index);
/// x with alpha · (slice i of source) added to its slice index[i].
Tensor index_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source,
                 const Operand& alpha = 1);
/// x with slice i of source put at its slice index[i].
Tensor index_copy(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source);
/// Elements of the flattened x; negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);
/// i64 0/1 of shape (…, classes).
Tensor one_hot(const Tensor& index, int64_t classes);

struct EmbeddingOptions {
  /// A row that gets no gradient (negative: from the end).
  std::optional<int64_t> padding_idx = {};
};
/// Rows of weight (n, d) by an index of any shape: (…) -> (…, d). The gradient is dense: one pass over its rows.
Tensor embedding(const Tensor& weight, const Tensor& index, const EmbeddingOptions& options = {});

/// The part of an axis from start to stop in steps, as in Python. A negative step goes backwards, which copies.
struct Slice {
  std::optional<int64_t> start = {}, stop = {};
  int64_t step = 1;
};
struct Ellipsis {};
struct NewAxis {};
inline constexpr Ellipsis ellipsis{};  ///< as many whole axes as are left
inline constexpr NewAxis new_axis{};   ///< an axis of size 1

/// One subscript of index().
class Subscript {
 public:
  enum Kind { number, slice, tensor, all, fresh };
  Subscript(int64_t i) : kind(number), at(i) {}
  Subscript(int i) : Subscript(static_cast<int64_t>(i)) {}
  Subscript(const Slice& s) : kind(slice), part(s) {}
  Subscript(const Tensor& t) : kind(tensor), indices(t) {}
  Subscript(Ellipsis) : kind(all) {}
  Subscript(NewAxis) : kind(fresh) {}

  Kind kind;
  int64_t at = 0;
  Slice part;
  Tensor indices;
};
/// x[a, b, …] as PyTorch does it: index(x, {Slice{1, 5}, ellipsis, -1}) is a view; with a tensor or a
/// negative step it is a copy. Tensors of
/// integers (negative ones count from the end) are broadcast against each other and stand where the first one stood if
/// they are neighbours, else in front; one without axes is a number. A bool tensor selects where it is true: the size of
/// the result depends on the data.
Tensor index(const Tensor& x, const std::vector<Subscript>& subscripts);
/// x with values (broadcast) put at the places that index() would read, or added to them.
Tensor index_put(const Tensor& x, const std::vector<Subscript>& subscripts, const Operand& values,
                 bool accumulate = false);

/// x where mask (bool, broadcast to x) is false, else value.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
/// x where mask (bool, broadcast to x) is false; where it is true, the elements of source, one after the other. source may
/// have any shape, and more elements than the mask has true ones.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// The elements of x where mask is true, in order; both are broadcast. Its size depends on the data.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// The places of what is not zero, i64 (count, rank), in order. Its size depends on the data.
Tensor nonzero(const Tensor& x);
/// The same as one tensor per axis.
std::vector<Tensor> where(const Tensor& condition);

// In place: target, which may be a view with any strides, is changed where index or mask says, and nothing else of it is
// touched. Otherwise they are scatter, index_copy, masked_fill and masked_scatter; the last one wins where several values
// go to one place. Index and source may share memory with the target: what they held before the call counts. Not
// differentiable, as assign(): refused where the tape would need it.
void scatter_into(const Tensor& target, int64_t axis, const Tensor& index, const Operand& source);
void index_copy_into(const Tensor& target, int64_t axis, const Tensor& index, const Tensor& source);
void masked_fill_into(const Tensor& target, const Tensor& mask, const Operand& value);
void masked_scatter_into(const Tensor& target, const Tensor& mask, const Tensor& source);
/// index_add along the first axis of target, which must be row-major.
void index_add_into(const Tensor& target, const Tensor& index, const Tensor& source);

struct Sorted {
  Tensor values, indices;  // indices: i64, the places along the axis
};
/// Along an axis, equal elements in their order.
Sorted sort(const Tensor& x, int64_t axis = -1, bool descending = false);
Tensor argsort(const Tensor& x, int64_t axis = -1, bool descending = false);
struct TopkOptions {
  int64_t axis = -1;
  bool largest = true;
  bool sorted = true;  ///< false leaves the order open
};
Sorted topk(const Tensor& x, int64_t k, const TopkOptions& options = {});
/// The k-th smallest (from 1).
Sorted kthvalue(const Tensor& x, int64_t k, int64_t axis = -1, bool keep_axis = false);

/// The middle element in order, of an even number the lower of the two; a NaN, if there is one. Of all elements equal ones
/// share the gradient; along an axis it goes to the element named by the index.
Tensor median(const Tensor& x);
Sorted median(const Tensor& x, int64_t axis, bool keep_axis = false);
/// The number below which the part q (0 <= q <= 1) of x lies: between two elements on a straight line. A NaN gives NaN.
/// Along an axis, or of all elements; several q come as a new first axis.
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> axis = {}, bool keep_axis = false);
Tensor quantile(const Tensor& x, const std::vector<double>& q, std::optional<int64_t> axis = {},
                bool keep_axis = false);

struct UniqueOptions {
  bool inverse = false, counts = false;
};
struct Unique {
  Tensor values;   // ascending; every NaN is a value of its own
  Tensor inverse;  // i64 of x's shape: x = values[inverse]. Undefined unless asked for
  Tensor counts;   // i64. Undefined unless asked for
};
/// The different elements of x. Their number depends on the data; not differentiable.
Unique unique(const Tensor& x, const UniqueOptions& options = {});

struct BincountOptions {
  Tensor weights = {};
  int64_t min_length = 0;
  /// The exact number of bins: every value must lie below it, and the call may stand in a compiled callable.
  std::optional<int64_t> length = {};
};
/// How often 0, 1, 2 … stand in x (integers, one axis): i64, or the sums of their weights in the weights' type. Without
/// a length its size depends on the data.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

/// Where each of `values` would go into `sequence`, which ascends along its last axis: before equal elements, or after
/// them (right). sequence has one axis, or the leading axes of values. i64.
Tensor searchsorted(const Tensor& sequence, const Tensor& values, bool right = false);
/// The bucket of each element: searchsorted(boundaries, x).
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);

/// The public function on whose behalf an index is checked: named in the message.
enum class IndexUse : uint8_t {
  none,
  gather,
  take_along,
  scatter_add_zeros,
  scatter_add,
  scatter,
  index_select,
  index_add,
  embedding,
  index,
  index_put,
  take,
  bincount,
  one_hot,
  index_add_into,
  scatter_into,
  index_copy,
  index_copy_into,
  masked_scatter,
  masked_scatter_into,
  cross_entropy,
  nll_loss,
  multi_margin_loss,
  scatter_reduce,
  ctc_labels,        // the class after the last one stands for the blank
  lengths,           // from 0 on (ops/lengths.h)
  positive_lengths,  // the same from 1 on: what is looked up is one less
  probability,       // 1 where one of them lies outside 0..1 (ops/loss.cpp)
  probability_target
};
const char* name_of(IndexUse use);
/// The message about an index `got` that is not in low … limit - 1; `where` says at which place, or on which device.
std::string index_fault(IndexUse use, int64_t low, int64_t limit, int64_t got, const std::string& where);
/// The same about a probability, which the index tells in millionths; this index tells NaN.
inline constexpr int64_t kNotANumber = INT64_MIN + 1;
std::string probability_fault(IndexUse use, int64_t millionths);
std::ostream& operator<<(std::ostream& out, IndexUse use);

/// No index is skipped.
inline constexpr int64_t kNoSkip = INT64_MIN;

struct IndexAttrs {
  int64_t axis = 0;
  int64_t skip =
      kNoSkip;  // index_select: this index gets no gradient, and reads as zero where it is out of range
  IndexUse use = IndexUse::gather;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &IndexAttrs::axis), field("skip", &IndexAttrs::skip),
                 field("use", &IndexAttrs::use));
  }
};
struct ScatterAttrs {
  Dims shape;  // of the output
  int64_t axis = 0;
  int64_t skip = kNoSkip;  // index_add_zeros: slices of this index are left out
  IndexUse use = IndexUse::scatter_add_zeros;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("shape", &ScatterAttrs::shape), field("axis", &ScatterAttrs::axis),
                 field("skip", &ScatterAttrs::skip), field("use", &ScatterAttrs::use));
  }
};
struct RavelAttrs {
  Dims sizes;
  IndexUse use = IndexUse::index;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("sizes", &RavelAttrs::sizes), field("use", &RavelAttrs::use));
  }
};
struct OneHotAttrs {
  int64_t classes = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("classes", &OneHotAttrs::classes));
  }
};
struct SortAttrs {
  int64_t axis = 0;
  int64_t count = 0;  // how many of the order are wanted
  bool descending = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &SortAttrs::axis), field("count", &SortAttrs::count),
                 field("descending", &SortAttrs::descending));
  }
};
struct SearchAttrs {
  bool right = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("right", &SearchAttrs::right));
  }
};
/// gather() on behalf of another public function.
Tensor gather_as(const Tensor& x, int64_t axis, const Tensor& index, IndexUse use);
OpDef& op_gather();             // in x, index; IndexAttrs
OpDef& op_scatter_add_zeros();  // in source, index (same shape); ScatterAttrs
OpDef& op_index_select();       // in x, index (one axis); IndexAttrs
OpDef& op_index_add_zeros();    // in source, index (one axis); ScatterAttrs
OpDef&
op_last_writer();  // in index; ScatterAttrs; out i64: the element of index that names each place last, or -1
OpDef&
op_index_add_into();  // in target, index (one axis), source; ScatterAttrs of axis 0; out[0] is the target
OpDef& op_scatter_into();  // in target (any strides), index, source (its shape), both row-major; ScatterAttrs
OpDef& op_index_copy_into();  // in target (any strides), index (one axis), source (any strides); ScatterAttrs
OpDef& op_ravel_index();      // in one index a size (same shapes), negative ones wrap; RavelAttrs; out i64
OpDef& op_one_hot();          // in index; OneHotAttrs; out i64
OpDef& op_argsort();          // in x; SortAttrs; out i64
OpDef& op_searchsorted();     // in sequence, values; SearchAttrs; out i64
OpDef& op_nonzero();          // in x; data-dependent; out i64 (count, rank)

}  // namespace tandem
