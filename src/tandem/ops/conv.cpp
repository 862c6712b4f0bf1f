#include "tandem/ops/conv.h"

#include "tandem/ops/reduce.h"

namespace tandem {

namespace {

Dim output_size(Dim size, Dim kernel, const ConvAttrs& c) {
  return (size + 2 * c.padding - c.dilation * (kernel - 1) - 1) / c.stride + 1;
}

void check_types(const char* op, std::span<const Tensor> in) {
  for (const Tensor& t : in)
    TD_CHECK(t.dtype() == in[0].dtype() && is_floating(t.dtype()), op,
             ": all types must be equal and floating; got ", in[0].dtype(), " and ", t.dtype(),
             ". cast() first.");
}

void infer_conv2d(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  check_types("conv2d", args.in);
  const Dims &x = args.in[0].shape(), &w = args.in[1].shape();
  TD_CHECK(x.rank() == 4 && w.rank() == 4,
           "conv2d: x must be (N, C, H, W) and weight (O, C/groups, KH, KW); got x ", x, " and weight ", w,
           ".");
  TD_CHECK(c.stride >= 1 && c.dilation >= 1 && c.padding >= 0 && c.groups >= 1,
           "conv2d: stride, dilation and groups must be at least 1 and padding at least 0; got ",
           Attrs(c).print(), ".");
  TD_CHECK(x[1] == w[1] * c.groups && w[0] % c.groups == 0,
           "conv2d: the channels of x must equal weight's second size times groups, and groups divide its "
           "first; got x ",
           x, ", weight ", w, " and groups ", c.groups, ".");
  TD_CHECK(w[2] >= 1 && w[3] >= 1 && x[2] + 2 * c.padding >= c.dilation * (w[2] - 1) + 1 &&
               x[3] + 2 * c.padding >= c.dilation * (w[3] - 1) + 1,
           "conv2d: the kernel must fit into the padded image; got x ", x, ", weight ", w, ", padding ",
           c.padding, " and dilation ", c.dilation, ".");
  if (args.in.size() > 2)
    TD_CHECK(args.in[2].shape() == Dims{w[0]},
             "conv2d: the bias must have one element for each output channel; got ", args.in[2].shape(),
             " for weight ", w, ".");
  args.add({x[0], w[0], output_size(x[2], w[2], c), output_size(x[3], w[3], c)}, args.in[0].dtype());
}

void infer_input_gradient(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  check_types("conv2d_input_gradient", args.in);
  const Dims &g = args.in[0].shape(), &w = args.in[1].shape();
  TD_ASSERT(g.rank() == 4 && w.rank() == 4 && g[1] == w[0], "conv2d_input_gradient of ", g, " and ", w);
  args.add({g[0], w[1] * c.groups, c.height, c.width}, args.in[0].dtype());
}

void infer_weight_gradient(InferArgs& args) {
  const auto& c = args.attributes<ConvAttrs>();
  check_types("conv2d_weight_gradient", args.in);
  const Dims &g = args.in[0].shape(), &x = args.in[1].shape();
  TD_ASSERT(g.rank() == 4 && x.rank() == 4 && g[0] == x[0], "conv2d_weight_gradient of ", g, " and ", x);
  args.add({g[1], x[1] / c.groups, c.kernel_height, c.kernel_width}, args.in[0].dtype());
}

Tensor convolve(const Tensor& x, const Tensor& weight, const ConvAttrs& from) {
  return apply1(op_conv2d(), {x, weight}, ConvAttrs{from.stride, from.padding, from.dilation, from.groups});
}
Tensor input_gradient(const Tensor& g, const Tensor& weight, const ConvAttrs& from, const Dims& x) {
  ConvAttrs c{from.stride, from.padding, from.dilation, from.groups};
  c.height = x[2];
  c.width = x[3];
  return apply1(op_conv2d_input_gradient(), {g, weight}, c);
}
Tensor weight_gradient(const Tensor& g, const Tensor& x, const ConvAttrs& from, const Dims& weight) {
  ConvAttrs c{from.stride, from.padding, from.dilation, from.groups};
  c.kernel_height = weight[2];
  c.kernel_width = weight[3];
  return apply1(op_conv2d_weight_gradient(), {g, x}, c);
}

// The three ops are one bilinear form seen from its three sides, so each one's gradients are the other two.
Tensors grad_conv2d(const GradArgs& a) {
  const auto& c = a.attributes.as<ConvAttrs>();
  Tensors out{a.needs[0] ? input_gradient(a.grad[0], a.in[1], c, a.in_meta[0].shape) : Tensor(),
              a.needs[1] ? weight_gradient(a.grad[0], a.in[0], c, a.in_meta[1].shape) : Tensor()};
  if (a.needs.size() > 2) out.push_back(a.needs[2] ? sum(a.grad[0], {0, 2, 3}) : Tensor());
  return out;
}
Tensors grad_input_gradient(const GradArgs& a) {  // in g, weight
  const auto& c = a.attributes.as<ConvAttrs>();
  return {a.needs[0] ? convolve(a.grad[0], a.in[1], c) : Tensor(),
          a.needs[1] ? weight_gradient(a.in[0], a.grad[0], c, a.in_meta[1].shape) : Tensor()};
}
Tensors grad_weight_gradient(const GradArgs& a) {  // in g, x
  const auto& c = a.attributes.as<ConvAttrs>();
  return {a.needs[0] ? convolve(a.in[1], a.grad[0], c) : Tensor(),
          a.needs[1] ? input_gradient(a.in[0], a.grad[0], c, a.in_meta[1].shape) : Tensor()};
}

OpDef& define_conv(const char* name, void (*infer)(InferArgs&), GradRule gradient) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.gradient = gradient;
  d.saves_inputs = 3;
  return define(d);
}

}  // namespace

OpDef& op_conv2d() {
  static OpDef& op = define_conv("conv2d", infer_conv2d, grad_conv2d);
  return op;
}
OpDef& op_conv2d_input_gradient() {
  static OpDef& op = define_conv("conv2d_input_gradient", infer_input_gradient, grad_input_gradient);
  return op;
}
OpDef& op_conv2d_weight_gradient() {
  static OpDef& op = define_conv("conv2d_weight_gradient", infer_weight_gradient, grad_weight_gradient);
  return op;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& o) {
  const ConvAttrs attrs{o.stride, o.padding, o.dilation, o.groups};
  return bias.defined() ? apply1(op_conv2d(), {x, weight, bias}, attrs)
                        : apply1(op_conv2d(), {x, weight}, attrs);
}

}  // namespace tandem
