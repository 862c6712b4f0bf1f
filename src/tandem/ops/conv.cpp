#include "tandem/ops/conv.h"

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// The name of the public function by the rank of its operands.
const char* name_of(int rank) { return rank == 3 ? "conv1d" : rank == 5 ? "conv3d" : "conv2d"; }

/// The spatial sizes of a shape, 1 where there is no axis.
Axes3 spatial(const Dims& shape) {
  Axes3 out{{1, 1, 1}};
  for (int i = 2; i < shape.rank(); ++i) out[i + 3 - shape.rank()] = shape[i];
  return out;
}

WindowAxis window(const ConvAttrs& c, int axis, Dim kernel) {
  return {kernel, c.stride[axis], c.padding[axis], c.dilation[axis]};
}

void check_types(const char* op, std::span<const Tensor> in) {
  for (const Tensor& t : in)
    TD_CHECK(t.dtype() == in[0].dtype() && is_floating(t.dtype()), op,
             ": all types must be equal and floating; got ", in[0].dtype(), " and ", t.dtype(),
             ". cast() first.");
}

void check_ranks(const char* op, int axes, const Dims& x, const Dims& w, const char* weight_form) {
  const char* const spatial[] = {"L", "H, W", "D, H, W"};
  const char* const kernel[] = {"K", "KH, KW", "KD, KH, KW"};
  TD_CHECK(x.rank() == axes + 2 && w.rank() == axes + 2, op, ": x must be (N, C, ", spatial[axes - 1],
           ") and weight (", weight_form, ", ", kernel[axes - 1], "); got x ", x, " and weight ", w,
           ". unsqueeze() an axis that is missing.");
}

void check_numbers(const char* op, const ConvAttrs& c, int axes) {
  for (int axis = 0; axis < 3; ++axis)
    TD_CHECK(window(c, axis, 1).sound() && c.groups >= 1 && c.groups < (int64_t{1} << 28) &&
                 (axis >= 3 - axes || c.padding[axis] == 0),
             op,
             ": stride, dilation and groups must be at least 1, padding at least 0 (0 on axes that are not "
             "there), and all below 2^28; got (axes depth, height, width) ",
             Attrs(c).print(), ".");
}

void check_numbers(const char* op, const ConvAttrs& c, int axes, const Dims& w) {
  check_numbers(op, c, axes);
  for (int axis = 2; axis < axes + 2; ++axis)
    TD_CHECK(w[axis] >= 1 && w[axis] < (int64_t{1} << 28), op,
             ": the kernel must have at least one element on each axis; got weight ", w, ".");
}

void check_bias(const char* op, const Tensor& bias, Dim channels, const Dims& w) {
  TD_CHECK(bias.shape() == Dims{channels}, op,
           ": the bias must have one element for each output channel; got ", bias.shape(), " for weight ", w,
           ".");
}

/// How many spatial axes an image and what stands beside it have.
int checked_axes(const char* op, const Dims& x, const Dims& other) {
  TD_CHECK(x.rank() >= 3 && x.rank() <= 5 && other.rank() == x.rank(), op,
           ": both inputs must have 3 to 5 axes, as many as each other; got ", x, " and ", other,
           ". unsqueeze() an axis that is missing.");
  return x.rank() - 2;
}

/// The gradients' view of a convolution: y (n, o, …) of an image of these sizes with kernels of those. y may hold fewer
/// places than there are, where a transposed convolution has output padding.
void check_gradient(const InferArgs& args, const ConvAttrs& c, int axes, const Dims& y, const Axes3& image,
                    const Axes3& kernel) {
  check_types(args.op, args.in);
  check_numbers(args.op, c, axes);
  for (int i = 0; i < axes; ++i) {
    const int axis = 3 - axes + i;
    const WindowAxis along = window(c, axis, kernel[axis]);
    TD_CHECK(along.sound(), args.op, ": the kernel must have 1 to 2^28 - 1 elements on each axis; got ",
             along.kernel, " on axis ", 2 + i, ".");
    TD_CHECK(image[axis] >= 0 && image[axis] < (int64_t{1} << 60) && y[2 + i] >= 0 &&
                 (y[2 + i] == 0 || (along.fits(image[axis]) && y[2 + i] <= along.outputs(image[axis]))),
             args.op, ": the windows must fit into the padded image; got size ", image[axis], " and kernel ",
             along.kernel, " for the gradient ", y, " on axis ", 2 + i, ", and ", args.given.print(), ".");
  }
}

void infer_conv(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  const Dims &x = args.in[0].shape(), &w = args.in[1].shape();
  const char* op = name_of(x.rank());
  const int axes = checked_axes(args.op, x, w);
  check_types(op, args.in);
  check_numbers(op, c, axes, w);
  TD_CHECK(x[1] == times_capped(w[1], c.groups) && w[0] % c.groups == 0, op,
           ": the channels of x must equal weight's second size times groups, and groups divide its "
           "first; got x ",
           x, ", weight ", w, " and groups ", c.groups, ".");
  Dims out{x[0], w[0]};
  for (int i = 0; i < axes; ++i) {
    const int axis = 3 - axes + i;
    const WindowAxis along = window(c, axis, w[2 + i]);
    TD_CHECK(along.fits(x[2 + i]), op, ": the kernel must fit into the padded image; got x ", x, ", weight ",
             w, ", padding ", along.padding, " and dilation ", along.dilation, " on axis ", 2 + i, ".");
    out.push_back(along.outputs(x[2 + i]));
  }
  if (args.in.size() > 2) check_bias(op, args.in[2], w[0], w);
  args.add(out, args.in[0].dtype());
}

void infer_input_gradient(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  const Dims &g = args.in[0].shape(), &w = args.in[1].shape();
  const int axes = checked_axes(args.op, g, w);
  check_gradient(args, c, axes, g, c.size, spatial(w));
  TD_CHECK(
      g[1] == w[0] && w[0] % c.groups == 0, args.op,
      ": the channels of the gradient must equal weight's first size, and groups divide them; got gradient ",
      g, ", weight ", w, " and groups ", c.groups, ".");
  Dims out{g[0], times_capped(w[1], c.groups)};
  for (int axis = 5 - g.rank(); axis < 3; ++axis) out.push_back(c.size[axis]);
  args.add(out, args.in[0].dtype());
}

void infer_weight_gradient(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  const Dims &g = args.in[0].shape(), &x = args.in[1].shape();
  const int axes = checked_axes(args.op, g, x);
  check_gradient(args, c, axes, g, spatial(x), c.kernel);
  TD_CHECK(g[0] == x[0] && g[1] % c.groups == 0 && x[1] % c.groups == 0, args.op,
           ": gradient and x must have one batch size, and groups divide the channels of both; got gradient ",
           g, ", x ", x, " and groups ", c.groups, ".");
  Dims out{g[1], x[1] / c.groups};
  for (int axis = 5 - g.rank(); axis < 3; ++axis) out.push_back(c.kernel[axis]);
  args.add(out, args.in[0].dtype());
}

/// `wanted` is what the transposed convolution read: less than the whole where its output padding is large.
Tensor convolve(const Tensor& x, const Tensor& weight, const ConvAttrs& from, const Dims& wanted) {
  Tensor y = apply1(op_conv(), {x, weight}, ConvAttrs{from.stride, from.padding, from.dilation, from.groups});
  for (int i = 2; i < wanted.rank(); ++i)
    if (y.shape()[i] != wanted[i]) y = slice(y, i, 0, wanted[i]);
  return y;
}
Tensor input_gradient(const Tensor& g, const Tensor& weight, const ConvAttrs& from, const Axes3& size) {
  return apply1(op_conv_input_gradient(), {g, weight},
                ConvAttrs{from.stride, from.padding, from.dilation, from.groups, size});
}
Tensor weight_gradient(const Tensor& g, const Tensor& x, const ConvAttrs& from, const Dims& weight) {
  return apply1(op_conv_weight_gradient(), {g, x},
                ConvAttrs{from.stride, from.padding, from.dilation, from.groups, {}, spatial(weight)});
}

// The three ops are one bilinear form seen from its three sides, so each one's gradients are the other two.
Tensors grad_conv(const GradArgs& a) {
  const auto& c = a.attributes.as<ConvAttrs>();
  const Dims& x = a.in_meta[0].shape;
  Tensors out{a.needs[0] ? input_gradient(a.grad[0], a.in[1], c, spatial(x)) : Tensor(),
              a.needs[1] ? weight_gradient(a.grad[0], a.in[0], c, a.in_meta[1].shape) : Tensor()};
  if (a.needs.size() > 2) {
    Dims axes{0};
    for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
    out.push_back(a.needs[2] ? sum(a.grad[0], axes) : Tensor());
  }
  return out;
}
Tensors grad_input_gradient(const GradArgs& a) {  // in g, weight
  const auto& c = a.attributes.as<ConvAttrs>();
  return {a.needs[0] ? convolve(a.grad[0], a.in[1], c, a.in_meta[0].shape) : Tensor(),
          a.needs[1] ? weight_gradient(a.in[0], a.grad[0], c, a.in_meta[1].shape) : Tensor()};
}
Tensors grad_weight_gradient(const GradArgs& a) {  // in g, x
  const auto& c = a.attributes.as<ConvAttrs>();
  return {a.needs[0] ? convolve(a.in[1], a.grad[0], c, a.in_meta[0].shape) : Tensor(),
          a.needs[1] ? input_gradient(a.in[0], a.grad[0], c, spatial(a.in_meta[1].shape)) : Tensor()};
}

/// What the records of the family share.
// Padding counts.
int64_t input_gradient_flops(const KernelArgs& a) { return 2 * a.in[0].size() * terms_of(a.in[1]); }
int64_t weight_gradient_flops(const KernelArgs& a) { return 2 * a.in[0].size() * terms_of(a.out[0]); }

OpDef convolution(OpDef d) {
  d.saves_inputs = 0b11;
  d.precision = Precision::low;
  return d;
}

Tensor conv(int axes, const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& o) {
  const char* op = name_of(axes + 2);
  check_ranks(op, axes, input.shape(), weight.shape(), "O, C/groups");
  ConvAttrs c{o.stride.over(axes, op, "stride", 1), o.padding.over(axes, op, "padding", 0),
              o.dilation.over(axes, op, "dilation", 1), o.groups};
  Tensor x = input;
  if (o.padding.same()) {
    check_numbers(op, c, axes, weight.shape());
    for (int i = 0; i < axes; ++i) {
      const int axis = 3 - axes + i;
      TD_CHECK(c.stride[axis] == 1, op, ": padding \"same\" needs stride 1; got stride ", c.stride[axis],
               ". Give the padding in numbers.");
      const Dim total = c.dilation[axis] * (weight.shape()[2 + i] - 1);
      c.padding[axis] = total / 2;
      if (total % 2) x = slice_into_zeros(x, 2 + i, 0, 1, x.shape()[2 + i] + 1);  // the odd one at the end
    }
  }
  return bias.defined() ? apply1(op_conv(), {x, weight, bias}, c) : apply1(op_conv(), {x, weight}, c);
}

Tensor conv_transpose(int axes, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const ConvTransposeOptions& o) {
  if (autocast_is_on())
    return as_one_op(
        Precision::low,
        [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          return conv_transpose(axes, x, weight, bias, o);
        },
        x, weight, bias);
  static const char* const names[] = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
  const char* op = names[axes - 1];
  const Dims &in = x.shape(), &w = weight.shape();
  check_ranks(op, axes, in, w, "C, O/groups");
  check_types(op, std::array{x, weight});
  ConvAttrs c{o.stride.over(axes, op, "stride", 1), o.padding.over(axes, op, "padding", 0),
              o.dilation.over(axes, op, "dilation", 1), o.groups};
  check_numbers(op, c, axes, w);
  const Axes3 extra = o.output_padding.over(axes, op, "output_padding", 0);
  TD_CHECK(in[1] == w[0] && in[1] % c.groups == 0, op,
           ": the channels of x must equal weight's first size, and groups divide them; got x ", in,
           ", weight ", w, " and groups ", c.groups, ".");
  Axes3 size{{1, 1, 1}};
  for (int i = 0; i < axes; ++i) {
    const int axis = 3 - axes + i;
    const WindowAxis along = window(c, axis, w[2 + i]);
    TD_CHECK(extra[axis] >= 0 && (extra[axis] < along.stride || extra[axis] < along.dilation), op,
             ": output_padding must be at least 0 and less than stride or dilation; got ", extra[axis],
             " with stride ", along.stride, " and dilation ", along.dilation, " on axis ", 2 + i, ".");
    TD_CHECK(in[2 + i] >= 1 && in[2 + i] < (int64_t{1} << 31), op,
             ": x must have at least one element on each spatial axis; got x ", in, ".");
    size[axis] = (in[2 + i] - 1) * along.stride - 2 * along.padding + along.reach() + extra[axis];
    TD_CHECK(size[axis] >= 1, op, ": the result must have at least one element on each axis; got size ",
             size[axis], " on axis ", 2 + i, " from x ", in, ", weight ", w, " and padding ", along.padding,
             ". Pad less.");
  }
  const Tensor y = input_gradient(x, weight, c, size);
  if (!bias.defined()) return y;
  check_bias(op, bias, times_capped(w[1], c.groups), w);
  check_types(op, std::array{x, bias});
  Dims over = Dims::filled(axes + 2, 1);
  over[1] = bias.shape()[0];
  return add(y, reshape(bias, over));
}

}  // namespace

OpDef& op_conv() {
  static OpDef& op = define(convolution({.name = "conv",
                                         .about = "a convolution over one to three axes",
                                         .function = "conv2d",
                                         .inputs = {"x", "weight", "bias?"},
                                         .outputs = {"y"},
                                         .infer = infer_conv,
                                         .gradient = grad_conv,
                                         .flops = linear_flops}));
  return op;
}
OpDef& op_conv_input_gradient() {
  static OpDef& op = define(convolution({.name = "conv_input_gradient",
                                         .about = "the gradient of a convolution by its input",
                                         .function = "conv_transpose2d",
                                         .inputs = {"g", "weight"},
                                         .outputs = {"y"},
                                         .infer = infer_input_gradient,
                                         .gradient = grad_input_gradient,
                                         .flops = input_gradient_flops}));
  return op;
}
OpDef& op_conv_weight_gradient() {
  static OpDef& op = define(convolution({.name = "conv_weight_gradient",
                                         .about = "the gradient of a convolution by its weight",
                                         .function = "",
                                         .inputs = {"g", "x"},
                                         .outputs = {"weight_gradient"},
                                         .infer = infer_weight_gradient,
                                         .gradient = grad_weight_gradient,
                                         .flops = weight_gradient_flops}));
  return op;
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& o) {
  return conv(1, x, weight, bias, o);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& o) {
  return conv(2, x, weight, bias, o);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& o) {
  return conv(3, x, weight, bias, o);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& o) {
  return conv_transpose(1, x, weight, bias, o);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& o) {
  return conv_transpose(2, x, weight, bias, o);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& o) {
  return conv_transpose(3, x, weight, bias, o);
}

}  // namespace tandem
