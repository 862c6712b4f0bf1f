#include "tandem/ops/pool.h"

namespace tandem {

namespace {

void infer_pool(InferArgs& args) {
  const auto& p = args.attributes<PoolAttrs>();
  const Dims& x = args.in[0].shape();
  TD_CHECK(is_floating(args.in[0].dtype()), "max_pool2d: the element type must be floating; got ",
           args.in[0].dtype(), ". cast() it first.");
  TD_CHECK(x.rank() == 4, "max_pool2d: x must be (N, C, H, W); got ", x, ".");
  TD_CHECK(p.kernel >= 1 && p.stride >= 1 && p.padding >= 0 && 2 * p.padding <= p.kernel,
           "max_pool2d: kernel and stride must be at least 1 and padding at most half the kernel; got ",
           Attrs(p).print(), ".");
  TD_CHECK(x[2] + 2 * p.padding >= p.kernel && x[3] + 2 * p.padding >= p.kernel,
           "max_pool2d: the kernel must fit into the padded image; got x ", x, ", kernel ", p.kernel,
           " and padding ", p.padding, ".");
  TD_CHECK(x[2] * x[3] < (int64_t{1} << 31), "max_pool2d: a plane must have under 2^31 elements; got x ", x,
           ".");
  const Dims out{x[0], x[1], (x[2] + 2 * p.padding - p.kernel) / p.stride + 1,
                 (x[3] + 2 * p.padding - p.kernel) / p.stride + 1};
  args.add(out, args.in[0].dtype());
  args.add(out, DType::i32);
}

void infer_scatter(InferArgs& args) {
  const auto& p = args.attributes<PoolAttrs>();
  const Dims& g = args.in[0].shape();
  TD_ASSERT(g.rank() == 4 && g == args.in[1].shape() && args.in[1].dtype() == DType::i32,
            "max_pool2d_scatter of ", g);
  args.add({g[0], g[1], p.height, p.width}, args.in[0].dtype());
}

void infer_gather(InferArgs& args) {
  TD_ASSERT(args.in[0].rank() == 4 && args.in[1].rank() == 4 && args.in[1].dtype() == DType::i32,
            "max_pool2d_gather of ", args.in[0].shape());
  args.add(args.in[1].shape(), args.in[0].dtype());
}

Tensor scatter(const Tensor& g, const Tensor& positions, PoolAttrs p, const Dims& x) {
  p.height = x[2];
  p.width = x[3];
  return apply1(op_max_pool2d_scatter(), {g, positions}, p);
}
Tensor gather_at(const Tensor& x, const Tensor& positions, PoolAttrs p) {
  p.height = p.width = 0;
  return apply1(op_max_pool2d_gather(), {x, positions}, p);
}

OpDef& define_pool(const char* name, void (*infer)(InferArgs&), GradRule gradient, uint32_t saves_in,
                   uint32_t saves_out) {
  OpDef d;
  d.name = name;
  d.infer = infer;
  d.gradient = gradient;
  d.saves_inputs = saves_in;
  d.saves_outputs = saves_out;
  return define(d);
}

}  // namespace

OpDef& op_max_pool2d() {
  static OpDef& op = define_pool(
      "max_pool2d", infer_pool,
      [](const GradArgs& a) {
        return Tensors{scatter(a.grad[0], a.out[1], a.attributes.as<PoolAttrs>(), a.in_meta[0].shape)};
      },
      0, 2);
  return op;
}
OpDef& op_max_pool2d_scatter() {
  static OpDef& op = define_pool(
      "max_pool2d_scatter", infer_scatter,
      [](const GradArgs& a) {
        return Tensors{gather_at(a.grad[0], a.in[1], a.attributes.as<PoolAttrs>()), Tensor()};
      },
      2, 0);
  return op;
}
OpDef& op_max_pool2d_gather() {
  static OpDef& op = define_pool(
      "max_pool2d_gather", infer_gather,
      [](const GradArgs& a) {
        return Tensors{scatter(a.grad[0], a.in[1], a.attributes.as<PoolAttrs>(), a.in_meta[0].shape),
                       Tensor()};
      },
      2, 0);
  return op;
}

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& o) {
  const PoolAttrs attrs{o.kernel, o.stride ? o.stride : o.kernel, o.padding};
  return apply1(op_max_pool2d(), {x}, attrs);
}

}  // namespace tandem
