#include "tandem/ops/unfold.h"

#include "tandem/ops/define.h"

namespace tandem {

namespace {

UnfoldAttrs attributes(const char* op, int axes, const UnfoldOptions& o, const Axes3& size) {
  return {o.kernel.over(axes, op, "kernel", 1),
          o.stride.over(axes, op, "stride", 1),
          o.padding.over(axes, op, "padding", 0),
          o.dilation.over(axes, op, "dilation", 1),
          size,
          axes};
}

/// Attributes that the kernels can count with, on all three axes.
const UnfoldAttrs& checked_attributes(const InferArgs& args) {
  const auto& a = args.attributes<UnfoldAttrs>();
  const char* op = args.op;
  const Axes3& size = a.size;
  check_floating(op, args.in[0]);
  TD_CHECK(a.axes >= 1 && a.axes <= 3, op, ": there must be one to three spatial axes; got ", a.axes, ".");
  int64_t window = 1, windows = 1, volume = 1;
  for (int i = 0; i < 3; ++i) {
    const WindowAxis along = a.window(i);
    TD_CHECK(i >= 3 - a.axes || (size[i] == 1 && along.kernel == 1 && along.padding == 0), op,
             ": an axis that is not there has size and kernel 1, and no padding; got ", args.given.print(),
             ".");
    TD_CHECK(along.sound(), op,
             ": kernel, stride and dilation must be at least 1, padding at least 0, and all below 2^28; got "
             "(axes depth, height, width) ",
             args.given.print(), ".");
    TD_CHECK(size[i] >= 1 && size[i] < (int64_t{1} << 31) && along.fits(size[i]), op,
             ": the image must not be empty and the kernel must fit into it, padded; got size ", size[i],
             ", kernel ", along.kernel, ", padding ", along.padding, " and dilation ", along.dilation, ".");
    window *= along.kernel;
    windows *= along.outputs(size[i]);
    volume = times_capped(volume, size[i]);
    TD_CHECK(window < (int64_t{1} << 31) && windows < (int64_t{1} << 31) && volume < (int64_t{1} << 60), op,
             ": windows must number under 2^31, and have as few elements; got ", args.given.print(), ".");
  }
  return a;
}

int64_t window_elements(const UnfoldAttrs& a) { return a.kernel[0] * a.kernel[1] * a.kernel[2]; }
int64_t windows(const UnfoldAttrs& a) { return a.outputs(0) * a.outputs(1) * a.outputs(2); }

void infer_unfold(InferArgs& args) {
  const auto& a = checked_attributes(args);
  const Dims& x = args.in[0].shape();
  bool fits = x.rank() == a.axes + 2;
  for (int i = 2; fits && i < x.rank(); ++i) fits = x[i] == a.size[i + 3 - x.rank()];
  TD_CHECK(fits, "unfold: x must be (N, C, …) with the spatial sizes of the attributes; got ",
           args.given.print(), " for x ", x, ".");
  args.add({x[0], times_capped(x[1], window_elements(a)), windows(a)}, args.in[0].dtype());
}
void infer_fold(InferArgs& args) {
  const auto& a = checked_attributes(args);
  const Dims& columns = args.in[0].shape();
  TD_CHECK(columns.rank() == 3 && columns[1] % window_elements(a) == 0 && columns[2] == windows(a),
           "fold: the columns must be (N, C · ", window_elements(a), ", ", windows(a), "); got ", columns,
           ".");
  Dims out{columns[0], columns[1] / window_elements(a)};
  for (int i = 3 - static_cast<int>(a.axes); i < 3; ++i) out.push_back(a.size[i]);
  args.add(out, args.in[0].dtype());
}

Tensors grad_unfold(const GradArgs& a) { return {apply1(op_fold(), {a.grad[0]}, a.attributes)}; }
Tensors grad_fold(const GradArgs& a) { return {apply1(op_unfold(), {a.grad[0]}, a.attributes)}; }

}  // namespace

OpDef& op_unfold() {
  static OpDef& op = define(OpDef{.name = "unfold",
                                  .about = "the windows of an image as columns",
                                  .inputs = {"x"},
                                  .outputs = {"columns"},
                                  .infer = infer_unfold,
                                  .gradient = grad_unfold});
  return op;
}
OpDef& op_fold() {
  static OpDef& op = define(OpDef{.name = "fold",
                                  .about = "the sum of columns at the places of their windows",
                                  .inputs = {"columns"},
                                  .outputs = {"y"},
                                  .infer = infer_fold,
                                  .gradient = grad_fold});
  return op;
}

Tensor unfold(const Tensor& x, const UnfoldOptions& o) {
  const int axes = x.rank() - 2;
  check_floating("unfold", x);
  TD_CHECK(axes >= 1 && axes <= 3, "unfold: x must be (N, C, …) with one to three spatial axes; got ",
           x.shape(), ".");
  Axes3 size{{1, 1, 1}};
  for (int i = 0; i < axes; ++i) size[3 - axes + i] = x.shape()[2 + i];
  return apply1(op_unfold(), {x}, attributes("unfold", axes, o, size));
}

Tensor fold(const Tensor& columns, const PerAxis& size, const UnfoldOptions& o) {
  const int axes = size.count();
  check_floating("fold", columns);
  TD_CHECK(axes >= 1, "fold: the size must have one number for each spatial axis; got none.");
  return apply1(op_fold(), {columns}, attributes("fold", axes, o, size.over(axes, "fold", "size", 1)));
}

}  // namespace tandem
