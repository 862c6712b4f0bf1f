// Pools over one, two or three spatial axes: the largest element or the mean of each window, or of each box in an image.
#pragma once

#include <utility>

#include "tandem/core/op.h"
#include "tandem/ops/per_axis.h"

namespace tandem {

struct MaxPoolOptions {
  PerAxis kernel = 2;
  PerAxis stride = {};  ///< not given: the kernel
  PerAxis padding = 0;  ///< at most kernel / 2; padded places never win
  PerAxis dilation = 1;
  bool ceil_mode = false;  ///< windows that leave the image at its end count too
};
using Pool2dOptions = MaxPoolOptions;

/// x (N, C, …) -> (N, C, …'). A NaN in a window wins it; among equals the first wins.
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options = {});

/// Values, and where they stood: i64 places within a plane, w for one axis, h · W + w for two,
/// (d · H + h) · W + w for three.
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& options = {});

struct AvgPoolOptions {
  PerAxis kernel = 2;
  PerAxis stride = {};  ///< not given: the kernel
  PerAxis padding = 0;  ///< at most kernel / 2; zeros
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< the mean counts the zeros of the padding
  int64_t divisor = 0;            ///< sums are divided by this instead, where it is not 0
};
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options = {});

/// `size` windows an axis, which share the image out evenly.
Tensor adaptive_avg_pool1d(const Tensor& x, const PerAxis& size);
Tensor adaptive_avg_pool2d(const Tensor& x, const PerAxis& size);
Tensor adaptive_avg_pool3d(const Tensor& x, const PerAxis& size);
Tensor adaptive_max_pool1d(const Tensor& x, const PerAxis& size);
Tensor adaptive_max_pool2d(const Tensor& x, const PerAxis& size);
Tensor adaptive_max_pool3d(const Tensor& x, const PerAxis& size);
std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const PerAxis& size);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const PerAxis& size);
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, const PerAxis& size);

struct RoiAlignOptions {
  PerAxis size = 7;  ///< bins of a box, down and across
  double scale =
      1;  ///< pixels of x for one unit of the boxes: 1 / 16 where x is 16 times as small as the picture
  int64_t samples = 2;  ///< points of a bin, each way
  bool aligned =
      false;  ///< a box at 0 begins half a pixel before the first pixel's centre, as it should; else at it
};
/// The parts of images that boxes cover, each in one size: x (N, C, H, W), boxes (R, 4) of x1, y1, x2, y2, images (R) of i64,
/// which say whose boxes they are; (R, C, size…). Each bin is the mean of points between the pixels. As torchvision's with a
/// sampling ratio; gradients go to the boxes, too.
Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images,
                 const RoiAlignOptions& options = {});

/// Op roi_align: in x, boxes, images, all row-major.
struct RoiAlignAttrs {
  int64_t height = 1, width = 1, samples = 1;
  double scale = 1;
  bool aligned = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("height", &RoiAlignAttrs::height), field("width", &RoiAlignAttrs::width),
                 field("samples", &RoiAlignAttrs::samples), field("scale", &RoiAlignAttrs::scale),
                 field("aligned", &RoiAlignAttrs::aligned));
  }
};
OpDef& op_roi_align();

/// Op max_pool: in x of rank 3 to 5; out values and, as i32, the winner's place within its plane (or volume).
/// max_pool_scatter: in g (N, C, …'), places; out (N, C, size…), sums where windows overlap.
/// max_pool_gather: in x (N, C, …), places (N, C, …'); out x at the places.
/// A place outside of its plane writes nothing and reads as zero.
/// `size` is the pooled one in max_pool, 0 in the gather. kernel 0: adaptive. Axes that are not there have
/// size 1.
struct PoolAttrs {
  Axes3 kernel, stride, padding, dilation;
  Axes3 size{};
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("kernel", &PoolAttrs::kernel), field("stride", &PoolAttrs::stride),
                 field("padding", &PoolAttrs::padding), field("dilation", &PoolAttrs::dilation),
                 field("size", &PoolAttrs::size));
  }
};
OpDef& op_max_pool();
OpDef& op_max_pool_scatter();
OpDef& op_max_pool_gather();

}  // namespace tandem
