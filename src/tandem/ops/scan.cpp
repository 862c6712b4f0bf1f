#include "tandem/ops/scan.h"

#include <algorithm>

#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void infer_scan(InferArgs& a) {
  const DType dtype = a.in[0].dtype();
  TD_CHECK(is_floating(dtype) || dtype == DType::i64, a.op,
           ": the element type must be floating or i64; got ", dtype, ". cast() it to i64 first.");
  checked_axis(a.op, a.attributes<ScanAttrs>().axis, a.in[0].rank());
  a.add(a.in[0].shape(), dtype);
}
void infer_linear_scan(InferArgs& a) {
  TD_CHECK(a.in[0].shape() == a.in[1].shape() && a.in[0].dtype() == a.in[1].dtype() &&
               is_floating(a.in[0].dtype()),
           "linear_scan: a and b must have one shape and one floating type; got ", describe(a.in[0]), " and ",
           describe(a.in[1]), ". expand() or cast() one of them.");
  infer_scan(a);
}
void infer_extreme(InferArgs& a) {
  const DType dtype = a.in[0].dtype();
  TD_CHECK(is_floating(dtype) || dtype == DType::i64 || dtype == DType::u64, a.op,
           ": the element type must be floating, i64 or u64; got ", dtype, ". cast() it to i64 first.");
  checked_axis(a.op, a.attributes<ScanAttrs>().axis, a.in[0].rank());
  a.add(a.in[0].shape(), dtype);
  a.add(a.in[0].shape(), DType::i64);
}

Tensors grad_cumsum(const GradArgs& a) {
  const auto& s = a.attributes.as<ScanAttrs>();
  return {cumsum(a.grad[0], s.axis, !s.reverse)};
}

/// The product of all but element k, summed over the outputs that hold k: right also where elements are zero.
Tensors grad_cumprod(const GradArgs& a) {
  const auto& s = a.attributes.as<ScanAttrs>();
  const Tensor before = shifted(a.out[0], s.axis, s.reverse, 1);
  return {before * linear_scan(shifted(a.in[0], s.axis, !s.reverse, 0), a.grad[0], s.axis, !s.reverse)};
}

Tensors grad_linear_scan(const GradArgs& a) {
  const auto& s = a.attributes.as<ScanAttrs>();
  const Tensor db = linear_scan(shifted(a.in[0], s.axis, !s.reverse, 0), a.grad[0], s.axis, !s.reverse);
  return {a.needs[0] ? db * shifted(a.out[0], s.axis, s.reverse, 0) : Tensor(), db};
}

Tensors grad_extreme(const GradArgs& a) {
  return {scatter_add_zeros(a.grad[0], a.attributes.as<ScanAttrs>().axis, a.out[1], a.in_meta[0].shape)};
}

/// An axis of x, which must have one.
int64_t axis_of(const char* op, const Tensor& x, int64_t axis) {
  TD_CHECK(x.defined(), op, ": x must be a tensor; got an undefined handle.");
  return normal_axis(op, axis, x.rank());
}

Tensor as_i64(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, DType::i64); }

RunningExtreme extreme(const OpDef& op, const Tensor& x, int64_t axis) {
  const ScanAttrs attrs{axis_of(op.name, x, axis), false};
  const Tensor wide = x.dtype() == DType::u64 ? x : as_i64(x);  // i64 cannot order u64 from 2^63 on
  const Tensors out = apply(op, {&wide, 1}, attrs);
  return {cast(out[0], x.dtype()), out[1]};
}

}  // namespace

OpDef& op_cumsum() {
  static OpDef& op = define(OpDef{.name = "cumsum",
                                  .about = "running sums along an axis",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_scan,
                                  .gradient = grad_cumsum,
                                  .precision = Precision::full,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_cumprod() {
  static OpDef& op = define(OpDef{.name = "cumprod",
                                  .about = "running products along an axis",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_scan,
                                  .gradient = grad_cumprod,
                                  .saves_inputs = 1,
                                  .saves_outputs = 1,
                                  .precision = Precision::full,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_linear_scan() {
  static OpDef& op = define(OpDef{.name = "linear_scan",
                                  .about = "y[t] = a[t] y[t - 1] + b[t] along an axis",
                                  .inputs = {"a", "b"},
                                  .outputs = {"y"},
                                  .infer = infer_linear_scan,
                                  .gradient = grad_linear_scan,
                                  .saves_inputs = 1,
                                  .saves_outputs = 1,
                                  .precision = Precision::full,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_cummax() {
  static OpDef& op = define(OpDef{.name = "cummax",
                                  .about = "the largest element so far along an axis, and its place",
                                  .inputs = {"x"},
                                  .outputs = {"values", "indices"},
                                  .infer = infer_extreme,
                                  .gradient = grad_extreme,
                                  .saves_outputs = 2,
                                  .cost = Cost::cheap});
  return op;
}
OpDef& op_cummin() {
  static OpDef& op = define(OpDef{.name = "cummin",
                                  .about = "the smallest element so far along an axis, and its place",
                                  .inputs = {"x"},
                                  .outputs = {"values", "indices"},
                                  .infer = infer_extreme,
                                  .gradient = grad_extreme,
                                  .saves_outputs = 2,
                                  .cost = Cost::cheap});
  return op;
}

Tensor shifted(const Tensor& x, int64_t axis, bool back, double fill, Dim by) {
  const Dim n = x.size(axis), out = std::min(by, n);
  if (n == 0) return x;
  Dims free = x.shape();
  free[normal_axis("shifted", axis, x.rank())] = out;
  const Tensor edge = full(free, fill, x.dtype(), x.device());
  if (back) return concat({slice(x, axis, out, n), edge}, axis);
  return concat({edge, slice(x, axis, 0, n - out)}, axis);
}

Tensor cumsum(const Tensor& x, int64_t axis, bool reverse) {
  const ScanAttrs attrs{axis_of("cumsum", x, axis), reverse};
  return apply1(op_cumsum(), {as_i64(x)}, attrs);
}
Tensor cumprod(const Tensor& x, int64_t axis, bool reverse) {
  const ScanAttrs attrs{axis_of("cumprod", x, axis), reverse};
  return apply1(op_cumprod(), {as_i64(x)}, attrs);
}
Tensor linear_scan(const Tensor& a, const Tensor& b, int64_t axis, bool reverse) {
  const ScanAttrs attrs{axis_of("linear_scan", a, axis), reverse};
  return apply1(op_linear_scan(), {a, b}, attrs);
}
RunningExtreme cummax(const Tensor& x, int64_t axis) { return extreme(op_cummax(), x, axis); }
RunningExtreme cummin(const Tensor& x, int64_t axis) { return extreme(op_cummin(), x, axis); }

}  // namespace tandem
