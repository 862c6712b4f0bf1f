#include "tandem/ops/define.h"

#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

// Each op of this folder: one function of the form `OpDef& op_NAME()`, listed by the build (cmake/list_functions.cmake).
#define TD_LISTED(op) OpDef& op();
#include "lists/ops.inc"
#undef TD_LISTED

OpDef without_inputs(OpDef d) {
  d.inputs = 0;
  d.not_differentiable = "it has no inputs";
  d.cost = Cost::cheap;
  return d;
}

int checked_axis(const char* op, int64_t axis, int rank) {
  TD_CHECK(axis >= 0 && axis < rank, op, ": the axis of the op must lie in 0..", rank - 1, "; got ", axis,
           " for a tensor of ", rank, " axes. Count from the first axis, 0.");
  return static_cast<int>(axis);
}

Device checked_device(const char* op, uint8_t kind, uint8_t index) {
  TD_CHECK(kind < kDeviceKinds, op, ": the kind of the device must lie in 0..", kDeviceKinds - 1, "; got ",
           int{kind}, ".");
  return {static_cast<DeviceKind>(kind), index};
}

void check_floating(const char* op, const Tensor& x) {
  TD_CHECK(x.defined() && is_floating(x.dtype()), op,
           ": the element type must be f64, f32, bf16 or f16; got ",
           x.defined() ? describe(x) : "an undefined handle", ". cast() it first.");
}

void check_like(const char* op, const char* what, const Tensor& x, const Tensor& like) {
  TD_CHECK(x.shape() == like.shape() && x.dtype() == like.dtype(), op, ": ", what, " must be ",
           describe(like), "; got ", describe(x), ". reshape() or cast() it.");
}

double spacing_at_1(DType dtype) {
  return dtype == DType::f64    ? 0x1p-52
         : dtype == DType::f32  ? 0x1p-23
         : dtype == DType::bf16 ? 0x1p-7
                                : 0x1p-10;
}
double least_normal(DType dtype) {
  return dtype == DType::f64 ? 0x1p-1022 : dtype == DType::f16 ? 0x1p-14 : 0x1p-126;
}

int64_t terms_of(const Buffer& weight) {
  return weight.rank == 0 || weight.shape[0] == 0 ? 0 : weight.size() / weight.shape[0];
}
int64_t linear_flops(const KernelArgs& args) {
  const int64_t written = args.out[0].size();
  return 2 * written * terms_of(args.in[1]) + (args.n_in > 2 ? written : 0);
}

bool share_memory(const Tensor& a, const Tensor& b) {
  const Tracer* tracer = current_tracer();
  return tracer ? tracer->share_memory(a, b) : a.impl()->storage == b.impl()->storage;
}

Tensor part_of(const Tensor& x, const Tensor& y, const CopyMark& mark) {
  if (!share_memory(x, y)) y.impl()->copied_by = &mark;
  return y;
}

Tensor apart_from(const Tensor& x, const Tensor& y) {
  return share_memory(x, y) ? clone(y) : without_mark(y);
}

void define_all_ops() {
  define_pointwise_ops();
  define_shape_ops();
#define TD_LISTED(op) op();
#include "lists/ops.inc"
#undef TD_LISTED
  set_tape_ops({[](const Tensor& a, const Tensor& b) { return add(a, b); }, sum_to,
                [](const Tensor& x, double value) { return full(x.shape(), value, x.dtype(), x.device()); }});
}

}  // namespace tandem
