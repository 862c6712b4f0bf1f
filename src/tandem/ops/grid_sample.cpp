#include "tandem/ops/grid_sample.h"

#include "tandem/ops/arrange.h"
#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

constexpr int64_t kMostOrder = 1000;  // from the fourth on all are zero

void check_attributes(const InferArgs& args, const GridAttrs& a) {
  TD_CHECK(a.mode >= 0 && a.mode <= static_cast<int64_t>(GridMode::bicubic), args.op,
           ": the mode must be bilinear (0), nearest (1) or bicubic (2); got ", a.mode, ".");
  TD_CHECK(a.padding >= 0 && a.padding <= static_cast<int64_t>(GridPadding::reflection), args.op,
           ": the padding must be zeros (0), border (1) or reflection (2); got ", a.padding, ".");
  TD_CHECK(a.across >= 0 && a.across <= kMostOrder && a.down >= 0 && a.down <= kMostOrder, args.op,
           ": the orders of the derivatives must lie in 0..", kMostOrder, "; got ", a.across, " and ", a.down,
           ".");
}

void check_grid(const char* op, const Tensor& x, const Tensor& grid) {
  check_floating(op, x);
  TD_CHECK(x.rank() == 4 && grid.rank() == 4 && grid.shape()[3] == 2 && x.shape()[0] == grid.shape()[0], op,
           ": x must be (N, C, H, W) and the grid (N, H', W', 2); got ", x.shape(), " and ", grid.shape(),
           ". unsqueeze() or expand() one of them.");
  TD_CHECK(x.dtype() == grid.dtype(), op, ": x and the grid must have one type; got ", x.dtype(), " and ",
           grid.dtype(), ". cast() one of them.");
}

void check_pixels(const char* op, Dim height, Dim width) {
  TD_CHECK(is_image_size(height) && is_image_size(width) && is_image_size(times_capped(height, width)), op,
           ": an image must have at least one pixel and under 2^31; got ", height, " by ", width, ".");
}

/// (N, C, H', W') of the samples of x, or of a gradient that is like them.
Dims sampled(const Dims& x, const Dims& grid) { return {x[0], x[1], grid[1], grid[2]}; }

void check_like_samples(const char* op, const Tensor& g, const Tensor& grid) {
  check_grid(op, g, grid);
  TD_CHECK(g.shape()[2] == grid.shape()[1] && g.shape()[3] == grid.shape()[2], op,
           ": g must have one element for each point of the grid; got ", g.shape(), " and ", grid.shape(),
           ".");
}

void infer_grid_sample(InferArgs& args) {
  const Tensor &x = args.in[0], &grid = args.in[1];
  check_attributes(args, args.attributes<GridAttrs>());
  check_grid(args.op, x, grid);
  check_pixels(args.op, x.shape()[2], x.shape()[3]);
  const Dims shape = sampled(x.shape(), grid.shape());
  size_of(shape);
  args.add(shape, x.dtype());
}

void infer_adjoint(InferArgs& args) {
  const Tensor &g = args.in[0], &grid = args.in[1];
  const auto& a = args.attributes<GridAttrs>();
  check_attributes(args, a);
  check_like_samples(args.op, g, grid);
  check_pixels(args.op, a.height, a.width);
  const Dims shape{g.shape()[0], g.shape()[1], a.height, a.width};
  size_of(shape);
  args.add(shape, g.dtype());
}

void infer_grid_gradient(InferArgs& args) {
  const Tensor &g = args.in[0], &x = args.in[1], &grid = args.in[2];
  const auto& a = args.attributes<GridAttrs>();
  check_attributes(args, a);
  TD_CHECK(a.across == 0 && a.down == 0, args.op,
           ": the op takes the weights themselves, of orders 0 and 0; got ", a.across, " and ", a.down, ".");
  check_grid(args.op, x, grid);
  check_like_samples(args.op, g, grid);
  check_pixels(args.op, x.shape()[2], x.shape()[3]);
  TD_CHECK(g.shape()[1] == x.shape()[1], args.op, ": g and x must have one number of channels; got ",
           g.shape(), " and ", x.shape(), ".");
  args.add(grid.shape(), grid.dtype());
}

Tensor adjoint(const Tensor& g, const Tensor& grid, GridAttrs attrs, const Dims& image) {
  attrs.height = image[2];
  attrs.width = image[3];
  return apply1(op_grid_sample_adjoint(), {g, grid}, attrs);
}
Tensor sample(const Tensor& x, const Tensor& grid, const GridAttrs& attrs) {
  return apply1(op_grid_sample(), {x, grid}, attrs);
}

/// The next derivative along x (0) or y (1).
GridAttrs raised(GridAttrs attrs, int along) {
  (along == 0 ? attrs.across : attrs.down) += 1;
  return attrs;
}
/// x and y of something that is like the grid, as (N, 1, H', W').
Tensor along_axis(const Tensor& h, int along) { return unsqueeze(select(h, 3, along), 1); }

/// Σ over the channels of g times the derivatives of the samples of x by the grid's two coordinates.
Tensor grid_gradient(const Tensor& g, const Tensor& x, const Tensor& grid, const GridAttrs& attrs) {
  if (attrs.across == 0 && attrs.down == 0) {
    GridAttrs plain = attrs;
    plain.height = plain.width = 0;
    return apply1(op_grid_sample_grid_gradient(), {g, x, grid}, plain);
  }
  return stack(
      {sum(g * sample(x, grid, raised(attrs, 0)), {1}), sum(g * sample(x, grid, raised(attrs, 1)), {1})}, 3);
}

Tensors grad_grid_sample(const GradArgs& a) {
  const auto& attrs = a.attributes.as<GridAttrs>();
  const Tensor &x = a.in[0], &grid = a.in[1], &g = a.grad[0];
  return {a.needs[0] ? adjoint(g, grid, attrs, x.shape()) : Tensor(),
          a.needs[1] ? grid_gradient(g, x, grid, attrs) : Tensor()};
}
Tensors grad_adjoint(const GradArgs& a) {
  const auto& attrs = a.attributes.as<GridAttrs>();
  const Tensor &u = a.in[0], &grid = a.in[1], &g = a.grad[0];
  return {a.needs[0] ? sample(g, grid, attrs) : Tensor(),
          a.needs[1] ? grid_gradient(u, g, grid, attrs) : Tensor()};
}
/// h is like the grid. What it is multiplied with is linear in u and in x.
Tensors grad_grid_gradient(const GradArgs& a) {
  const auto& attrs = a.attributes.as<GridAttrs>();
  const Tensor &u = a.in[0], &x = a.in[1], &grid = a.in[2], &h = a.grad[0];
  const auto both = [](const auto& part) { return part(0) + part(1); };
  return {a.needs[0] ? both([&](int k) { return along_axis(h, k) * sample(x, grid, raised(attrs, k)); })
                     : Tensor(),
          a.needs[1]
              ? both([&](int k) { return adjoint(along_axis(h, k) * u, grid, raised(attrs, k), x.shape()); })
              : Tensor(),
          a.needs[2]
              ? both([&](int k) { return grid_gradient(along_axis(h, k) * u, x, grid, raised(attrs, k)); })
              : Tensor()};
}

}  // namespace

OpDef& op_grid_sample() {
  static OpDef& op = define(OpDef{.name = "grid_sample",
                                  .about = "an image read at the points of a grid",
                                  .inputs = {"x", "grid"},
                                  .outputs = {"y"},
                                  .infer = infer_grid_sample,
                                  .gradient = grad_grid_sample,
                                  .saves_inputs = 0b11,
                                  .precision = Precision::full});
  return op;
}
OpDef& op_grid_sample_adjoint() {
  static OpDef& op = define(OpDef{.name = "grid_sample_adjoint",
                                  .about = "the gradient of grid_sample by its image",
                                  .function = "",
                                  .inputs = {"g", "grid"},
                                  .outputs = {"x_gradient"},
                                  .infer = infer_adjoint,
                                  .gradient = grad_adjoint,
                                  .saves_inputs = 0b11});
  return op;
}
OpDef& op_grid_sample_grid_gradient() {
  static OpDef& op = define(OpDef{.name = "grid_sample_grid_gradient",
                                  .about = "the gradient of grid_sample by its grid",
                                  .function = "",
                                  .inputs = {"g", "x", "grid"},
                                  .outputs = {"grid_gradient"},
                                  .infer = infer_grid_gradient,
                                  .gradient = grad_grid_gradient,
                                  .saves_inputs = 0b111});
  return op;
}

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  TD_CHECK(x.defined() && grid.defined(),
           "grid_sample: x and the grid must be tensors; got an undefined handle.");
  return apply1(op_grid_sample(), {x, grid},
                GridAttrs{static_cast<int64_t>(options.mode), static_cast<int64_t>(options.padding),
                          options.align_corners});
}

Tensor affine_grid(const Tensor& theta, const Dims& shape, bool align_corners) {
  const char* op = "affine_grid";
  check_floating(op, theta);
  TD_CHECK(theta.rank() == 3 && theta.shape()[1] == 2 && theta.shape()[2] == 3 && shape.rank() == 4 &&
               shape[0] == theta.shape()[0],
           op, ": theta must be (N, 2, 3) and the shape (N, C, H, W); got ", theta.shape(), " and ", shape,
           ".");
  const Dim height = shape[2], width = shape[3];
  check_pixels(op, height, width);
  // The pixels' centres from -1 to 1, or so that their edges are.
  const auto line = [&](Dim n) {
    const double end = align_corners ? 1 : 1 - 1 / static_cast<double>(n);
    if (n == 1) return zeros({1}, theta.dtype(), theta.device());
    return linspace(-end, end, n, theta.dtype(), theta.device());
  };
  const Dims points{height, width};
  const Tensor x = expand(line(width), points), y = expand(unsqueeze(line(height), 1), points);
  const Tensor places = reshape(stack({x, y, ones_like(x)}, 2), {height * width, 3});
  return reshape(matmul(places, transpose(theta)), {shape[0], height, width, 2});
}

}  // namespace tandem
