#include "tandem/ops/pool.h"

#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/resample.h"

namespace tandem {

namespace {

constexpr Axes3 kOnes{{1, 1, 1}}, kZeros{{0, 0, 0}};

void check_image(const char* op, const Tensor& x, int axes) {
  static const char* const forms[] = {"L", "H, W", "D, H, W"};
  TD_CHECK(is_floating(x.dtype()), op, ": the element type must be floating; got ", x.dtype(),
           ". cast() it first.");
  TD_CHECK(x.rank() == axes + 2, op, ": x must be (N, C, ", forms[axes - 1], "); got ", x.shape(),
           ". unsqueeze() an axis that is missing.");
  for (int i = 2; i < x.rank(); ++i)
    TD_CHECK(x.shape()[i] >= 1 && x.shape()[i] < (int64_t{1} << 31), op,
             ": each spatial axis must have at least one element and under 2^31; got x ", x.shape(), ".");
}

/// Checks the windows of a pool over x and gives the size of the result.
Dims pooled_shape(const char* op, const Dims& x, const Axes3& kernel, const Axes3& stride,
                  const Axes3& padding, const Axes3& dilation, bool ceil) {
  Dims out{x[0], x[1]};
  for (int i = 2; i < x.rank(); ++i) {
    const int axis = i + 3 - x.rank();
    const WindowAxis along{kernel[axis], stride[axis], padding[axis], dilation[axis]};
    TD_CHECK(along.sound() && 2 * along.padding <= along.kernel, op,
             ": kernel, stride and dilation must be at least 1 and below 2^28, and padding at most half the "
             "kernel; got kernel ",
             along.kernel, ", stride ", along.stride, ", padding ", along.padding, " and dilation ",
             along.dilation, " on axis ", i, ".");
    TD_CHECK(along.fits(x[i]), op, ": the kernel must fit into the padded image; got x ", x, ", kernel ",
             along.kernel, ", padding ", along.padding, " and dilation ", along.dilation, " on axis ", i,
             ".");
    TD_CHECK(
        along.padding == 0 || along.dilation <= x[i], op,
        ": dilation must not exceed the size of a padded image, whose windows could step over it; got x ", x,
        ", padding ", along.padding, " and dilation ", along.dilation, " on axis ", i, ".");
    out.push_back(along.outputs(x[i], ceil));
  }
  return out;
}

Dims with_spatial(const Dims& like, const Axes3& size) {
  Dims out{like[0], like[1]};
  for (int i = 2; i < like.rank(); ++i) out.push_back(size[i + 3 - like.rank()]);
  return out;
}
Axes3 spatial(const Dims& shape) {
  Axes3 out = kOnes;
  for (int i = 2; i < shape.rank(); ++i) out[i + 3 - shape.rank()] = shape[i];
  return out;
}

/// Windows that lead from images of one size to pooled ones of another, on all three axes.
void check_windows(const InferArgs& args, const PoolAttrs& p, const Axes3& images, const Axes3& pooled) {
  int64_t volume = 1;
  for (int i = 0; i < 3; ++i) {
    const WindowAxis along{p.kernel[i], p.stride[i], p.padding[i], p.dilation[i]};
    volume = times_capped(volume, images[i]);
    TD_CHECK(is_image_size(images[i]) && is_image_size(pooled[i]) && is_image_size(volume), args.op,
             ": each size must be at least 1, and an image have under 2^31 elements; got images of ", images,
             " (depth, height, width) pooled to ", pooled, ".");
    if (along.kernel == 0 && along.stride >= 1 && along.padding == 0 && along.dilation == 1)
      continue;  // adaptive
    TD_CHECK(along.sound() && 2 * along.padding <= along.kernel && along.fits(images[i]) &&
                 (along.padding == 0 || along.dilation <= images[i]) &&
                 (along.outputs(images[i]) == pooled[i] || along.outputs(images[i], true) == pooled[i]),
             args.op,
             ": windows must fit into the image, padded by at most half of one, and give the size; got ",
             args.given.print(), " for images of ", images, " pooled to ", pooled, ".");
  }
}

void infer_pool(InferArgs& args) {
  const auto& p = args.attributes<PoolAttrs>();
  const Dims& x = args.in[0].shape();
  check_images(args.op, args.in[0]);
  const Dims out = with_spatial(x, p.size);
  TD_CHECK(spatial(out) == p.size, args.op, ": an axis that is not there has size 1; got ",
           args.given.print(), " for x ", x, ".");
  check_windows(args, p, spatial(x), p.size);
  args.add(out, args.in[0].dtype());
  args.add(out, DType::i32);
}

void check_places(const InferArgs& args, bool fits) {
  TD_CHECK(fits && args.in[1].dtype() == DType::i32, args.op,
           ": the places must be those that max_pool gave, i32 for each pooled element; got ",
           describe(args.in[1]), " for ", describe(args.in[0]), ".");
}

void infer_scatter(InferArgs& args) {
  const auto& p = args.attributes<PoolAttrs>();
  const Dims& g = args.in[0].shape();
  check_images(args.op, args.in[0]);
  check_places(args, g == args.in[1].shape());
  const Dims out = with_spatial(g, p.size);
  TD_CHECK(spatial(out) == p.size, args.op, ": an axis that is not there has size 1; got ",
           args.given.print(), " for ", g, ".");
  check_windows(args, p, p.size, spatial(g));
  args.add(out, args.in[0].dtype());
}

void infer_gather(InferArgs& args) {
  const Dims &x = args.in[0].shape(), &places = args.in[1].shape();
  check_images(args.op, args.in[0]);
  check_places(args, x.rank() == places.rank() && x[0] == places[0] && x[1] == places[1]);
  check_windows(args, args.attributes<PoolAttrs>(), spatial(x), spatial(places));
  args.add(places, args.in[0].dtype());
}

Tensor scatter(const Tensor& g, const Tensor& places, PoolAttrs p, const Dims& x) {
  p.size = spatial(x);
  return apply1(op_max_pool_scatter(), {g, places}, p);
}
Tensor gather_at(const Tensor& x, const Tensor& places, PoolAttrs p) {
  p.size = kZeros;
  return apply1(op_max_pool_gather(), {x, places}, p);
}

Tensors grad_pool(const GradArgs& a) {
  return {scatter(a.grad[0], a.out[1], a.attributes.as<PoolAttrs>(), a.in_meta[0].shape)};
}
Tensors grad_scatter(const GradArgs& a) {
  return {gather_at(a.grad[0], a.in[1], a.attributes.as<PoolAttrs>()), Tensor()};
}
Tensors grad_gather(const GradArgs& a) {
  return {scatter(a.grad[0], a.in[1], a.attributes.as<PoolAttrs>(), a.in_meta[0].shape), Tensor()};
}

const char* name_of(const char* const (&names)[3], int axes) { return names[axes - 1]; }

/// Values and places.
Tensors max_pool_op(const char* op, const Tensor& x, const PoolAttrs& attrs) {
  int64_t volume = 1;
  for (int i = 2; i < x.rank(); ++i) {
    volume *= x.shape()[i];
    TD_CHECK(volume < (int64_t{1} << 31), op, ": an image must have under 2^31 elements; got x ", x.shape(),
             ".");
  }
  return apply(op_max_pool(), std::span(&x, 1), attrs);
}

Tensors max_pool(int axes, const Tensor& x, const MaxPoolOptions& o) {
  const char* op = name_of({"max_pool1d", "max_pool2d", "max_pool3d"}, axes);
  check_image(op, x, axes);
  PoolAttrs p{o.kernel.over(axes, op, "kernel", 1),
              (o.stride.given() ? o.stride : o.kernel).over(axes, op, "stride", 1),
              o.padding.over(axes, op, "padding", 0), o.dilation.over(axes, op, "dilation", 1)};
  p.size = spatial(pooled_shape(op, x.shape(), p.kernel, p.stride, p.padding, p.dilation, o.ceil_mode));
  return max_pool_op(op, x, p);
}

Axes3 adaptive_size(const char* op, int axes, const Tensor& x, const PerAxis& size) {
  check_image(op, x, axes);
  const Axes3 out = size.over(axes, op, "size", 1);
  for (int i = 0; i < 3; ++i)
    TD_CHECK(out[i] >= 1 && out[i] < (int64_t{1} << 31), op,
             ": each size must be at least 1 and below 2^31; got ", out, ".");
  return out;
}

Tensors adaptive_max_pool(int axes, const Tensor& x, const PerAxis& size) {
  const char* op = name_of({"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"}, axes);
  return max_pool_op(op, x, PoolAttrs{kZeros, kOnes, kZeros, kOnes, adaptive_size(op, axes, x, size)});
}

Tensor adaptive_avg_pool(int axes, const Tensor& x, const PerAxis& size) {
  const char* op = name_of({"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}, axes);
  ResampleAttrs r;
  r.kind = static_cast<int64_t>(Resample::adaptive);
  r.size = adaptive_size(op, axes, x, size);
  return apply1(op_resample(), {x}, r);
}

Tensor avg_pool(int axes, const Tensor& x, const AvgPoolOptions& o) {
  const char* op = name_of({"avg_pool1d", "avg_pool2d", "avg_pool3d"}, axes);
  check_image(op, x, axes);
  TD_CHECK(o.divisor >= 0, op, ": the divisor must be positive, or 0 for the size of the window; got ",
           o.divisor, ".");
  ResampleAttrs r;
  r.kind = static_cast<int64_t>(Resample::average);
  r.kernel = o.kernel.over(axes, op, "kernel", 1);
  r.stride = (o.stride.given() ? o.stride : o.kernel).over(axes, op, "stride", 1);
  r.padding = o.padding.over(axes, op, "padding", 0);
  r.divisor = static_cast<double>(o.divisor);
  r.include_pad = o.count_include_pad;
  r.size = spatial(pooled_shape(op, x.shape(), r.kernel, r.stride, r.padding, kOnes, o.ceil_mode));
  return apply1(op_resample(), {x}, r);
}

std::pair<Tensor, Tensor> with_indices(const Tensors& pooled) {
  return {pooled[0], cast(pooled[1], DType::i64)};
}

}  // namespace

OpDef& op_max_pool() {
  static OpDef& op = define(OpDef{.name = "max_pool",
                                  .about = "the largest element of each window, and its place",
                                  .function = "max_pool2d",
                                  .inputs = {"x"},
                                  .outputs = {"y", "places"},
                                  .infer = infer_pool,
                                  .gradient = grad_pool,
                                  .saves_outputs = 2});
  return op;
}
OpDef& op_max_pool_scatter() {
  static OpDef& op = define(OpDef{.name = "max_pool_scatter",
                                  .about = "elements added at places that max_pool found",
                                  .function = "",
                                  .inputs = {"g", "places"},
                                  .outputs = {"y"},
                                  .infer = infer_scatter,
                                  .gradient = grad_scatter,
                                  .saves_inputs = 2});
  return op;
}
OpDef& op_max_pool_gather() {
  static OpDef& op = define(OpDef{.name = "max_pool_gather",
                                  .about = "the elements at places that max_pool found",
                                  .function = "",
                                  .inputs = {"x", "places"},
                                  .outputs = {"y"},
                                  .infer = infer_gather,
                                  .gradient = grad_gather,
                                  .saves_inputs = 2});
  return op;
}

Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& o) { return max_pool(1, x, o)[0]; }
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& o) { return max_pool(2, x, o)[0]; }
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& o) { return max_pool(3, x, o)[0]; }

std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& o) {
  return with_indices(max_pool(1, x, o));
}
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& o) {
  return with_indices(max_pool(2, x, o));
}
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& o) {
  return with_indices(max_pool(3, x, o));
}

Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& o) { return avg_pool(1, x, o); }
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& o) { return avg_pool(2, x, o); }
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& o) { return avg_pool(3, x, o); }

Tensor adaptive_avg_pool1d(const Tensor& x, const PerAxis& size) { return adaptive_avg_pool(1, x, size); }
Tensor adaptive_avg_pool2d(const Tensor& x, const PerAxis& size) { return adaptive_avg_pool(2, x, size); }
Tensor adaptive_avg_pool3d(const Tensor& x, const PerAxis& size) { return adaptive_avg_pool(3, x, size); }

Tensor adaptive_max_pool1d(const Tensor& x, const PerAxis& size) { return adaptive_max_pool(1, x, size)[0]; }
Tensor adaptive_max_pool2d(const Tensor& x, const PerAxis& size) { return adaptive_max_pool(2, x, size)[0]; }
Tensor adaptive_max_pool3d(const Tensor& x, const PerAxis& size) { return adaptive_max_pool(3, x, size)[0]; }

std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const PerAxis& size) {
  return with_indices(adaptive_max_pool(1, x, size));
}
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const PerAxis& size) {
  return with_indices(adaptive_max_pool(2, x, size));
}
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, const PerAxis& size) {
  return with_indices(adaptive_max_pool(3, x, size));
}

}  // namespace tandem
