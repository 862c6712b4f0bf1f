#include "tandem/ops/index.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/define.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void check_index(const char* op, const Tensor& index) {
  TD_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, op,
           ": the index must be i64 or i32; got ", describe(index), ". cast() it first.");
}

void check_number(const char* op, const Tensor& x) {
  TD_CHECK(x.dtype() != DType::boolean, op,
           ": the element type must be a number; got bool. cast() it first.");
}

void check_same_type(const char* op, const Tensor& x, const Tensor& source) {
  TD_CHECK(x.dtype() == source.dtype(), op, ": x and source must have one type; got ", x.dtype(), " and ",
           source.dtype(), ". cast() one of them.");
}

void infer_gather(InferArgs& a) {
  const auto& s = a.attributes<IndexAttrs>();
  const Dims &x = a.in[0].shape(), &index = a.in[1].shape();
  check_index(name_of(s.use), a.in[1]);
  checked_axis(name_of(s.use), s.axis, x.rank());
  bool fits = x.rank() == index.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == s.axis || index[i] <= x[i];
  TD_CHECK(fits, name_of(s.use), ": the index must have x's rank and must not exceed its sizes off axis ",
           s.axis, "; got x ", x, " and index ", index, ".");
  a.add(index, a.in[0].dtype());
}

/// The index of a scatter into `shape`: the same rank, no larger off the axis.
void check_scatter(const char* op, const Dims& index, const ScatterAttrs& s) {
  checked_axis(op, s.axis, s.shape.rank());
  bool fits = index.rank() == s.shape.rank();
  for (int i = 0; fits && i < index.rank(); ++i) fits = i == s.axis || index[i] <= s.shape[i];
  TD_CHECK(fits, op, ": the index must have the output's rank and must not exceed its sizes off axis ",
           s.axis, "; got index ", index, " and output ", s.shape, ".");
}

void infer_scatter(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  const char* op = name_of(s.use);
  check_index(op, a.in[1]);
  TD_CHECK(a.in[0].shape() == a.in[1].shape(), op, ": source and index must have equal shapes; got source ",
           a.in[0].shape(), " and index ", a.in[1].shape(), ".");
  check_scatter(op, a.in[1].shape(), s);
  check_number(op, a.in[0]);
  size_of(s.shape);
  a.add(s.shape, a.in[0].dtype());
}

void infer_last_writer(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  check_index(name_of(s.use), a.in[0]);
  check_scatter(name_of(s.use), a.in[0].shape(), s);
  a.add(s.shape, DType::i64);
}

/// A list of slices: one axis of integers.
void check_list(const char* op, const Tensor& index) {
  check_index(op, index);
  TD_CHECK(index.rank() == 1, op, ": the index must have one axis; got ", index.shape(), ".");
}

void infer_index_select(InferArgs& a) {
  const auto& s = a.attributes<IndexAttrs>();
  check_list(name_of(s.use), a.in[1]);
  Dims shape = a.in[0].shape();
  shape[checked_axis(name_of(s.use), s.axis, shape.rank())] = a.in[1].size();
  size_of(shape);
  a.add(shape, a.in[0].dtype());
}

void infer_index_add(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  const char* op = name_of(s.use);
  check_list(op, a.in[1]);
  check_number(op, a.in[0]);
  Dims want = s.shape;
  want[checked_axis(op, s.axis, want.rank())] = a.in[1].size();
  TD_CHECK(a.in[0].shape() == want, op, ": source must have the output's sizes off axis ", s.axis,
           " and one slice an index; got source ", a.in[0].shape(), ", index ", a.in[1].shape(),
           " and output ", s.shape, ".");
  size_of(s.shape);
  a.add(s.shape, a.in[0].dtype());
}

/// What writes into a target reads its index and source in order while it does.
void check_read(const char* op, const Tensor& target, const Tensor& read, bool may_be_strided = false) {
  TD_CHECK(may_be_strided || read.is_contiguous(), op, ": the op takes a row-major index and source; got ",
           describe(read), ", a view with other strides. clone() it first.");
  TD_CHECK(!share_memory(target, read), op, ": index and source must not lie in the target's memory; got ",
           describe(read), ". clone() it first.");
}

void infer_index_add_into(InferArgs& a) {
  const Tensor &target = a.in[0], &index = a.in[1], &source = a.in[2];
  const auto& s = a.attributes<ScatterAttrs>();
  name_of(s.use);  // refuses what is none
  TD_CHECK(s.axis == 0 && s.shape == target.shape() && target.rank() >= 1,
           "index_add_into: the op must be given the target's shape, with rows, and axis 0; got ", s.shape,
           " and axis ", s.axis, " for ", describe(target), ".");
  check_list("index_add_into", index);
  check_number("index_add_into", source);
  check_same_type("index_add_into", target, source);
  Dims want = target.shape();
  want[0] = index.size();
  TD_CHECK(source.shape() == want,
           "index_add_into: source must have target's sizes and one row an index; got source ",
           source.shape(), ", index ", index.shape(), " and target ", target.shape(), ".");
  TD_CHECK(target.is_contiguous(), "index_add_into: the target must be row-major; got ", describe(target),
           ", a view with other strides. Use index_add().");
  check_read("index_add_into", target, index);
  check_read("index_add_into", target, source);
  a.out.push_back(target.meta());
}

void infer_scatter_into(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  const Tensor &target = a.in[0], &index = a.in[1], &source = a.in[2];
  name_of(s.use);  // refuses what is none
  check_index("scatter_into", index);
  check_scatter("scatter_into", index.shape(), s);
  check_same_type("scatter_into", target, source);
  TD_CHECK(s.shape == target.shape() && source.shape() == index.shape(),
           "scatter_into: the op takes a source of the index's shape, and the target's shape; got source ",
           source.shape(), ", index ", index.shape(), " and shape ", s.shape, " for target ", target.shape(),
           ".");
  check_read("scatter_into", target, index);
  check_read("scatter_into", target, source);
  a.out.push_back(target.meta());
}

/// Slices of source, one an index, for a tensor of `shape`.
void check_slices(const char* op, const Tensor& index, const Tensor& source, Dims shape, int axis) {
  check_list(op, index);
  shape[axis] = index.size();
  TD_CHECK(source.shape() == shape, op, ": source must have the target's sizes off axis ", axis,
           " and one slice an index; got source ", source.shape(), " where ", shape, " is needed.");
}

void infer_index_copy_into(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  name_of(s.use);  // refuses what is none
  const int axis = checked_axis("index_copy_into", s.axis, a.in[0].rank());
  check_slices("index_copy_into", a.in[1], a.in[2], a.in[0].shape(), axis);
  TD_CHECK(s.shape == a.in[0].shape(), "index_copy_into: the op must be given the target's shape; got ",
           s.shape, " for ", describe(a.in[0]), ".");
  check_same_type("index_copy_into", a.in[0], a.in[2]);
  check_read("index_copy_into", a.in[0], a.in[1]);
  check_read("index_copy_into", a.in[0], a.in[2], true);
  a.out.push_back(a.in[0].meta());
}

void infer_ravel(InferArgs& a) {
  const auto& s = a.attributes<RavelAttrs>();
  TD_CHECK(static_cast<int>(a.in.size()) == s.sizes.rank(),
           "ravel_index: there must be one index for each size; got ", a.in.size(), " for ", s.sizes, ".");
  size_of(s.sizes);  // places are counted in 63 bits
  for (const Tensor& index : a.in) {
    check_index(name_of(s.use), index);
    TD_CHECK(index.shape() == a.in[0].shape(), "ravel_index: all indices must have one shape; got ",
             a.in[0].shape(), " and ", index.shape(), ". expand() one of them.");
  }
  a.add(a.in[0].shape(), DType::i64);
}

void infer_one_hot(InferArgs& a) {
  const int64_t classes = a.attributes<OneHotAttrs>().classes;
  check_index("one_hot", a.in[0]);
  TD_CHECK(classes >= 1, "one_hot: there must be at least one class; got ", classes, ".");
  Dims shape = a.in[0].shape();
  shape.push_back(classes);
  a.add(shape, DType::i64);
}

void infer_nonzero(InferArgs& a) { a.add({0, a.in[0].rank()}, DType::i64); }

Tensor index_select_as(const Tensor& x, int64_t axis, const Tensor& index, IndexUse use,
                       int64_t skip = kNoSkip) {
  return apply1(op_index_select(), {x, index}, IndexAttrs{axis, skip, use});
}
Tensor index_add_zeros(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape,
                       IndexUse use, int64_t skip = kNoSkip) {
  return apply1(op_index_add_zeros(), {source, index}, ScatterAttrs{shape, axis, skip, use});
}

Tensors grad_gather(const GradArgs& a) {
  const int64_t axis = a.attributes.as<IndexAttrs>().axis;
  return {scatter_add_zeros(a.grad[0], axis, a.in[1], a.in_meta[0].shape), Tensor()};
}
Tensors grad_scatter(const GradArgs& a) {
  return {gather(a.grad[0], a.attributes.as<ScatterAttrs>().axis, a.in[1]), Tensor()};
}
Tensors grad_index_select(const GradArgs& a) {
  const auto& s = a.attributes.as<IndexAttrs>();
  return {index_add_zeros(a.grad[0], s.axis, a.in[1], a.in_meta[0].shape, s.use, s.skip), Tensor()};
}
Tensors grad_index_add(const GradArgs& a) {
  const auto& s = a.attributes.as<ScatterAttrs>();
  Tensor g = index_select_as(a.grad[0], s.axis, a.in[1], s.use, s.skip);
  if (s.skip >= 0) {  // what was left out
    Dims line = Dims::filled(g.rank(), 1);
    line[static_cast<int>(s.axis)] = a.in[1].size();
    g = where(reshape(equal(a.in[1], s.skip), line), 0, g);
  }
  return {g, Tensor()};
}

/// What the records of the family share. A rule reads the index, input 1.
OpDef indexing(OpDef d) {
  if (d.gradient)
    d.saves_inputs = 2;
  else
    d.not_differentiable = "its result is made of integers";
  d.effects.refuses = true;  // an index out of range
  d.cost = Cost::cheap;
  return d;
}
/// The same for an op that changes its target.
OpDef change(OpDef d) {
  d.effects = Effects::update();
  d.takes_strided = true;  // the target must not be copied
  d = indexing(d);
  d.not_differentiable = "a change in place cannot be differentiated";
  return d;
}

/// The part of source that stands at the places of index.
Tensor cut_to(const char* op, const Tensor& source, const Dims& index) {
  bool fits = source.rank() == index.rank();
  for (int i = 0; fits && i < index.rank(); ++i) fits = index[i] <= source.shape()[i];
  TD_CHECK(fits, op, ": the index must have source's rank and must not exceed its sizes; got source ",
           source.shape(), " and index ", index, ".");
  Tensor part = source;
  for (int i = 0; i < index.rank(); ++i) part = slice(part, i, 0, index[i]);
  return part;
}

/// x with the elements of the flat `values` (or a number) put where winner names one.
Tensor put_winners(const Tensor& x, const Tensor& winner, const Operand& values) {
  const Tensor untouched = less(winner, 0);
  if (!values.tensor()) return masked_fill(x, logical_not(untouched), values);
  const Tensor flat = reshape(*values.tensor(), {values.tensor()->size()});
  if (flat.size() == 0) return clone(x);
  const Tensor chosen = index_select_as(flat, 0, reshape(winner, {winner.size()}), IndexUse::scatter, -1);
  return where(untouched, x, reshape(chosen, x.shape()));
}

/// What is read while the target is written: a copy where it lies in the target's memory.
Tensor unshared(const Tensor& target, const Tensor& t) { return share_memory(target, t) ? clone(t) : t; }

/// A number, or a tensor without axes, as one of x's type.
Tensor value_for(const char* op, const Tensor& x, const Operand& value) {
  if (value.tensor()) {
    TD_CHECK(value.tensor()->rank() == 0, op, ": the value must be a number or a tensor without axes; got ",
             describe(*value.tensor()), ".");
    return cast(*value.tensor(), x.dtype());
  }
  return as_tensor(op, value, x.dtype(), x.device());
}

void check_mask(const char* op, const Tensor& mask, const Tensor& x) {
  TD_CHECK(mask.dtype() == DType::boolean, op, ": the mask must be bool; got ", describe(mask),
           ". Compare it with something first.");
  TD_CHECK(broadcast_shapes(op, mask.shape(), x.shape()) == x.shape(), op,
           ": the mask must broadcast to x's shape; got ", mask.shape(), " for ", x.shape(), ".");
}

Tensor masked_fill_as(const char* op, const Tensor& x, const Tensor& mask, const Operand& value) {
  check_mask(op, mask, x);
  return where(mask, value_for(op, x, value), x);
}

/// The true elements of the mask are numbered; each takes the element of source with its number.
Tensor masked_scatter_as(IndexUse use, const Tensor& x, const Tensor& mask, const Tensor& source) {
  check_mask(name_of(use), mask, x);
  check_same_type(name_of(use), x, source);
  const Tensor flat = reshape(expand(mask, x.shape()), {x.size()});
  const Tensor number = where(flat, sub(cumsum(cast(flat, DType::i64), 0), 1), -1);
  const Tensor chosen = index_select_as(reshape(source, {source.size()}), 0, number, use, -1);
  // On a GPU a number beyond source is reported later, and nothing is put there.
  const Tensor kept = logical_or(less(number, 0), greater_equal(number, source.size()));
  return where(reshape(kept, x.shape()), x, reshape(chosen, x.shape()));
}

void check_defined(const char* op, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors)
    TD_CHECK(t.defined(), op, ": every argument must be a tensor; got an undefined handle.");
}

constexpr CopyMark kByIndex{
    "index",
    "index_copy_into(), scatter_into(), masked_fill_into() and masked_scatter_into() change it "
    "in place; index_put() gives a changed tensor."};
constexpr CopyMark kBySelect{"index_select", "Use index_copy_into()."};
constexpr CopyMark kByGather{"gather", "Use scatter_into()."};
constexpr CopyMark kByTakeAlong{"take_along", "Use scatter_into()."};
constexpr CopyMark kByTake{"take", "Use scatter_into() with the tensor in one axis."};
constexpr CopyMark kByMask{"masked_select", "Use masked_scatter_into() or masked_fill_into()."};

}  // namespace

const char* name_of(IndexUse use) {
  static constexpr const char* kNames[] = {"",
                                           "gather",
                                           "take_along",
                                           "scatter_add_zeros",
                                           "scatter_add",
                                           "scatter",
                                           "index_select",
                                           "index_add",
                                           "embedding",
                                           "index",
                                           "index_put",
                                           "take",
                                           "bincount",
                                           "one_hot",
                                           "index_add_into",
                                           "scatter_into",
                                           "index_copy",
                                           "index_copy_into",
                                           "masked_scatter",
                                           "masked_scatter_into",
                                           "cross_entropy",
                                           "nll_loss",
                                           "multi_margin_loss",
                                           "scatter_reduce",
                                           "ctc_loss",
                                           "lengths",
                                           "lengths",
                                           "binary_cross_entropy",
                                           "binary_cross_entropy"};
  TD_CHECK(static_cast<size_t>(use) < std::size(kNames), "index: the use must lie in 0..",
           std::size(kNames) - 1, "; got ", static_cast<int>(use), ".");
  return kNames[static_cast<size_t>(use)];
}

std::string probability_fault(IndexUse use, int64_t millionths) {
  const double got = millionths == kNotANumber ? NAN : static_cast<double>(millionths) * 1e-6;
  const bool is_target = use == IndexUse::probability_target;
  return str(name_of(use), ": every ", is_target ? "target" : "probability", " must lie in 0..1; got ", got,
             is_target ? ". Scale the targets to 0..1."
                       : ". Apply sigmoid() first, or call binary_cross_entropy_with_logits() instead.");
}

std::string index_fault(IndexUse use, int64_t low, int64_t limit, int64_t got, const std::string& where) {
  if (use == IndexUse::masked_scatter || use == IndexUse::masked_scatter_into)
    return str(name_of(use), ": source must have an element for every true one of the mask; got ", limit,
               " elements and a true one number ", got + 1, where, ".");
  if (use == IndexUse::ctc_labels)
    return str(name_of(use), ": every label must be one of the ", limit,
               " classes other than the blank; got ", got == limit ? "the blank or " : "", got, where,
               ". Leave blanks out of targets.");
  if (use == IndexUse::lengths || use == IndexUse::positive_lengths) {
    const int64_t least = use == IndexUse::positive_lengths ? 1 : 0;
    return str(
        name_of(use), ": every length must be from ", least, " to ", limit - 1 + least,
        ", the size of the padded axis; got ", got + least, where,
        got >= limit ? ". Pad to the longest sample, or cut the length." : ". Leave such samples out.");
  }
  if (use == IndexUse::probability || use == IndexUse::probability_target) return probability_fault(use, got);
  const bool ignores = use == IndexUse::cross_entropy || use == IndexUse::nll_loss;
  if (!ignores && use != IndexUse::multi_margin_loss)
    return str(name_of(use), ": every index must lie in ", low, "..", limit - 1, "; got ", got, where, ".");
  return str(name_of(use), ": every label must name one of the ", limit, " classes, 0..", limit - 1,
             ignores ? ", or be the ignore_index" : "", "; got ", got, where,
             ". Correct the label, or give the model an output for it",
             ignores ? ", or set ignore_index to it." : ".");
}
std::ostream& operator<<(std::ostream& out, IndexUse use) { return out << name_of(use); }

OpDef& op_gather() {
  static OpDef& op =
      define(indexing({.name = "gather",
                       .about = "the elements of an axis that an index of the output's shape names",
                       .inputs = {"x", "index"},
                       .outputs = {"y"},
                       .infer = infer_gather,
                       .gradient = grad_gather,
                       .flops = no_flops}));
  return op;
}
OpDef& op_scatter_add_zeros() {
  static OpDef& op = define(indexing({.name = "scatter_add_zeros",
                                      .about = "zeros with the elements of source added where an index says",
                                      .function = "scatter_add",
                                      .inputs = {"source", "index"},
                                      .outputs = {"y"},
                                      .infer = infer_scatter,
                                      .gradient = grad_scatter,
                                      .flops = no_flops}));
  return op;
}
OpDef& op_index_select() {
  static OpDef& op = define(indexing({.name = "index_select",
                                      .about = "the places of an axis that an index names",
                                      .inputs = {"x", "index"},
                                      .outputs = {"y"},
                                      .infer = infer_index_select,
                                      .gradient = grad_index_select}));
  return op;
}
OpDef& op_index_add_zeros() {
  static OpDef& op = define(indexing({.name = "index_add_zeros",
                                      .about = "zeros with slices of source added where an index says",
                                      .function = "index_add",
                                      .inputs = {"source", "index"},
                                      .outputs = {"y"},
                                      .infer = infer_index_add,
                                      .gradient = grad_index_add}));
  return op;
}
OpDef& op_index_add_into() {
  static OpDef& op = define(change({.name = "index_add_into",
                                    .about = "adds slices of source to target where an index says",
                                    .inputs = {"target", "index", "source"},
                                    .outputs = {"target"},
                                    .infer = infer_index_add_into}));
  return op;
}
OpDef& op_scatter_into() {
  static OpDef& op = define(change({.name = "scatter_into",
                                    .about = "writes elements of source into target where an index says",
                                    .inputs = {"target", "index", "source"},
                                    .outputs = {"target"},
                                    .infer = infer_scatter_into}));
  return op;
}
OpDef& op_index_copy_into() {
  static OpDef& op = define(change({.name = "index_copy_into",
                                    .about = "writes slices of source into target where an index says",
                                    .inputs = {"target", "index", "source"},
                                    .outputs = {"target"},
                                    .infer = infer_index_copy_into}));
  return op;
}
OpDef& op_last_writer() {
  static OpDef& op = define(indexing({.name = "last_writer",
                                      .about = "for each place the last entry of the index that names it",
                                      .function = "",
                                      .inputs = {"index"},
                                      .outputs = {"y"},
                                      .infer = infer_last_writer}));
  return op;
}
OpDef& op_ravel_index() {
  static OpDef& op = define(indexing({.name = "ravel_index",
                                      .about = "one index in place of one for each axis",
                                      .function = "",
                                      .inputs = {1, kMaxRank, "index..."},
                                      .outputs = {"y"},
                                      .infer = infer_ravel}));
  return op;
}
OpDef& op_one_hot() {
  static OpDef& op = define(indexing({.name = "one_hot",
                                      .about = "1 at the place that the index names, else 0",
                                      .inputs = {"index"},
                                      .outputs = {"y"},
                                      .infer = infer_one_hot,
                                      .flops = no_flops}));
  return op;
}
OpDef& op_nonzero() {
  static OpDef& op =
      define(indexing({.name = "nonzero",
                       .about = "the places of all elements that are not 0",
                       .inputs = {"x"},
                       .outputs = {"places"},
                       .infer = infer_nonzero,
                       .data_dependent = "where(condition, a, b) and masked_fill() keep the size."}));
  return op;
}

Tensor gather_as(const Tensor& x, int64_t axis, const Tensor& index, IndexUse use) {
  return apply1(op_gather(), {x, index}, IndexAttrs{normal_axis(name_of(use), axis, x.rank()), kNoSkip, use});
}
Tensor gather(const Tensor& x, int64_t axis, const Tensor& index) {
  return part_of(x, gather_as(x, axis, index, IndexUse::gather), kByGather);
}

Tensor take_along(const Tensor& x, const Tensor& index, int64_t wanted_axis) {
  const int axis = normal_axis("take_along", wanted_axis, x.rank());
  TD_CHECK(x.rank() == index.rank(), "take_along: x and index must have the same rank; got ", x.shape(),
           " and ", index.shape(), ".");
  Dims from = x.shape(), places = index.shape();
  from[axis] = places[axis] = 1;
  from = places = broadcast_shapes("take_along", from, places);
  from[axis] = x.shape()[axis];
  places[axis] = index.shape()[axis];
  return part_of(x,
                 apply1(op_gather(), {expand(x, from), expand(index, places)},
                        IndexAttrs{axis, kNoSkip, IndexUse::take_along}),
                 kByTakeAlong);
}

Tensor scatter_add_zeros(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape) {
  return apply1(op_scatter_add_zeros(), {source, index},
                ScatterAttrs{shape, normal_axis("scatter_add_zeros", axis, shape.rank()), -1,
                             IndexUse::scatter_add_zeros});
}

Tensor scatter(const Tensor& x, int64_t wanted_axis, const Tensor& index, const Operand& source) {
  if (source.tensor() && autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) { return scatter(x, wanted_axis, index, source); }, x,
        *source.tensor());
  const int axis = normal_axis("scatter", wanted_axis, x.rank());
  const Tensor winner =
      apply1(op_last_writer(), {index}, ScatterAttrs{x.shape(), axis, kNoSkip, IndexUse::scatter});
  if (!source.tensor()) return put_winners(x, winner, source);
  check_same_type("scatter", x, *source.tensor());
  const Tensor part = cut_to("scatter", *source.tensor(), index.shape());
  return put_winners(x, winner, part);
}

Tensor scatter_add(const Tensor& x, int64_t wanted_axis, const Tensor& index, const Tensor& source) {
  if (autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) { return scatter_add(x, wanted_axis, index, source); }, x,
        source);
  const int axis = normal_axis("scatter_add", wanted_axis, x.rank());
  check_same_type("scatter_add", x, source);
  const Tensor part = cut_to("scatter_add", source, index.shape());
  return add(x, apply1(op_scatter_add_zeros(), {part, index},
                       ScatterAttrs{x.shape(), axis, kNoSkip, IndexUse::scatter_add}));
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index) {
  return part_of(
      x, index_select_as(x, normal_axis("index_select", axis, x.rank()), index, IndexUse::index_select),
      kBySelect);
}

Tensor index_add(const Tensor& x, int64_t wanted_axis, const Tensor& index, const Tensor& source,
                 const Operand& alpha) {
  if (autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) {
          return index_add(x, wanted_axis, index, source, alpha);
        },
        x, source);
  const int axis = normal_axis("index_add", wanted_axis, x.rank());
  check_same_type("index_add", x, source);
  const Operand factor = factor_for("index_add", "alpha", alpha, x);
  const Tensor scaled = factor.number() == 1 ? source : mul(source, factor);
  return add(x, index_add_zeros(scaled, axis, index, x.shape(), IndexUse::index_add));
}

Tensor index_copy(const Tensor& x, int64_t wanted_axis, const Tensor& index, const Tensor& source) {
  if (autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) { return index_copy(x, wanted_axis, index, source); }, x,
        source);
  const int axis = normal_axis("index_copy", wanted_axis, x.rank());
  check_same_type("index_copy", x, source);
  check_slices("index_copy", index, source, x.shape(), axis);
  const Dims length{x.shape()[axis]};
  const Tensor winner =
      apply1(op_last_writer(), {index}, ScatterAttrs{length, 0, kNoSkip, IndexUse::index_copy});
  const Tensor chosen = index_select_as(source, axis, winner, IndexUse::index_copy, -1);
  Dims line = Dims::filled(x.rank(), 1);
  line[axis] = length[0];
  return where(reshape(less(winner, 0), line), x, chosen);
}

void index_add_into(const Tensor& target, const Tensor& index, const Tensor& source) {
  check_defined("index_add_into", {target, index, source});
  TD_CHECK(target.rank() >= 1, "index_add_into: the target must have rows; got ", describe(target), ".");
  apply1(op_index_add_into(),
         {target, contiguous(unshared(target, index)), contiguous(unshared(target, source))},
         ScatterAttrs{target.shape(), 0, kNoSkip, IndexUse::index_add_into});
}

void scatter_into(const Tensor& target, int64_t wanted_axis, const Tensor& index, const Operand& source) {
  check_defined("scatter_into", {target, index});
  const int axis = normal_axis("scatter_into", wanted_axis, target.rank());
  const Tensor part = source.tensor() ? cut_to("scatter_into", *source.tensor(), index.shape())
                                      : expand(value_for("scatter_into", target, source), index.shape());
  apply1(op_scatter_into(), {target, contiguous(unshared(target, index)), contiguous(unshared(target, part))},
         ScatterAttrs{target.shape(), axis, kNoSkip, IndexUse::scatter_into});
}

void index_copy_into(const Tensor& target, int64_t wanted_axis, const Tensor& index, const Tensor& source) {
  check_defined("index_copy_into", {target, index, source});
  const int axis = normal_axis("index_copy_into", wanted_axis, target.rank());
  apply1(op_index_copy_into(), {target, contiguous(unshared(target, index)), unshared(target, source)},
         ScatterAttrs{target.shape(), axis, kNoSkip, IndexUse::index_copy_into});
}

Tensor one_hot(const Tensor& index, int64_t classes) {
  return apply1(op_one_hot(), {index}, OneHotAttrs{classes});
}

Tensor embedding(const Tensor& weight, const Tensor& index, const EmbeddingOptions& options) {
  TD_CHECK(weight.rank() == 2, "embedding: the weight must be (rows, width); got ", weight.shape(), ".");
  const Dim rows = weight.shape()[0];
  int64_t skip = kNoSkip;
  if (options.padding_idx) {
    skip = *options.padding_idx < 0 ? *options.padding_idx + rows : *options.padding_idx;
    TD_CHECK(skip >= 0 && skip < rows, "embedding: padding_idx must name a row of the weight; got ",
             *options.padding_idx, " for ", weight.shape(), ".");
  }
  Dims shape = index.shape();
  shape.push_back(weight.shape()[1]);
  return reshape(index_select_as(weight, 0, reshape(index, {index.size()}), IndexUse::embedding, skip),
                 shape);
}

namespace {

/// Backwards: the same elements forwards, turned round.
Tensor backward_slice(const Tensor& x, int axis, const Slice& s) {
  const Dim size = x.shape()[axis], step = s.step == INT64_MIN ? INT64_MAX : -s.step;
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, -1, size - 1); };
  const Dim first = s.start ? place(*s.start) : size - 1, stop = s.stop ? place(*s.stop) : -1;
  const Dim more = first > stop ? (first - stop - 1) / step : 0;  // elements after the first
  if (first <= stop) return slice(x, axis, 0, 0);
  return flip(slice(x, axis, first - more * step, first + 1, std::min(step, size)), {axis});
}

Tensor slice_as(const char* op, const Tensor& x, int axis, const Slice& s) {
  TD_CHECK(s.step != 0, op, ": the step of a slice must not be 0; got 0. A negative one goes backwards.");
  if (s.step < 0) return backward_slice(x, axis, s);
  return slice(x, axis, s.start.value_or(0), s.stop.value_or(x.shape()[axis]), s.step);
}

/// The axes that a subscript takes up.
int axes_of(const Subscript& s) {
  if (s.kind == Subscript::all || s.kind == Subscript::fresh) return 0;
  return s.kind == Subscript::tensor && s.indices.dtype() == DType::boolean ? s.indices.rank() : 1;
}

/// x by the index tensors of some of its axes (undefined = the whole axis).
Tensor index_by_tensors(const Tensor& x, const std::vector<Tensor>& by_axis, IndexUse use) {
  Dims shape;  // that the index tensors are broadcast to
  Dims sizes;  // of the axes that they index
  int first = -1, last = -1;
  for (int i = 0; i < x.rank(); ++i) {
    const Tensor& t = by_axis[static_cast<size_t>(i)];
    if (!t.defined()) continue;
    shape = first < 0 ? t.shape() : broadcast_shapes(name_of(use), shape, t.shape());
    sizes.push_back(x.shape()[i]);
    if (first < 0) first = i;
    last = i;
  }
  if (first < 0) return x;
  std::vector<Tensor> indices;
  for (const Tensor& t : by_axis)
    if (t.defined()) indices.push_back(expand(t, shape));
  const Tensor flat = reshape(apply(op_ravel_index(), indices, RavelAttrs{sizes, use})[0], {size_of(shape)});

  // Axes to index that are not neighbours go to the front.
  Tensor y = x;
  if (last - first + 1 != sizes.rank()) {
    Dims order;
    for (const bool indexed : {true, false})
      for (int i = 0; i < x.rank(); ++i)
        if (by_axis[static_cast<size_t>(i)].defined() == indexed) order.push_back(i);
    y = permute(x, order);
    first = 0;
  }
  Dim outer = 1, inner = 1;
  Dims result;
  for (int i = 0; i < first; ++i) {
    outer *= y.shape()[i];
    result.push_back(y.shape()[i]);
  }
  for (const Dim size : shape) result.push_back(size);
  for (int i = first + sizes.rank(); i < y.rank(); ++i) {
    inner *= y.shape()[i];
    result.push_back(y.shape()[i]);
  }
  y = reshape(y, {outer, size_of(sizes), inner});
  return reshape(index_select_as(y, 1, flat, use), result);
}

Tensor index_as(const Tensor& x, const std::vector<Subscript>& subscripts, IndexUse use) {
  int taken = 0, open = 0;
  for (const Subscript& s : subscripts) {
    TD_CHECK(s.kind != Subscript::tensor || s.indices.defined(), name_of(use),
             ": a subscript must be a tensor; got an undefined handle.");
    taken += axes_of(s);
    open += s.kind == Subscript::all;
  }
  TD_CHECK(open <= 1, name_of(use), ": at most one ellipsis may be given; got ", open, ".");
  TD_CHECK(taken <= x.rank(), name_of(use), ": there must be at most one subscript an axis; got ", taken,
           " for shape ", x.shape(), ".");
  Tensor y = x;
  std::vector<Tensor> by_axis;  // of y
  const auto axis = [&] { return static_cast<int>(by_axis.size()); };
  for (const Subscript& s : subscripts) {
    switch (s.kind) {
      case Subscript::number: {
        const Dim size = y.shape()[axis()];
        TD_CHECK(s.at >= -size && s.at < size, name_of(use), ": the subscript must lie in ", -size, "..",
                 size - 1, "; got ", s.at, " for axis ", axis(), " of ", y.shape(), ".");
        y = select(y, axis(), s.at);
        break;
      }
      case Subscript::slice:
        y = slice_as(name_of(use), y, axis(), s.part);
        by_axis.emplace_back();
        break;
      case Subscript::all:
        by_axis.resize(by_axis.size() + static_cast<size_t>(x.rank() - taken));
        break;
      case Subscript::fresh:
        y = unsqueeze(y, axis());
        by_axis.emplace_back();
        break;
      case Subscript::tensor: {
        const Tensor& t = s.indices;
        if (t.dtype() != DType::boolean && t.rank() > 0) {
          by_axis.push_back(t);
          break;
        }
        if (t.dtype() != DType::boolean) {  // a tensor without axes is a number
          std::vector<Tensor> only(static_cast<size_t>(y.rank()));
          only[static_cast<size_t>(axis())] = t;
          y = index_by_tensors(y, only, use);
          break;
        }
        TD_CHECK(t.rank() > 0, name_of(use), ": a mask must have at least one axis; got shape ", t.shape(),
                 ".");
        for (int i = 0; i < t.rank(); ++i)
          TD_CHECK(t.shape()[i] == y.shape()[axis() + i], name_of(use),
                   ": a mask must have the sizes of the axes that it stands for; got ", t.shape(),
                   " at axis ", axis(), " of ", y.shape(), ".");
        refuse_tracing(name_of(use), "where(condition, a, b) and masked_fill() keep the size.");
        for (const Tensor& column : where(t)) by_axis.push_back(column);
        break;
      }
    }
  }
  by_axis.resize(static_cast<size_t>(y.rank()));
  return index_by_tensors(y, by_axis, use);
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Subscript>& subscripts) {
  return part_of(x, index_as(x, subscripts, IndexUse::index), kByIndex);
}

Tensor index_put(const Tensor& x, const std::vector<Subscript>& subscripts, const Operand& values,
                 bool accumulate) {
  if (values.tensor() && autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& values) { return index_put(x, subscripts, values, accumulate); },
        x, *values.tensor());
  // The same subscripts on the elements' numbers say where the values go.
  Tensor places;
  {
    const NoGrad off;
    places = index_as(reshape(arange(x.size(), DType::i64, x.device()), x.shape()), subscripts,
                      IndexUse::index_put);
  }
  const Dims shape = places.shape();
  places = reshape(places, {places.size()});
  if (places.size() == 0) return clone(x);
  const ScatterAttrs all{Dims{x.size()}, 0, kNoSkip, IndexUse::index_put};
  const Tensor flat = reshape(x, {x.size()});
  if (!values.tensor()) {
    if (!accumulate)
      return reshape(put_winners(flat, apply1(op_last_writer(), {places}, all), values), x.shape());
    const Tensor times =
        index_add_zeros(ones({places.size()}, x.dtype(), x.device()), 0, places, all.shape, all.use);
    return reshape(add(flat, mul(times, values)), x.shape());
  }
  check_same_type("index_put", x, *values.tensor());
  TD_CHECK(broadcast_shapes("index_put", values.tensor()->shape(), shape) == shape,
           "index_put: the values must broadcast to the places' shape; got ", values.tensor()->shape(),
           " for ", shape, ".");
  const Tensor source = reshape(expand(*values.tensor(), shape), {places.size()});
  return reshape(accumulate ? add(flat, index_add_zeros(source, 0, places, all.shape, all.use))
                            : put_winners(flat, apply1(op_last_writer(), {places}, all), source),
                 x.shape());
}

Tensor take(const Tensor& x, const Tensor& index) {
  check_index("take", index);
  return part_of(x, index_as(reshape(x, {x.size()}), {index}, IndexUse::take), kByTake);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  return masked_fill_as("masked_fill", x, mask, value);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  if (autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) { return masked_scatter(x, mask, source); }, x, source);
  return masked_scatter_as(IndexUse::masked_scatter, x, mask, source);
}

void masked_fill_into(const Tensor& target, const Tensor& mask, const Operand& value) {
  check_defined("masked_fill_into", {target, mask, value.tensor() ? *value.tensor() : target});
  const Tensor in[] = {target, value.tensor() ? *value.tensor() : target};
  check_in_place("masked_fill_into", in);
  assign(target, masked_fill_as("masked_fill_into", target, mask, value));
}

void masked_scatter_into(const Tensor& target, const Tensor& mask, const Tensor& source) {
  check_defined("masked_scatter_into", {target, mask, source});
  const Tensor in[] = {target, source};
  check_in_place("masked_scatter_into", in);
  assign(target, masked_scatter_as(IndexUse::masked_scatter_into, target, mask, source));
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  refuse_tracing("masked_select", "masked_fill() and where(condition, a, b) keep the size.");
  TD_CHECK(mask.dtype() == DType::boolean, "masked_select: the mask must be bool; got ", describe(mask),
           ". Compare it with something first.");
  const Dims shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const Dims line{size_of(shape)};
  const Tensor places = nonzero(reshape(expand(mask, shape), line));
  const Tensor found = index_select_as(reshape(expand(x, shape), line), 0, reshape(places, {places.size()}),
                                       IndexUse::index_select);
  return part_of(x, found, kByMask);
}

Tensor nonzero(const Tensor& x) { return apply1(op_nonzero(), {x}); }

std::vector<Tensor> where(const Tensor& condition) {
  refuse_tracing("where", "where(condition, a, b) and masked_fill() keep the size.");
  const Tensor places = nonzero(condition);
  std::vector<Tensor> columns;
  for (int i = 0; i < condition.rank(); ++i) columns.push_back(select(places, 1, i));
  return columns;
}

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  TD_CHECK(is_integer(x.dtype()) && x.dtype() != DType::u64 && x.rank() == 1,
           "bincount: x must have one axis of integers; got ", describe(x), ".");
  TD_CHECK(options.min_length >= 0 && options.length.value_or(0) >= 0,
           "bincount: the number of bins must not be negative; got ",
           options.length.value_or(options.min_length), ".");
  TD_CHECK(!options.weights.defined() || options.weights.shape() == x.shape(),
           "bincount: one weight a value is needed; got ", x.shape(), " values and ", options.weights.shape(),
           " weights.");
  const Tensor bins = x.dtype() == DType::i32 ? x : cast(x, DType::i64);
  Dim length = options.length.value_or(options.min_length);
  if (!options.length) {
    refuse_tracing("bincount", "Give it a length.");
    if (x.size() > 0) {
      const NoGrad off;
      const int64_t least = min(bins).item<int64_t>(), most = max(bins).item<int64_t>();
      TD_CHECK(least >= 0, "bincount: values must not be negative; got ", least, ".");
      TD_CHECK(most < INT64_MAX, "bincount: values must be counted in memory; got ", most, ".");
      length = std::max(length, most + 1);
    }
  }
  const Tensor weights =
      options.weights.defined() ? options.weights : ones({x.size()}, DType::i64, x.device());
  return index_add_zeros(weights, 0, bins, {length}, IndexUse::bincount);
}

}  // namespace tandem
