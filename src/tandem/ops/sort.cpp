// Sorting and searching.
#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void infer_argsort(InferArgs& a) {
  const auto& s = a.attributes<SortAttrs>();
  Dims shape = a.in[0].shape();
  const int axis = checked_axis(a.op, s.axis, shape.rank());
  TD_CHECK(s.count >= 0 && s.count <= shape[axis], a.op, ": the count must lie in 0..", shape[axis], "; got ",
           s.count, " for axis ", axis, " of ", shape, ".");
  shape[axis] = s.count;
  a.add(shape, DType::i64);
}

void infer_searchsorted(InferArgs& a) {
  const Tensor &sequence = a.in[0], &values = a.in[1];
  a.attributes<SearchAttrs>();
  TD_CHECK(sequence.dtype() == values.dtype(), "searchsorted: sequence and values must have one type; got ",
           sequence.dtype(), " and ", values.dtype(), ". cast() one of them.");
  bool fits = sequence.rank() == 1 || (sequence.rank() > 1 && sequence.rank() == values.rank());
  for (int i = 0; fits && i < sequence.rank() - 1; ++i) fits = sequence.shape()[i] == values.shape()[i];
  TD_CHECK(
      fits,
      "searchsorted: the sequence must have one axis, or the values' sizes on all axes but the last; got ",
      sequence.shape(), " for values ", values.shape(), ".");
  a.add(values.shape(), DType::i64);
}

/// What the records of the family share.
OpDef order(OpDef d) {
  d.not_differentiable = "its result is made of integers";
  return d;
}

/// What stands at the places of an order: a new tensor, as the order is.
Tensor in_order(const Tensor& x, int64_t axis, const Tensor& indices) {
  return without_mark(gather(x, axis, indices));
}

}  // namespace

OpDef& op_argsort() {
  static OpDef& op = define(order({.name = "argsort",
                                   .about = "the stable order of the elements along an axis",
                                   .inputs = {"x"},
                                   .outputs = {"order"},
                                   .infer = infer_argsort}));
  return op;
}

OpDef& op_searchsorted() {
  static OpDef& op = define(order({.name = "searchsorted",
                                   .about = "where values belong in a sorted sequence",
                                   .inputs = {"sequence", "values"},
                                   .outputs = {"places"},
                                   .infer = infer_searchsorted,
                                   .cost = Cost::cheap}));
  return op;
}

Tensor argsort(const Tensor& x, int64_t wanted_axis, bool descending) {
  const int axis = normal_axis("argsort", wanted_axis, x.rank());
  return apply1(op_argsort(), {x}, SortAttrs{axis, x.shape()[axis], descending});
}

Sorted sort(const Tensor& x, int64_t axis, bool descending) {
  normal_axis("sort", axis, x.rank());
  const Tensor indices = argsort(x, axis, descending);
  return {in_order(x, axis, indices), indices};
}

Sorted topk(const Tensor& x, int64_t k, const TopkOptions& options) {
  const int axis = normal_axis("topk", options.axis, x.rank());
  TD_CHECK(k >= 0 && k <= x.shape()[axis], "topk: k must lie in 0..", x.shape()[axis], "; got ", k,
           " for axis ", axis, " of ", x.shape(), ".");
  const Tensor indices = apply1(op_argsort(), {x}, SortAttrs{axis, k, options.largest});
  return {in_order(x, axis, indices), indices};
}

Sorted kthvalue(const Tensor& x, int64_t k, int64_t wanted_axis, bool keep_axis) {
  const int axis = normal_axis("kthvalue", wanted_axis, x.rank());
  TD_CHECK(k >= 1 && k <= x.shape()[axis], "kthvalue: k must lie in 1..", x.shape()[axis], "; got ", k,
           " for axis ", axis, " of ", x.shape(), ".");
  const Tensor indices = slice(apply1(op_argsort(), {x}, SortAttrs{axis, k, false}), axis, k - 1, k);
  const Tensor values = in_order(x, axis, indices);
  return keep_axis ? Sorted{values, indices} : Sorted{squeeze(values, axis), squeeze(indices, axis)};
}

namespace {

/// Where the median stands along an axis, which stays with size 1: the first NaN, or the lower middle of the order.
Tensor median_index(const Tensor& x, int axis) {
  const NoGrad off;
  const Dim middle = (x.shape()[axis] - 1) / 2;
  const Tensor order = apply1(op_argsort(), {x}, SortAttrs{axis, middle + 1, false});
  const Tensor found = slice(order, axis, middle, middle + 1);
  if (!is_floating(x.dtype())) return found;
  const Tensor nan = isnan(x);
  return where(any(nan, {axis}, true), argmax(nan, axis, true), found);
}

void check_some(const char* op, const Tensor& x, Dim count) {
  TD_CHECK(count > 0, op, ": there is no middle of no elements; got x ", x.shape(), ".");
}

}  // namespace

Tensor median(const Tensor& x) {
  TD_CHECK(x.defined(), "median: x must be a tensor; got an undefined handle.");
  check_some("median", x, x.size());
  const Tensor flat = reshape(x, {x.size()});
  const Tensor middle = squeeze(in_order(flat, 0, median_index(flat, 0)), 0);
  if (!x.requires_grad()) return middle;
  // The largest of those that are equal to it: max() shares the gradient among them.
  const Tensor value = middle.detach(),
               is_it = logical_or(equal(flat, value), logical_and(isnan(flat), isnan(value)));
  return max(where(is_it, flat, -HUGE_VAL));
}

Sorted median(const Tensor& x, int64_t wanted_axis, bool keep_axis) {
  TD_CHECK(x.defined(), "median: x must be a tensor; got an undefined handle.");
  const int axis = normal_axis("median", wanted_axis, x.rank());
  check_some("median", x, x.shape()[axis]);
  const Tensor indices = median_index(x, axis), values = in_order(x, axis, indices);
  return keep_axis ? Sorted{values, indices} : Sorted{squeeze(values, axis), squeeze(indices, axis)};
}

Tensor quantile(const Tensor& x, const std::vector<double>& q, std::optional<int64_t> wanted_axis,
                bool keep_axis) {
  check_floating("quantile", x);
  TD_CHECK(!q.empty(), "quantile: at least one q is needed; got none.");
  for (const double part : q)
    TD_CHECK(part >= 0 && part <= 1, "quantile: every q must lie in 0..1; got ", part, ".");
  const int axis = wanted_axis ? normal_axis("quantile", *wanted_axis, x.rank()) : 0;
  const Tensor line = wanted_axis ? x : reshape(x, {x.size()});
  const Dim n = line.shape()[axis];
  check_some("quantile", x, n);
  Dims shape = wanted_axis ? x.shape() : Dims{};  // of the result for one q
  if (wanted_axis && !keep_axis) shape.erase(axis);
  if (wanted_axis && keep_axis) shape[axis] = 1;
  if (!wanted_axis && keep_axis) shape = Dims::filled(x.rank(), 1);
  const Tensor order = argsort(line, axis);
  const auto at = [&](Dim rank) { return in_order(line, axis, slice(order, axis, rank, rank + 1)); };
  const Tensor last = at(n - 1), spoiled = isnan(last);  // NaN stands last in the order
  std::vector<Tensor> found;
  for (const double part : q) {
    const double rank = part * static_cast<double>(n - 1), below = std::floor(rank);
    const Dim lower = static_cast<Dim>(below);
    const Tensor value = rank == below ? at(lower) : lerp(at(lower), at(lower + 1), rank - below);
    found.push_back(reshape(where(spoiled, last, value), shape));
  }
  return stack(found, 0);
}

Tensor quantile(const Tensor& x, double q, std::optional<int64_t> axis, bool keep_axis) {
  return squeeze(quantile(x, std::vector<double>{q}, axis, keep_axis), 0);
}

Unique unique(const Tensor& x, const UniqueOptions& options) {
  refuse_tracing("unique", "sort() keeps the size.");
  const NoGrad off;
  const Dim n = x.size();
  const Tensor flat = reshape(x, {n});
  const auto [sorted, order] = sort(flat, 0);
  // Where a new value begins.
  Tensor starts = sorted;
  if (n > 0) {
    const Tensor differs = not_equal(slice(sorted, 0, 1, n), slice(sorted, 0, 0, n - 1));
    starts = concat({ones({1}, DType::boolean, x.device()), differs}, 0);
  }
  starts = nonzero(starts);
  starts = reshape(starts, {starts.size()});
  Unique result;
  result.values = without_mark(index_select(sorted, 0, starts));
  if (options.counts) {
    const Tensor ends = n > 0 ? concat({slice(starts, 0, 1, starts.size()),
                                        full({1}, static_cast<double>(n), DType::i64, x.device())},
                                       0)
                              : starts;
    result.counts = sub(ends, starts);
  }
  if (options.inverse) {
    const Tensor numbers = sub(searchsorted(starts, arange(n, DType::i64, x.device()), true), 1);
    result.inverse = reshape(scatter(zeros({n}, DType::i64, x.device()), 0, order, numbers), x.shape());
  }
  return result;
}

Tensor searchsorted(const Tensor& sequence, const Tensor& values, bool right) {
  return apply1(op_searchsorted(), {sequence, values}, SearchAttrs{right});
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) {
  TD_CHECK(boundaries.rank() == 1, "bucketize: the boundaries must have one axis; got ", boundaries.shape(),
           ".");
  return searchsorted(boundaries, x, right);
}

}  // namespace tandem
