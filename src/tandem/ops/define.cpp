#include "tandem/ops/define.h"

#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/create.h"
#include "tandem/ops/ctc.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/grid_sample.h"
#include "tandem/ops/index.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/recurrent.h"
#include "tandem/ops/recurrent_layer.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/scatter_reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/unfold.h"

namespace tandem {

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
  for (OpDef& (*op)() : {op_full,
                         op_arange,
                         op_uniform,
                         op_normal,
                         op_bernoulli,
                         op_sum,
                         op_max,
                         op_min,
                         op_argmax,
                         op_prod,
                         op_cumsum,
                         op_cumprod,
                         op_linear_scan,
                         op_cummax,
                         op_cummin,
                         op_layer_norm,
                         op_layer_norm_gradient,
                         op_group_norm,
                         op_group_norm_gradient,
                         op_batch_norm,
                         op_batch_norm_gradient,
                         op_recurrent,
                         op_recurrent_gradient,
                         op_recurrent_layer,
                         op_recurrent_layer_gradient,
                         op_ctc,
                         op_ctc_gradient,
                         op_matmul,
                         op_linear,
                         op_conv,
                         op_conv_input_gradient,
                         op_conv_weight_gradient,
                         op_max_pool,
                         op_max_pool_scatter,
                         op_max_pool_gather,
                         op_resample,
                         op_resample_adjoint,
                         op_grid_sample,
                         op_grid_sample_adjoint,
                         op_grid_sample_grid_gradient,
                         op_unfold,
                         op_fold,
                         op_softmax,
                         op_log_softmax,
                         op_softmax_gradient,
                         op_log_softmax_gradient,
                         op_gather,
                         op_scatter_add_zeros,
                         op_scatter_reduce,
                         op_one_hot,
                         op_index_select,
                         op_index_add_zeros,
                         op_index_add_into,
                         op_scatter_into,
                         op_index_copy_into,
                         op_last_writer,
                         op_ravel_index,
                         op_argsort,
                         op_searchsorted,
                         op_nonzero,
                         op_unfold_axis,
                         op_flip,
                         op_cholesky,
                         op_solve,
                         op_triangular_solve,
                         op_inverse,
                         op_det,
                         op_slogdet,
                         op_qr,
                         op_svd,
                         op_eigh,
                         op_fft,
                         op_rfft,
                         op_irfft,
                         op_frames,
                         op_overlap_add,
                         op_exponential,
                         op_randint,
                         op_random_order,
                         op_multinomial})
    op();
  set_tape_ops({[](const Tensor& a, const Tensor& b) { return add(a, b); }, sum_to,
                [](const Tensor& x, double value) { return full(x.shape(), value, x.dtype(), x.device()); }});
}

}  // namespace tandem
