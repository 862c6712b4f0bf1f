// Interpolation, and the op that it shares with the average pools: a linear map along each spatial axis.
#pragma once

#include <string>

#include "tandem/core/op.h"
#include "tandem/ops/per_axis.h"
#include "tandem/ops/windows.h"

namespace tandem {

struct InterpolateOptions {
  PerAxis size = {};  ///< of the result; or
  /// the factors, one for all axes or one for each.
  std::vector<double> scale = {};
  /// "nearest", "nearest-exact", "linear" (1 axis; "bilinear" with 2 and "trilinear" with 3 mean the same),
  /// "bicubic" (2 axes).
  std::string mode = "nearest";
  bool align_corners = false;  ///< linear and cubic: the corners of x and of the result coincide
};

/// x (N, C, …) with one to three spatial axes -> (N, C, size…).
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

/// (N, C · r², H, W) -> (N, C, H · r, W · r), and back.
Tensor pixel_shuffle(const Tensor& x, int64_t factor);
Tensor pixel_unshuffle(const Tensor& x, int64_t factor);

/// Op resample: in x (N, C, …) of rank 3 to 5; out (N, C, size…). resample_adjoint: the transposed map, in g
/// (N, C, …'); out (N, C, size…). Each is the other's gradient. Axes that are not there have size 1.
struct ResampleAttrs {
  int64_t kind = 0;  // a Resample
  Axes3 size{};
  Axes3 kernel{}, stride{}, padding{};  // average
  double divisor = 0;                   // average; 0: the length of the window
  double scale_depth = 0, scale_height = 0, scale_width = 0;
  bool include_pad = false, corners = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("kind", &ResampleAttrs::kind), field("size", &ResampleAttrs::size),
                 field("kernel", &ResampleAttrs::kernel), field("stride", &ResampleAttrs::stride),
                 field("padding", &ResampleAttrs::padding), field("divisor", &ResampleAttrs::divisor),
                 field("scale_depth", &ResampleAttrs::scale_depth),
                 field("scale_height", &ResampleAttrs::scale_height),
                 field("scale_width", &ResampleAttrs::scale_width),
                 field("include_pad", &ResampleAttrs::include_pad),
                 field("corners", &ResampleAttrs::corners));
  }
  /// The map of one axis, between its two sizes.
  ResampleAxis axis(int i, int64_t in, int64_t out) const {
    const double scales[] = {scale_depth, scale_height, scale_width};
    return {static_cast<Resample>(kind),
            corners,
            include_pad,
            in,
            out,
            kernel[i],
            stride[i],
            padding[i],
            divisor > 0 ? (i == 2 ? 1 / divisor : 1.0) : 0.0,
            scales[i]};
  }
};
/// What the ops on images take: floating, (N, C, …) with one to three spatial axes, each of at least one element and under
/// 2^31.
void check_images(const char* op, const Tensor& x);
OpDef& op_resample();
OpDef& op_resample_adjoint();

}  // namespace tandem
