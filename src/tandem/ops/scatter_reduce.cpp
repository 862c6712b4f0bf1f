#include "tandem/ops/scatter_reduce.h"

#include <cmath>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/define.h"
#include "tandem/ops/random.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

constexpr const char* kName = "scatter_reduce";

void infer_scatter_reduce(InferArgs& a) {
  const Tensor &x = a.in[0], &source = a.in[1], &index = a.in[2];
  const auto& s = a.attributes<ScatterReduceAttrs>();
  const int axis = checked_axis(kName, s.axis, x.rank());
  TD_CHECK(s.reduction == 1 || s.reduction == 3 || s.reduction == 4, kName,
           ": the op's reduction must be 1 (prod), 3 (amax) or 4 (amin); got ", s.reduction, ".");
  TD_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, kName,
           ": the index must be i64 or i32; got ", describe(index), ". cast() it first.");
  TD_CHECK(x.dtype() == source.dtype() && x.dtype() != DType::boolean, kName,
           ": x and source must have one type of numbers; got ", x.dtype(), " and ", source.dtype(),
           ". cast() one of them.");
  bool fits = index.rank() == x.rank() && source.shape() == index.shape();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.shape()[i] <= x.shape()[i];
  TD_CHECK(fits, kName,
           ": source must have the index's shape, and the index x's rank and no larger sizes off axis ", axis,
           "; got x ", x.shape(), ", source ", source.shape(), " and index ", index.shape(), ".");
  a.add(x.shape(), x.dtype());
}

/// 16-bit floats count and divide in f32, integers in 64 bits.
Tensor widened(const Tensor& x) {
  if (is_floating(x.dtype())) return bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x;
  return x.dtype() == DType::u64 ? x : cast(x, DType::i64);
}

Tensor total(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape) {
  return apply1(op_scatter_add_zeros(), {source, index},
                ScatterAttrs{shape, axis, kNoSkip, IndexUse::scatter_reduce});
}
Tensor spread(const Tensor& x, int64_t axis, const Tensor& index) {
  return without_mark(gather_as(x, axis, index, IndexUse::scatter_reduce));
}
Tensor reduced(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source, int64_t reduction) {
  return apply1(op_scatter_reduce(), {x, source, index}, ScatterReduceAttrs{axis, reduction});
}

/// Equal winners share the gradient.
Tensors grad_extreme(const GradArgs& a, int64_t axis) {
  const Tensor &x = a.in[0], &source = a.in[1], &index = a.in[2], &out = a.out[0];
  const Tensor won = equal(x, out), source_won = equal(source, spread(out, axis, index));
  const Tensor g = widened(a.grad[0]);
  const Tensor winners = cast(won, g.dtype()) + total(cast(source_won, g.dtype()), axis, index, x.shape());
  const Tensor share = cast(g / winners, x.dtype());
  return {a.needs[0] ? where(won, share, 0) : Tensor(),
          a.needs[1] ? where(source_won, spread(share, axis, index), 0) : Tensor(), Tensor()};
}

/// The product of each element and of those before it (after it: `reverse`) along an axis, back to the first one where `begins` is
/// true. In log2(n) rounds: after each, an element holds the product of twice as many. What is behind a beginning is replaced by 1 before
/// it is multiplied, so that an infinity or a NaN of one piece reaches no other, nor do their gradients.
Tensor products_of_pieces(Tensor x, Tensor begins, int64_t axis, bool reverse) {
  for (Dim step = 1; step < x.size(static_cast<int>(axis)); step *= 2) {
    x = x * where(begins, 1, shifted(x, axis, reverse, 1, step));
    begins = logical_or(begins, shifted(begins, axis, reverse, 1, step));
  }
  return x;
}

/// For each element of source the product of the others of its place: sorted by place, of those before it times those after it.
/// Nothing is divided, so that derivatives of any order are right where elements are zero.
Tensor product_of_others(const Tensor& source, int64_t axis, const Tensor& index) {
  const Dim n = index.size(axis);
  if (source.size() == 0) return source;
  const Tensor order = argsort(index, axis), place = gather(index, axis, order),
               x = gather(source, axis, order);
  Dims edge = index.shape();
  edge[static_cast<int>(axis)] = 1;
  const Tensor goes_on = concat({zeros(edge, DType::boolean, x.device()),
                                 equal(slice(place, axis, 1, n), slice(place, axis, 0, n - 1))},
                                axis);
  const auto products = [&](const Tensor& same, bool reverse) {
    return products_of_pieces(where(same, shifted(x, axis, reverse, 1), 1), logical_not(same), axis, reverse);
  };
  const Tensor before = products(goes_on, false), after = products(shifted(goes_on, axis, true, 0), true);
  return scatter_add_zeros(before * after, axis, order, index.shape());
}

Tensors grad_prod(const GradArgs& a, int64_t axis) {
  const Tensor &x = a.in[0], &source = a.in[1], &index = a.in[2], &g = a.grad[0];
  const auto by_x = [&] {
    return g * reduced(ones_like(x), axis, index, source, static_cast<int64_t>(ScatterReduction::prod));
  };
  const auto by_source = [&] {
    const Tensor others = product_of_others(widened(source), axis, index);
    return cast(spread(widened(g) * widened(x), axis, index) * others, source.dtype());
  };
  return {a.needs[0] ? by_x() : Tensor(), a.needs[1] ? by_source() : Tensor(), Tensor()};
}

Tensors grad_scatter_reduce(const GradArgs& a) {
  const auto& s = a.attributes.as<ScatterReduceAttrs>();
  return static_cast<ScatterReduction>(s.reduction) == ScatterReduction::prod ? grad_prod(a, s.axis)
                                                                              : grad_extreme(a, s.axis);
}

/// What changes nothing: x at the places where only source counts.
double neutral(ScatterReduction reduction) {
  if (reduction == ScatterReduction::prod) return 1;
  if (reduction != ScatterReduction::amax && reduction != ScatterReduction::amin) return 0;
  return reduction == ScatterReduction::amax ? -HUGE_VAL : HUGE_VAL;  // full() cuts it to the type's range
}

}  // namespace

OpDef& op_scatter_reduce() {
  static OpDef& op =
      define(OpDef{.name = "scatter_reduce",
                   .about = "x with elements of source taken in where an index says: products, extremes",
                   .inputs = {"x", "source", "index"},
                   .outputs = {"y"},
                   .infer = infer_scatter_reduce,
                   .gradient = grad_scatter_reduce,
                   .saves_inputs = 0b111,
                   .saves_outputs = 1,
                   .effects = {.refuses = true},  // an index out of range
                   .cost = Cost::cheap});
  return op;
}

Tensor scatter_reduce(const Tensor& x, int64_t wanted_axis, const Tensor& index, const Tensor& source,
                      ScatterReduction reduction, bool include_self) {
  if (autocast_is_on())
    return as_one_op(
        Precision::widest,
        [&](const Tensor& x, const Tensor& source) {
          return scatter_reduce(x, wanted_axis, index, source, reduction, include_self);
        },
        x, source);
  TD_CHECK(x.defined() && index.defined() && source.defined(), kName,
           ": x, index and source must be tensors; got an undefined handle.");
  TD_CHECK(reduction <= ScatterReduction::amin, kName,
           ": the reduction must be sum, prod, mean, amax or amin; got number ", static_cast<int>(reduction),
           ".");
  const int axis = normal_axis(kName, wanted_axis, x.rank());
  TD_CHECK(x.dtype() == source.dtype() && x.dtype() != DType::boolean, kName,
           ": x and source must have one type of numbers; got ", x.dtype(), " and ", source.dtype(),
           ". cast() one of them.");
  bool fits = source.rank() == index.rank();
  for (int i = 0; fits && i < index.rank(); ++i) fits = index.shape()[i] <= source.shape()[i];
  TD_CHECK(fits, kName, ": the index must have source's rank and must not exceed its sizes; got source ",
           source.shape(), " and index ", index.shape(), ".");
  Tensor part = source;
  for (int i = 0; i < index.rank(); ++i) part = slice(part, i, 0, index.shape()[i]);

  const bool is_mean = reduction == ScatterReduction::mean;
  Tensor count;  // of the elements that go to each place
  if (is_mean || !include_self)
    count = total(ones(index.shape(), DType::i64, x.device()), axis, index, x.shape());
  const Tensor neutral_value = full({}, neutral(reduction), x.dtype(), x.device());
  const Tensor start = include_self ? x : where(greater(count, 0), neutral_value, x);
  if (reduction == ScatterReduction::sum) return start + total(part, axis, index, x.shape());
  if (!is_mean) return reduced(start, axis, index, part, static_cast<int64_t>(reduction));
  const Tensor sum = widened(start) + total(widened(part), axis, index, x.shape());
  const Tensor divisor = include_self ? count + 1 : maximum(count, 1);
  const Tensor number = cast(divisor, sum.dtype());
  return cast(is_floating(x.dtype()) ? sum / number : floor_divide(sum, number), x.dtype());
}

}  // namespace tandem
