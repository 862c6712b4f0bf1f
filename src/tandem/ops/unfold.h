// Windows of an image as columns, and back.
#pragma once

#include "tandem/core/op.h"
#include "tandem/ops/per_axis.h"

namespace tandem {

struct UnfoldOptions {
  PerAxis kernel = 2;
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis dilation = 1;
};

/// x (N, C, …) with one to three spatial axes -> (N, C · elements of a window, windows).
Tensor unfold(const Tensor& x, const UnfoldOptions& options);
/// The transposed map: columns (N, C · elements of a window, windows) are added up into (N, C, size…). `size` has
/// one number per axis.
Tensor fold(const Tensor& columns, const PerAxis& size, const UnfoldOptions& options);

/// Ops unfold: in x of rank 3 to 5; out columns; size is x's. fold: in columns; out (N, C, size…) with `axes`
/// spatial axes. Each is the other's gradient.
struct UnfoldAttrs {
  Axes3 kernel, stride, padding, dilation, size;
  int64_t axes = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("kernel", &UnfoldAttrs::kernel), field("stride", &UnfoldAttrs::stride),
                 field("padding", &UnfoldAttrs::padding), field("dilation", &UnfoldAttrs::dilation),
                 field("size", &UnfoldAttrs::size), field("axes", &UnfoldAttrs::axes));
  }
  WindowAxis window(int i) const { return {kernel[i], stride[i], padding[i], dilation[i]}; }
  int64_t outputs(int i) const { return window(i).outputs(size[i]); }
};
OpDef& op_unfold();
OpDef& op_fold();

}  // namespace tandem
