#include "tandem/ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

Dims reduced_shape(const Dims& shape, const Dims& axes, bool keep) {
  Dims out;
  int at = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = at < axes.rank() && axes[at] == i;
    if (reduced) ++at;
    if (!reduced || keep) out.push_back(reduced ? 1 : shape[i]);
  }
  return out;
}

/// The attributes, with axes that the kernels can walk over.
const ReduceAttrs& checked_attributes(const InferArgs& a) {
  const auto& r = a.attributes<ReduceAttrs>();
  for (int i = 0; i < r.axes.rank(); ++i)
    TD_CHECK(r.axes[i] >= 0 && r.axes[i] < a.in[0].rank() && (i == 0 || r.axes[i - 1] < r.axes[i]), a.op,
             ": the axes of the op must lie in 0..", a.in[0].rank() - 1, " and increase; got ", r.axes,
             " for ", a.in[0].shape(), ". Count from the first axis, 0, and name each once.");
  return r;
}

void infer_prod(InferArgs& a) {
  const auto& r = checked_attributes(a);
  const DType dtype = a.in[0].dtype();
  TD_CHECK(is_floating(dtype) || dtype == DType::i64, a.op,
           ": the element type must be floating or i64; got ", dtype, ". cast() it to i64 first.");
  a.add(reduced_shape(a.in[0].shape(), r.axes, r.keep), dtype);
}

void infer_sum(InferArgs& a) {
  const auto& r = checked_attributes(a);
  const DType dtype = a.in[0].dtype();
  const bool widens = r.wide && bytes_of(dtype) == 2;
  a.add(reduced_shape(a.in[0].shape(), r.axes, r.keep), !is_floating(dtype) ? DType::i64
                                                        : widens            ? DType::f32
                                                                            : dtype);
}

template <bool is_index>
void infer_extreme(InferArgs& a) {
  const auto& r = checked_attributes(a);
  for (Dim axis : r.axes)
    TD_CHECK(a.in[0].shape()[static_cast<int>(axis)] > 0, a.op,
             ": there is no largest or smallest of no elements; got ", a.in[0].shape(), " over axes ", r.axes,
             ".");
  a.add(reduced_shape(a.in[0].shape(), r.axes, r.keep), is_index ? DType::i64 : a.in[0].dtype());
}

/// A reduced tensor with its axes put back and stretched to the input's shape.
Tensor stretched(const Tensor& t, const GradArgs& a) {
  const auto& r = a.attributes.as<ReduceAttrs>();
  const Dims& shape = a.in_meta[0].shape;
  return expand(reshape(t, reduced_shape(shape, r.axes, true)), shape);
}

/// The sum, of bf16 and f16 in f32.
Tensor wide_sum(const Tensor& x, const Dims& axes, bool keep) {
  return apply1(op_sum(), {x}, ReduceAttrs{axes, keep, is_floating(x.dtype()) && bytes_of(x.dtype()) == 2});
}

Tensors grad_sum(const GradArgs& a) { return {cast(stretched(a.grad[0], a), a.in_meta[0].dtype)}; }

/// Equal winners share the gradient.
Tensors grad_extreme(const GradArgs& a) {
  const auto& r = a.attributes.as<ReduceAttrs>();
  const Tensor winners = cast(equal(a.in[0], stretched(a.out[0], a)), a.in_meta[0].dtype);
  const Tensor share = wide_sum(winners, r.axes, r.keep);  // 16 bits may not hold the number of winners
  return {winners * stretched(cast(cast(a.grad[0], share.dtype()) / share, winners.dtype()), a)};
}

/// For each element the product of the others: of those before it times those after it.
Tensors grad_prod(const GradArgs& a) {
  const auto& r = a.attributes.as<ReduceAttrs>();
  const Dims& shape = a.in_meta[0].shape;
  Dims order, inverse = Dims::filled(shape.rank(), 0), permuted;
  for (int pass = 0, kept = 0; pass < 2; ++pass)
    for (int i = 0; i < shape.rank(); ++i) {
      const bool reduced = std::find(r.axes.begin(), r.axes.end(), i) != r.axes.end();
      if (reduced != (pass == 1)) continue;
      inverse[i] = kept++;
      order.push_back(i);
      permuted.push_back(shape[i]);
    }
  const Dim n = reduced_count(shape, r.axes);
  const Tensor rows = reshape(permute(a.in[0], order), {n ? size_of(shape) / n : 0, n});
  const Tensor others = shifted(cumprod(rows, 1), 1, false, 1) * shifted(cumprod(rows, 1, true), 1, true, 1);
  return {stretched(a.grad[0], a) * permute(reshape(others, permuted), inverse)};
}

/// What the records of the family share.
OpDef reduction(OpDef d) {
  d.takes_strided = true;
  d.cost = Cost::cheap;
  return d;
}

Tensor reduce(const OpDef& op, const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined(), op.name, ": x must be a tensor; got an undefined handle.");
  return apply1(op, {x}, ReduceAttrs{reduced_axes(op.name, axes, x.rank()), keep});
}

}  // namespace

Dims reduced_axes(const char* op, const Dims& axes, int rank) {
  Dims out;
  unsigned chosen = 0;
  for (Dim axis : axes) {
    const int a = normal_axis(op, axis, rank);
    TD_CHECK(!(chosen >> a & 1), op, ": each axis may be named once; got ", axes, ".");
    chosen |= 1u << a;
  }
  for (int i = 0; i < rank; ++i)
    if (axes.rank() == 0 || (chosen >> i & 1)) out.push_back(i);
  return out;
}

Dim reduced_count(const Dims& shape, const Dims& axes) {
  Dim count = 1;
  for (Dim axis : axes) count *= shape[static_cast<int>(axis)];
  return count;
}

OpDef& op_sum() {
  static OpDef& op = define(reduction({.name = "sum",
                                       .about = "the sum over axes",
                                       .inputs = {"x"},
                                       .outputs = {"y"},
                                       .infer = infer_sum,
                                       .gradient = grad_sum,
                                       .precision = Precision::full}));
  return op;
}
OpDef& op_max() {
  static OpDef& op = define(reduction({.name = "max",
                                       .about = "the largest element over axes",
                                       .inputs = {"x"},
                                       .outputs = {"y"},
                                       .infer = infer_extreme<false>,
                                       .gradient = grad_extreme,
                                       .saves_inputs = 1,
                                       .saves_outputs = 1}));
  return op;
}
OpDef& op_min() {
  static OpDef& op = define(reduction({.name = "min",
                                       .about = "the smallest element over axes",
                                       .inputs = {"x"},
                                       .outputs = {"y"},
                                       .infer = infer_extreme<false>,
                                       .gradient = grad_extreme,
                                       .saves_inputs = 1,
                                       .saves_outputs = 1}));
  return op;
}
OpDef& op_argmax() {
  static OpDef& op = define(reduction({.name = "argmax",
                                       .about = "the place of the largest element of an axis",
                                       .inputs = {"x"},
                                       .outputs = {"y"},
                                       .infer = infer_extreme<true>,
                                       .not_differentiable = "its result is an index"}));
  return op;
}

OpDef& op_prod() {
  static OpDef& op = define(reduction({.name = "prod",
                                       .about = "the product over axes",
                                       .inputs = {"x"},
                                       .outputs = {"y"},
                                       .infer = infer_prod,
                                       .gradient = grad_prod,
                                       .saves_inputs = 1,
                                       .precision = Precision::full}));
  return op;
}

Tensor sum(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_sum(), x, axes, keep); }
Tensor max(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_max(), x, axes, keep); }
Tensor min(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_min(), x, axes, keep); }

Tensor mean(const Tensor& x, const Dims& axes, bool keep) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return mean(x, axes, keep); }, x);
  TD_CHECK(x.defined() && is_floating(x.dtype()),
           "mean: the element type must be f64, f32, bf16 or f16; got ", describe(x), ". cast() it first.");
  const Tensor total = wide_sum(x, reduced_axes("mean", axes, x.rank()), keep);
  const double count = total.size() ? static_cast<double>(x.size()) / static_cast<double>(total.size()) : 1.0;
  return cast(total / count, x.dtype());
}

Tensor argmax(const Tensor& x, int64_t axis, bool keep) {
  TD_CHECK(x.defined(), "argmax: x must be a tensor; got an undefined handle.");
  return apply1(op_argmax(), {x}, ReduceAttrs{Dims{normal_axis("argmax", axis, x.rank())}, keep});
}

Tensor argmin(const Tensor& x, int64_t axis, bool keep) {
  TD_CHECK(x.defined(), "argmin: x must be a tensor; got an undefined handle.");
  const int at = normal_axis("argmin", axis, x.rank());
  TD_CHECK(x.shape()[at] > 0, "argmin: there is no smallest of no elements; got ", x.shape(), " over axis ",
           at, ".");
  // The first NaN, or the first that equals the smallest.
  return argmax(logical_or(not_equal(x, x), equal(x, min(x, {at}, true))), at, keep);
}

Tensor prod(const Tensor& x, const Dims& axes, bool keep) {
  return reduce(op_prod(), x.defined() && !is_floating(x.dtype()) ? cast(x, DType::i64) : x, axes, keep);
}

namespace {

/// Steps in between are taken in f32 where x has 16 bits.
Tensor widened(const Tensor& x) { return bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x; }

/// x^p for x >= 0, with a gradient of 0 at 0.
Tensor power(const Tensor& x, double p) {
  const Tensor is_zero = equal(x, 0), safe = where(is_zero, 1, x);
  return where(is_zero, 0, p == 0.5 ? sqrt(safe) : pow(safe, p));
}

Tensor variance(const char* op, const Tensor& x, const Dims& axes, bool keep, double correction) {
  check_floating(op, x);
  const Dims over = reduced_axes(op, axes, x.rank());
  const Tensor wide = widened(x), away = wide - mean(wide, over, true);
  const double count = static_cast<double>(reduced_count(x.shape(), over));
  return sum(away * away, over, keep) / std::max(0.0, count - correction);
}

}  // namespace

Tensor var(const Tensor& x, const Dims& axes, bool keep, double correction) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return var(x, axes, keep, correction); }, x);
  return cast(variance("var", x, axes, keep, correction), x.dtype());
}
Tensor stddev(const Tensor& x, const Dims& axes, bool keep, double correction) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return stddev(x, axes, keep, correction); }, x);
  return cast(power(variance("stddev", x, axes, keep, correction), 0.5), x.dtype());
}

Tensor norm(const Tensor& x, double p, const Dims& axes, bool keep) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return norm(x, p, axes, keep); }, x);
  check_floating("norm", x);
  TD_CHECK(p == p, "norm: p must be a number; got NaN.");
  const Dims over = reduced_axes("norm", axes, x.rank());
  const Tensor wide = widened(x);
  Tensor result;
  if (std::isinf(p)) {
    TD_CHECK(reduced_count(x.shape(), over) > 0, "norm: there is no largest or smallest of no elements; got ",
             x.shape(), " over axes ", over, ".");
    result = p > 0 ? max(abs(wide), over, keep) : min(abs(wide), over, keep);
  } else if (p == 0) {
    result = sum(where(equal(wide, 0), sign(wide), 1), over, keep);  // sign: 0 there, and its gradient too
  } else if (p == 1) {
    result = sum(abs(wide), over, keep);
  } else if (p == 2) {
    result = power(sum(wide * wide, over, keep), 0.5);
  } else {
    result = power(sum(p > 0 ? power(abs(wide), p) : pow(abs(wide), p), over, keep), 1 / p);
  }
  return cast(result, x.dtype());
}

Tensor logsumexp(const Tensor& x, const Dims& axes, bool keep) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return logsumexp(x, axes, keep); }, x);
  check_floating("logsumexp", x);
  const Dims over = reduced_axes("logsumexp", axes, x.rank());
  const Tensor wide = widened(x);
  if (reduced_count(x.shape(), over) == 0) return cast(log(sum(exp(wide), over, keep)), x.dtype());
  // What is taken out beforehand is a constant; an infinite one stays in, where exp and log treat it rightly.
  const Tensor top = max(wide.detach(), over, true);
  const Tensor out = where(less(abs(top), HUGE_VAL), top, 0);
  const Tensor rest = log(sum(exp(wide - out), over, keep));
  return cast(rest + reshape(out, rest.shape()), x.dtype());
}

namespace {

/// bool. Compared with the number 0, bools would become i64 first, eight times as large.
Tensor is_nonzero(const Tensor& x) { return x.dtype() == DType::boolean ? x : not_equal(x, 0); }
Tensor is_zero(const Tensor& x) { return x.dtype() == DType::boolean ? logical_not(x) : equal(x, 0); }

}  // namespace

Tensor count_nonzero(const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined(), "count_nonzero: x must be a tensor; got an undefined handle.");
  return sum(is_nonzero(x), reduced_axes("count_nonzero", axes, x.rank()), keep);
}
Tensor any(const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined(), "any: x must be a tensor; got an undefined handle.");
  return greater(sum(is_nonzero(x), reduced_axes("any", axes, x.rank()), keep), 0);
}
Tensor all(const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined(), "all: x must be a tensor; got an undefined handle.");
  return equal(sum(is_zero(x), reduced_axes("all", axes, x.rank()), keep), 0);
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  TD_CHECK(a.defined() && b.defined(), "allclose: a and b must be tensors; got an undefined handle.");
  TD_CHECK(rtol >= 0 && atol >= 0, "allclose: rtol and atol must not be negative; got ", rtol, " and ", atol,
           ".");
  broadcast_shapes("allclose", a.shape(), b.shape());
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}

}  // namespace tandem
