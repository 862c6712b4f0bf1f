#include "tandem/ops/random.h"

#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"

namespace tandem {

namespace {

template <class A>
void infer_made(InferArgs& args) {
  const auto& a = args.template attributes<A>();
  args.device = {static_cast<DeviceKind>(a.device_kind), a.device_index};
  size_of(a.shape);  // refuses negative and overflowing sizes
  args.add(a.shape, a.dtype);
}

void infer_random(InferArgs& args) {
  TD_CHECK(is_floating(args.attributes<RandomAttrs>().dtype),
           "random: the element type must be floating; got ", args.attributes<RandomAttrs>().dtype,
           ". cast() the result instead.");
  infer_made<RandomAttrs>(args);
}

OpDef& define_maker(const char* name, void (*infer)(InferArgs&), bool random) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.not_differentiable = "it has no inputs";
  d.random = random;
  d.cost = Cost::cheap;
  return define(d);
}

Tensor random(OpDef& op, const Dims& shape, double a, double b, DType dtype, Device device) {
  TD_CHECK(is_floating(dtype), op.name, ": the element type must be floating; got ", dtype,
           ". cast() the result instead.");
  return apply1(op, {}, RandomAttrs{shape, a, b, dtype, static_cast<uint8_t>(device.kind), device.index});
}

}  // namespace

OpDef& op_full() {
  static OpDef& op = define_maker("full", infer_made<FullAttrs>, false);
  return op;
}
OpDef& op_arange() {
  static OpDef& op = define_maker("arange", infer_made<FullAttrs>, false);
  return op;
}
OpDef& op_uniform() {
  static OpDef& op = define_maker("uniform", infer_random, true);
  return op;
}
OpDef& op_normal() {
  static OpDef& op = define_maker("normal", infer_random, true);
  return op;
}
OpDef& op_bernoulli() {
  static OpDef& op = define_maker("bernoulli", infer_random, true);
  return op;
}

Tensor full_number(double value, int64_t integer, DType dtype, Device device) {
  return apply1(op_full(), {},
                FullAttrs{Dims{}, value, integer, dtype, static_cast<uint8_t>(device.kind), device.index});
}

Tensor full(const Dims& shape, double value, DType dtype, Device device) {
  return apply1(op_full(), {},
                FullAttrs{shape, value, is_floating(dtype) ? 0 : static_cast<int64_t>(value), dtype,
                          static_cast<uint8_t>(device.kind), device.index});
}
Tensor zeros_like(const Tensor& x) { return full(x.shape(), 0, x.dtype(), x.device()); }
Tensor ones_like(const Tensor& x) { return full(x.shape(), 1, x.dtype(), x.device()); }

Tensor arange(int64_t n, DType dtype, Device device) {
  TD_CHECK(n >= 0, "arange: the size must not be negative; got ", n, ".");
  return apply1(op_arange(), {},
                FullAttrs{Dims{n}, 0, 0, dtype, static_cast<uint8_t>(device.kind), device.index});
}

Tensor uniform(const Dims& shape, double low, double high, DType dtype, Device device) {
  return random(op_uniform(), shape, low, high, dtype, device);
}
Tensor normal(const Dims& shape, double mean, double deviation, DType dtype, Device device) {
  return random(op_normal(), shape, mean, deviation, dtype, device);
}
Tensor bernoulli(const Dims& shape, double p, DType dtype, Device device) {
  TD_CHECK(p >= 0 && p <= 1, "bernoulli: the probability must lie in 0..1; got ", p, ".");
  return random(op_bernoulli(), shape, p, 0, dtype, device);
}

Tensor dropout(const Tensor& x, double p) {
  TD_CHECK(p >= 0 && p < 1, "dropout: the probability must lie in 0 <= p < 1; got ", p, ".");
  if (p == 0) return x;
  return x * (bernoulli(x.shape(), 1 - p, x.dtype(), x.device()) * (1 / (1 - p)));
}

}  // namespace tandem
