// roi_align: the parts of images that boxes cover, each in one size.
#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

constexpr int64_t kMost = 1 << 20;  // of points along an axis

void infer_roi_align(InferArgs& args) {
  const Tensor &x = args.in[0], &boxes = args.in[1], &images = args.in[2];
  const auto& a = args.attributes<RoiAlignAttrs>();
  TD_CHECK(a.height >= 1 && a.width >= 1 && a.samples >= 1 && times_capped(a.height, a.samples) <= kMost &&
               times_capped(a.width, a.samples) <= kMost,
           args.op, ": size and samples must lie in 1..", kMost, ", and their products, too; got size ",
           a.height, " by ", a.width, " and samples ", a.samples, ".");
  TD_CHECK(std::isfinite(a.scale) && a.scale > 0, args.op, ": the scale must be positive and finite; got ",
           a.scale, ".");
  check_floating(args.op, x);
  TD_CHECK(x.rank() == 4 && is_image_size(x.size(2)) && is_image_size(x.size(3)) &&
               is_image_size(times_capped(x.size(2), x.size(3))),
           args.op, ": x must be (N, C, H, W) with at least one pixel and under 2^31; got ", x.shape(), ".");
  TD_CHECK(boxes.rank() == 2 && boxes.size(1) == 4 && boxes.dtype() == x.dtype(), args.op,
           ": the boxes must be (R, 4) of x's type, ", x.dtype(), "; got ", describe(boxes),
           ". Their columns are x1, y1, x2, y2.");
  TD_CHECK(images.rank() == 1 && images.size(0) == boxes.size(0) && images.dtype() == DType::i64, args.op,
           ": images must be i64 with one number for each of the ", boxes.size(0), " boxes; got ",
           describe(images), ".");
  const Dims shape{boxes.size(0), x.size(1), a.height, a.width};
  size_of(shape);
  args.add(shape, x.dtype());
}

/// The points of one axis, (R, bins · samples): the two pixels that each lies between, and how much these count. A point
/// further than a pixel outside of the image reads nothing.
struct Points {
  Tensor inside;               // bool
  Tensor low, high;            // i64
  Tensor low_part, high_part;  // 0 … 1
};
Points points_along(const Tensor& begin, const Tensor& end, int64_t bins, Dim pixels,
                    const RoiAlignAttrs& a) {
  const double shift = a.aligned ? 0.5 : 0;
  const Tensor first = begin * a.scale - shift;
  const Tensor length = a.aligned ? (end - begin) * a.scale : maximum((end - begin) * a.scale, 1);
  const int64_t count = bins * a.samples;
  const Tensor along = (arange(count, begin.dtype(), begin.device()) + 0.5) / static_cast<double>(count);
  const Tensor at = unsqueeze(first, 1) + unsqueeze(length, 1) * along;
  const Tensor inside = logical_and(at >= -1, at <= static_cast<double>(pixels));
  const Tensor place = clamp(where(inside, at, 0), 0, static_cast<double>(pixels - 1));
  const Tensor low = floor(place), part = place - low;
  const Tensor low_pixel =
      minimum(cast(low, DType::i64), pixels - 1);  // a large size is none of f32's numbers
  return {inside, low_pixel, minimum(low_pixel + 1, pixels - 1), 1 - part, part};
}

Tensors roi_align_composed(const ComposedArgs& args) {
  const auto& a = args.attributes.as<RoiAlignAttrs>();
  const DType given = args.in[0].dtype(), type = bytes_of(given) < 4 ? DType::f32 : given;
  const Tensor x = cast(args.in[0], type), boxes = cast(args.in[1], type), &images = args.in[2];
  const Dim channels = x.size(1), height = x.size(2), width = x.size(3), count = boxes.size(0);
  const Points down = points_along(select(boxes, 1, 1), select(boxes, 1, 3), a.height, height, a);
  const Points across = points_along(select(boxes, 1, 0), select(boxes, 1, 2), a.width, width, a);
  const Tensor pixels = reshape(permute(x, {0, 2, 3, 1}), {x.size(0) * height * width, channels});
  const Tensor first_pixels =
      index_select(arange(x.size(0), DType::i64, x.device()) * (height * width), 0, images);
  const Tensor first = reshape(first_pixels, {count, 1, 1});
  const Tensor inside = unsqueeze(logical_and(unsqueeze(down.inside, 2), unsqueeze(across.inside, 1)), 3);
  const auto corner = [&](const Tensor& y, const Tensor& x, const Tensor& part_y, const Tensor& part_x) {
    const Tensor place = first + unsqueeze(y, 2) * width + unsqueeze(x, 1);
    const Tensor values =
        reshape(index_select(pixels, 0, reshape(place, {-1})), {count, y.size(1), x.size(1), channels});
    return where(inside, values, 0) * unsqueeze(unsqueeze(part_y, 2) * unsqueeze(part_x, 1), 3);
  };
  const Tensor points = corner(down.low, across.low, down.low_part, across.low_part) +
                        corner(down.low, across.high, down.low_part, across.high_part) +
                        corner(down.high, across.low, down.high_part, across.low_part) +
                        corner(down.high, across.high, down.high_part, across.high_part);
  const Tensor bins =
      mean(reshape(points, {count, a.height, a.samples, a.width, a.samples, channels}), {2, 4});
  return {cast(permute(bins, {0, 3, 1, 2}), given)};
}

/// Of each point four products and sums.
int64_t roi_align_flops(const KernelArgs& args) {
  const auto& a = args.attributes<RoiAlignAttrs>();
  return 8 * args.out[0].size() * a.samples * a.samples;
}

}  // namespace

OpDef& op_roi_align() {
  static OpDef& op = define(OpDef{.name = "roi_align",
                                  .about = "the parts of images that boxes cover, each in one size",
                                  .inputs = {"x", "boxes", "images"},
                                  .outputs = {"y"},
                                  .infer = infer_roi_align,
                                  .composed = roi_align_composed,
                                  .effects = {.refuses = true},  // an image that is not there
                                  .precision = Precision::full,
                                  .flops = roi_align_flops});
  return op;
}

Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images, const RoiAlignOptions& o) {
  const Axes3 size = o.size.over(2, "roi_align", "size", 1);
  return apply1(op_roi_align(), {x, boxes, images},
                RoiAlignAttrs{size[1], size[2], o.samples, o.scale, o.aligned});
}

}  // namespace tandem
