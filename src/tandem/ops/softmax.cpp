#include "tandem/ops/softmax.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

template <bool is_log>
void infer_softmax(InferArgs& a) {
  TD_CHECK(is_floating(a.in[0].dtype()), is_log ? "log_softmax" : "softmax",
           ": the element type must be f64, f32, bf16 or f16; got ", a.in[0].dtype(), ". cast() it first.");
  a.add(a.in[0].shape(), a.in[0].dtype());
}

Tensors grad_softmax(const GradArgs& a) {
  const Dims axis{a.attributes.as<AxisAttrs>().axis};
  return {a.out[0] * (a.grad[0] - sum(a.grad[0] * a.out[0], axis, true))};
}
Tensors grad_log_softmax(const GradArgs& a) {
  const Dims axis{a.attributes.as<AxisAttrs>().axis};
  return {a.grad[0] - exp(a.out[0]) * sum(a.grad[0], axis, true)};
}

OpDef& define_softmax(const char* name, void (*infer)(InferArgs&), GradRule gradient) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.gradient = gradient;
  d.saves_outputs = 1;
  d.cost = Cost::cheap;
  return define(d);
}

}  // namespace

OpDef& op_softmax() {
  static OpDef& op = define_softmax("softmax", infer_softmax<false>, grad_softmax);
  return op;
}
OpDef& op_log_softmax() {
  static OpDef& op = define_softmax("log_softmax", infer_softmax<true>, grad_log_softmax);
  return op;
}

Tensor softmax(const Tensor& x, int64_t axis) {
  return apply1(op_softmax(), {x}, AxisAttrs{normal_axis("softmax", axis, x.rank())});
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  return apply1(op_log_softmax(), {x}, AxisAttrs{normal_axis("log_softmax", axis, x.rank())});
}

}  // namespace tandem
