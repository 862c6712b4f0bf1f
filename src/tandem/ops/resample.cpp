#include "tandem/ops/resample.h"

#include <cmath>

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

Dims with_spatial(const Dims& like, const Axes3& size) {
  Dims out{like[0], like[1]};
  for (int i = 2; i < like.rank(); ++i) out.push_back(size[i + 3 - like.rank()]);
  return out;
}

/// One axis of the map, between its two sizes.
void check_axis(const InferArgs& args, const ResampleAttrs& r, int i, Dim in, Dim out) {
  const ResampleAxis axis = r.axis(i, in, out);
  TD_CHECK(is_image_size(in) && is_image_size(out), args.op,
           ": each size must be at least 1 and below 2^31 (1 on axes that are not there); got ", in, " and ",
           out, " for ", args.given.print(), ".");
  if (axis.kind == Resample::average) {
    const WindowAxis along{r.kernel[i], r.stride[i], r.padding[i], 1};
    TD_CHECK(along.sound() && 2 * along.padding <= along.kernel && along.fits(in) &&
                 (along.outputs(in) == out || along.outputs(in, true) == out),
             args.op,
             ": windows must fit into the image, padded by at most half of one, and give the size; got ",
             args.given.print(), " for ", in, " and ", out, " elements.");
  }
  TD_CHECK(axis.scale == 0 || (axis.scale > 0 &&
                               std::floor(static_cast<double>(in) * axis.scale) == static_cast<double>(out)),
           args.op, ": a scale must be 0, or lead from one size to the other; got ", axis.scale, " for ", in,
           " to ", out, ".");
}

/// Forward x has the sizes before the map, `size` is what comes out of it; the adjoint goes back.
template <bool is_adjoint>
void infer_resample(InferArgs& args) {
  const auto& r = args.attributes<ResampleAttrs>();
  const Dims& x = args.in[0].shape();
  check_images(args.op, args.in[0]);
  TD_CHECK(r.kind >= 0 && r.kind <= static_cast<int64_t>(Resample::cubic), args.op,
           ": the kind must lie in 0..", static_cast<int64_t>(Resample::cubic), "; got ", r.kind, ".");
  TD_CHECK(r.divisor >= 0 && std::isfinite(r.divisor), args.op,
           ": the divisor must be positive, or 0 for the size of the window; got ", r.divisor, ".");
  for (int i = 0; i < 3; ++i) {
    const int at = x.rank() - 3 + i;  // its axis, where it has one
    const Dim here = at < 2 ? 1 : x[at], there = r.size[i];
    check_axis(args, r, i, is_adjoint ? there : here, is_adjoint ? here : there);
    TD_CHECK(at >= 2 || there == 1, args.op, ": an axis that is not there has size 1; got ",
             args.given.print(), " for x ", x, ".");
  }
  args.add(with_spatial(x, r.size), args.in[0].dtype());
}

Tensors transposed(const GradArgs& a, OpDef& op) {
  auto attrs = a.attributes.as<ResampleAttrs>();
  const Dims& shape = a.in_meta[0].shape;
  attrs.size = {{1, 1, 1}};
  for (int i = 2; i < shape.rank(); ++i) attrs.size[i + 3 - shape.rank()] = shape[i];
  return {apply1(op, {a.grad[0]}, attrs)};
}

/// The kind by its name and the number of axes.
Resample kind_of(const std::string& mode, int axes) {
  if (mode == "nearest") return Resample::nearest;
  if (mode == "nearest-exact") return Resample::nearest_exact;
  if ((mode == "linear" && axes == 1) || (mode == "bilinear" && axes == 2) ||
      (mode == "trilinear" && axes == 3))
    return Resample::linear;
  TD_CHECK(
      mode == "bicubic" && axes == 2,
      "interpolate: the mode must be nearest, nearest-exact, linear (x of rank 3), bilinear or bicubic (4), "
      "trilinear (5); got \"",
      mode, "\" for rank ", axes + 2, ".");
  return Resample::cubic;
}

void check_shuffle(const char* op, const Tensor& x, int64_t factor) {
  TD_CHECK(factor >= 1 && factor < 32768, op, ": the factor must be at least 1 and below 2^15; got ", factor,
           ".");
  TD_CHECK(x.rank() == 4, op, ": x must be (N, C, H, W); got ", x.shape(), ".");
}

}  // namespace

void check_images(const char* op, const Tensor& x) {
  check_floating(op, x);
  TD_CHECK(x.rank() >= 3 && x.rank() <= 5, op, ": x must be (N, C, …) with one to three spatial axes; got ",
           x.shape(), ". unsqueeze() an axis that is missing.");
  for (int i = 2; i < x.rank(); ++i)
    TD_CHECK(is_image_size(x.shape()[i]), op,
             ": each spatial axis must have at least one element and under 2^31; got x ", x.shape(), ".");
}

OpDef& op_resample() {
  static OpDef& op =
      define(OpDef{.name = "resample",
                   .about = "an image in another size",
                   .function = "interpolate",
                   .inputs = {"x"},
                   .outputs = {"y"},
                   .infer = infer_resample<false>,
                   .gradient = [](const GradArgs& a) { return transposed(a, op_resample_adjoint()); }});
  return op;
}
OpDef& op_resample_adjoint() {
  static OpDef& op =
      define(OpDef{.name = "resample_adjoint",
                   .about = "the gradient of resample",
                   .function = "",
                   .inputs = {"g"},
                   .outputs = {"y"},
                   .infer = infer_resample<true>,
                   .gradient = [](const GradArgs& a) { return transposed(a, op_resample()); }});
  return op;
}

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return interpolate(x, o); }, x);
  const char* op = "interpolate";
  const int axes = x.rank() - 2;
  TD_CHECK(is_floating(x.dtype()), op, ": the element type must be floating; got ", x.dtype(),
           ". cast() it first.");
  TD_CHECK(axes >= 1 && axes <= 3, op, ": x must be (N, C, …) with one to three spatial axes; got ",
           x.shape(), ".");
  TD_CHECK(o.size.given() == o.scale.empty(), op, ": either size or scale must be given; got ",
           o.size.given() ? "both" : "neither", ".");
  ResampleAttrs r;
  const Resample kind = kind_of(o.mode, axes);
  r.kind = static_cast<int64_t>(kind);
  r.corners = o.align_corners;
  TD_CHECK(!r.corners || kind == Resample::linear || kind == Resample::cubic, op,
           ": align_corners is for the linear and cubic modes; got mode \"", o.mode, "\".");
  r.size = {{1, 1, 1}};
  double scales[3] = {0, 0, 0};
  if (o.size.given()) {
    r.size = o.size.over(axes, op, "size", 1);
  } else {
    TD_CHECK(o.scale.size() == 1 || static_cast<int>(o.scale.size()) == axes, op,
             ": scale must be one number or one for each of the ", axes, " spatial axes; got ",
             o.scale.size(), " numbers.");
    for (int i = 0; i < axes; ++i) {
      const double scale = o.scale[o.scale.size() == 1 ? 0 : static_cast<size_t>(i)];
      const double wanted = std::floor(static_cast<double>(x.shape()[2 + i]) * scale);
      TD_CHECK(scale > 0 && wanted >= 1 && wanted < 0x1p31, op,
               ": scales must be positive and leave at least one element; got scale ", scale, " for x ",
               x.shape(), ".");
      scales[3 - axes + i] = scale;
      r.size[3 - axes + i] = static_cast<int64_t>(wanted);
    }
  }
  for (int i = 0; i < axes; ++i)
    TD_CHECK(x.shape()[2 + i] >= 1 && x.shape()[2 + i] < (int64_t{1} << 31) && r.size[3 - axes + i] >= 1 &&
                 r.size[3 - axes + i] < (int64_t{1} << 31),
             op, ": each size must be at least 1 and below 2^31; got x ", x.shape(), " and size ",
             r.size[3 - axes + i], " on axis ", 2 + i, ".");
  r.scale_depth = scales[0], r.scale_height = scales[1], r.scale_width = scales[2];
  return apply1(op_resample(), {x}, r);
}

Tensor pixel_shuffle(const Tensor& x, int64_t r) {
  check_shuffle("pixel_shuffle", x, r);
  const Dims& s = x.shape();
  TD_CHECK(s[1] % (r * r) == 0,
           "pixel_shuffle: the channels must be a multiple of the factor's square; got x ", s, " and factor ",
           r, ".");
  const Dim c = s[1] / (r * r);
  return apart_from(x, reshape(permute(reshape(x, {s[0], c, r, r, s[2], s[3]}), {0, 1, 4, 2, 5, 3}),
                               {s[0], c, times_capped(s[2], r), times_capped(s[3], r)}));
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r) {
  check_shuffle("pixel_unshuffle", x, r);
  const Dims& s = x.shape();
  TD_CHECK(s[2] % r == 0 && s[3] % r == 0,
           "pixel_unshuffle: height and width must be multiples of the factor; got x ", s, " and factor ", r,
           ".");
  return apart_from(x,
                    reshape(permute(reshape(x, {s[0], s[1], s[2] / r, r, s[3] / r, r}), {0, 1, 3, 5, 2, 4}),
                            {s[0], times_capped(s[1], r * r), s[2] / r, s[3] / r}));
}

}  // namespace tandem
