#include "tandem/ops/reduce.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// All axes where none are given; ascending, without repeats.
Dims normal_axes(const char* op, const Dims& axes, int rank) {
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

void infer_sum(InferArgs& a) {
  const auto& r = a.attributes<ReduceAttrs>();
  const DType dtype = a.in[0].dtype();
  a.add(reduced_shape(a.in[0].shape(), r.axes, r.keep), is_floating(dtype) ? dtype : DType::i64);
}

template <char which>
void infer_extreme(InferArgs& a) {
  constexpr const char* op = which == 'M' ? "max" : which == 'm' ? "min" : "argmax";
  const auto& r = a.attributes<ReduceAttrs>();
  for (Dim axis : r.axes)
    TD_CHECK(a.in[0].shape()[static_cast<int>(axis)] > 0, op,
             ": there is no largest or smallest of no elements; got ", a.in[0].shape(), " over axes ", r.axes,
             ".");
  a.add(reduced_shape(a.in[0].shape(), r.axes, r.keep), which == 'a' ? DType::i64 : a.in[0].dtype());
}

/// A reduced tensor with its axes put back and stretched to the input's shape.
Tensor stretched(const Tensor& t, const GradArgs& a) {
  const auto& r = a.attributes.as<ReduceAttrs>();
  const Dims& shape = a.in_meta[0].shape;
  return expand(reshape(t, reduced_shape(shape, r.axes, true)), shape);
}

/// Equal winners share the gradient.
Tensors grad_extreme(const GradArgs& a) {
  const auto& r = a.attributes.as<ReduceAttrs>();
  const Tensor winners = cast(equal(a.in[0], stretched(a.out[0], a)), a.in_meta[0].dtype);
  return {winners * stretched(a.grad[0] / sum(winners, r.axes, r.keep), a)};
}

OpDef& define_reduction(const char* name, void (*infer)(InferArgs&), GradRule gradient, uint32_t saves_in,
                        uint32_t saves_out, const char* why_not = nullptr) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.gradient = gradient;
  d.not_differentiable = why_not;
  d.saves_inputs = saves_in;
  d.saves_outputs = saves_out;
  d.takes_strided = true;
  d.cost = Cost::cheap;
  return define(d);
}

Tensor reduce(const OpDef& op, const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined(), op.name, ": x must be a tensor; got an undefined handle.");
  return apply1(op, {x}, ReduceAttrs{normal_axes(op.name, axes, x.rank()), keep});
}

}  // namespace

OpDef& op_sum() {
  static OpDef& op = define_reduction(
      "sum", infer_sum, [](const GradArgs& a) { return Tensors{stretched(a.grad[0], a)}; }, 0, 0);
  return op;
}
OpDef& op_max() {
  static OpDef& op = define_reduction("max", infer_extreme<'M'>, grad_extreme, 1, 1);
  return op;
}
OpDef& op_min() {
  static OpDef& op = define_reduction("min", infer_extreme<'m'>, grad_extreme, 1, 1);
  return op;
}
OpDef& op_argmax() {
  static OpDef& op = define_reduction("argmax", infer_extreme<'a'>, nullptr, 0, 0, "its result is an index");
  return op;
}

Tensor sum(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_sum(), x, axes, keep); }
Tensor max(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_max(), x, axes, keep); }
Tensor min(const Tensor& x, const Dims& axes, bool keep) { return reduce(op_min(), x, axes, keep); }

Tensor mean(const Tensor& x, const Dims& axes, bool keep) {
  TD_CHECK(x.defined() && is_floating(x.dtype()),
           "mean: the element type must be f64, f32, bf16 or f16; got ", describe(x), ". cast() it first.");
  const Tensor total = sum(x, axes, keep);
  const double count = total.size() ? static_cast<double>(x.size()) / static_cast<double>(total.size()) : 1.0;
  return total / count;
}

Tensor argmax(const Tensor& x, int64_t axis, bool keep) {
  return apply1(op_argmax(), {x}, ReduceAttrs{Dims{normal_axis("argmax", axis, x.rank())}, keep});
}

}  // namespace tandem
