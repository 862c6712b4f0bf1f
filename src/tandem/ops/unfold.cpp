#include "tandem/ops/unfold.h"

namespace tandem {

namespace {

UnfoldAttrs attributes(const char* op, int axes, const UnfoldOptions& o, const Axes3& size) {
  const UnfoldAttrs a{o.kernel.over(axes, op, "kernel", 1),
                      o.stride.over(axes, op, "stride", 1),
                      o.padding.over(axes, op, "padding", 0),
                      o.dilation.over(axes, op, "dilation", 1),
                      size,
                      axes};
  int64_t window = 1, windows = 1;
  for (int i = 3 - axes; i < 3; ++i) {
    const WindowAxis along = a.window(i);
    TD_CHECK(along.sound(), op,
             ": kernel, stride and dilation must be at least 1, padding at least 0, and all below 2^28; got "
             "(axes depth, height, width) ",
             Attrs(a).print(), ".");
    TD_CHECK(size[i] >= 1 && size[i] < (int64_t{1} << 31) && along.fits(size[i]), op,
             ": the image must not be empty and the kernel must fit into it, padded; got size ", size[i],
             ", kernel ", along.kernel, ", padding ", along.padding, " and dilation ", along.dilation, ".");
    window *= along.kernel;
    windows *= along.outputs(size[i]);
    TD_CHECK(window < (int64_t{1} << 31) && windows < (int64_t{1} << 31), op,
             ": windows must number under 2^31, and have as few elements; got ", Attrs(a).print(), ".");
  }
  return a;
}

int64_t window_elements(const UnfoldAttrs& a) { return a.kernel[0] * a.kernel[1] * a.kernel[2]; }
int64_t windows(const UnfoldAttrs& a) { return a.outputs(0) * a.outputs(1) * a.outputs(2); }

void check_type(const char* op, const Tensor& x) {
  TD_CHECK(is_floating(x.dtype()), op, ": the element type must be floating; got ", x.dtype(),
           ". cast() it first.");
}

// The public functions have checked their input, with messages of their own.
void infer_unfold(InferArgs& args) {
  const auto& a = args.attributes<UnfoldAttrs>();
  const Dims& x = args.in[0].shape();
  args.add({x[0], times_capped(x[1], window_elements(a)), windows(a)}, args.in[0].dtype());
}
void infer_fold(InferArgs& args) {
  const auto& a = args.attributes<UnfoldAttrs>();
  const Dims& columns = args.in[0].shape();
  Dims out{columns[0], columns[1] / window_elements(a)};
  for (int i = 3 - static_cast<int>(a.axes); i < 3; ++i) out.push_back(a.size[i]);
  args.add(out, args.in[0].dtype());
}

OpDef& define_fold(const char* name, void (*infer)(InferArgs&), GradRule gradient) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.gradient = gradient;
  return define(d);
}

}  // namespace

OpDef& op_unfold() {
  static OpDef& op = define_fold("unfold", infer_unfold, [](const GradArgs& a) {
    return Tensors{apply1(op_fold(), {a.grad[0]}, a.attributes)};
  });
  return op;
}
OpDef& op_fold() {
  static OpDef& op = define_fold("fold", infer_fold, [](const GradArgs& a) {
    return Tensors{apply1(op_unfold(), {a.grad[0]}, a.attributes)};
  });
  return op;
}

Tensor unfold(const Tensor& x, const UnfoldOptions& o) {
  const int axes = x.rank() - 2;
  check_type("unfold", x);
  TD_CHECK(axes >= 1 && axes <= 3, "unfold: x must be (N, C, …) with one to three spatial axes; got ",
           x.shape(), ".");
  Axes3 size{{1, 1, 1}};
  for (int i = 0; i < axes; ++i) size[3 - axes + i] = x.shape()[2 + i];
  return apply1(op_unfold(), {x}, attributes("unfold", axes, o, size));
}

Tensor fold(const Tensor& columns, const PerAxis& size, const UnfoldOptions& o) {
  const int axes = size.count();
  check_type("fold", columns);
  TD_CHECK(axes >= 1, "fold: the size must have one number for each spatial axis; got none.");
  const UnfoldAttrs a = attributes("fold", axes, o, size.over(axes, "fold", "size", 1));
  TD_CHECK(
      columns.rank() == 3 && columns.shape()[1] % window_elements(a) == 0 && columns.shape()[2] == windows(a),
      "fold: the columns must be (N, C · ", window_elements(a), ", ", windows(a), "); got ", columns.shape(),
      ".");
  return apply1(op_fold(), {columns}, a);
}

}  // namespace tandem
