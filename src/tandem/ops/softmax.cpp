#include "tandem/ops/softmax.h"

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void infer_softmax(InferArgs& a) {
  check_floating(a.op, a.in[0]);
  checked_axis(a.op, a.attributes<AxisAttrs>().axis, a.in[0].rank());
  a.add(a.in[0].shape(), a.in[0].dtype());
}

/// One kernel instead of four ops.
Tensors grad_softmax(const GradArgs& a) {
  return {apply1(op_softmax_gradient(), {a.grad[0], a.out[0]}, a.attributes)};
}
Tensors grad_log_softmax(const GradArgs& a) {
  return {apply1(op_log_softmax_gradient(), {a.grad[0], a.out[0]}, a.attributes)};
}

void infer_gradient(InferArgs& a) {
  check_like(a.op, "the output of the forward op", a.in[1], a.in[0]);
  infer_softmax(a);
}

Tensors second_softmax(const GradArgs& a) {
  const Dims axis{a.attributes.as<AxisAttrs>().axis};
  const Tensor &g = a.in[0], &y = a.in[1], &u = a.grad[0];
  const Tensor uy = sum(u * y, axis, true);
  return {y * (u - uy), a.needs[1] ? u * (g - sum(g * y, axis, true)) - g * uy : Tensor()};
}
Tensors second_log_softmax(const GradArgs& a) {
  const Dims axis{a.attributes.as<AxisAttrs>().axis};
  const Tensor p = a.grad[0] * exp(a.in[1]);
  return {a.grad[0] - sum(p, axis, true), a.needs[1] ? neg(p * sum(a.in[0], axis, true)) : Tensor()};
}

}  // namespace

OpDef& op_softmax() {
  static OpDef& op = define(OpDef{.name = "softmax",
                                  .about = "exp(x) over its sum along an axis",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_softmax,
                                  .gradient = grad_softmax,
                                  .saves_outputs = 1,
                                  .precision = Precision::full,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_log_softmax() {
  static OpDef& op = define(OpDef{.name = "log_softmax",
                                  .about = "the logarithm of softmax",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_softmax,
                                  .gradient = grad_log_softmax,
                                  .saves_outputs = 1,
                                  .precision = Precision::full,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_softmax_gradient() {
  static OpDef& op = define(OpDef{.name = "softmax_gradient",
                                  .about = "the gradient of softmax",
                                  .function = "",
                                  .inputs = {"g", "y"},
                                  .outputs = {"x_gradient"},
                                  .infer = infer_gradient,
                                  .gradient = second_softmax,
                                  .saves_inputs = 0b11,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_log_softmax_gradient() {
  static OpDef& op = define(OpDef{.name = "log_softmax_gradient",
                                  .about = "the gradient of log_softmax",
                                  .function = "",
                                  .inputs = {"g", "y"},
                                  .outputs = {"x_gradient"},
                                  .infer = infer_gradient,
                                  .gradient = second_log_softmax,
                                  .saves_inputs = 0b11,
                                  .cost = Cost::cheap});
  return op;
}

Tensor softmax(const Tensor& x, int64_t axis) {
  TD_CHECK(x.defined(), "softmax: x must be a tensor; got an undefined handle.");
  return apply1(op_softmax(), {x}, AxisAttrs{normal_axis("softmax", axis, x.rank())});
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  TD_CHECK(x.defined(), "log_softmax: x must be a tensor; got an undefined handle.");
  return apply1(op_log_softmax(), {x}, AxisAttrs{normal_axis("log_softmax", axis, x.rank())});
}
Tensor softmin(const Tensor& x, int64_t axis) {
  check_floating("softmin", x);
  return softmax(neg(x), axis);
}

Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxOptions& options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return gumbel_softmax(x, options); }, x);
  check_floating("gumbel_softmax", x);
  TD_CHECK(options.tau > 0, "gumbel_softmax: tau must be above 0; got ", options.tau, ".");
  const int axis = normal_axis("gumbel_softmax", options.axis, x.rank());
  // -log(-log(u)), u kept from 0 (it is below 1) so that the noise is finite.
  const bool wide = x.dtype() == DType::f64;
  const Tensor u =
      maximum(uniform(x.shape(), 0, 1, wide ? DType::f64 : DType::f32, x.device()), wide ? 0x1p-54 : 0x1p-25);
  const Tensor noise = cast(neg(log(neg(log(u)))), x.dtype());
  const Tensor soft = softmax((x + noise) / options.tau, axis);
  if (!options.hard || soft.size() == 0) return soft;
  const Tensor last = one_hot(argmax(soft, axis), x.size(axis));  // the classes stand on the last axis
  Dims order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i < axis ? i : i == axis ? x.rank() - 1 : i - 1);
  return cast(permute(last, order), x.dtype()) + (soft - soft.detach());
}

}  // namespace tandem
