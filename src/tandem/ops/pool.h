// Max pooling in NCHW.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

struct Pool2dOptions {
  int64_t kernel = 2;
  int64_t stride = 0;   ///< 0 = kernel
  int64_t padding = 0;  ///< at most kernel / 2; padded places never win
};

/// x (N, C, H, W) -> (N, C, H', W'). A NaN in a window wins it; among equals the first wins.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options = {});

/// Op max_pool2d: in x; out values and, as i32, the winner's position h * W + w within its plane.
/// max_pool2d_scatter: in g (N, C, H', W'), positions; out (N, C, height, width), sums where windows overlap.
/// max_pool2d_gather: in x (N, C, H, W), positions (N, C, H', W'); out x at the positions.
struct PoolAttrs {
  int64_t kernel = 2, stride = 2, padding = 0;
  int64_t height = 0, width = 0;  // of the scatter's output
  static auto fields() {
    return std::tuple{field("kernel", &PoolAttrs::kernel), field("stride", &PoolAttrs::stride),
                      field("padding", &PoolAttrs::padding), field("height", &PoolAttrs::height),
                      field("width", &PoolAttrs::width)};
  }
};
OpDef& op_max_pool2d();
OpDef& op_max_pool2d_scatter();
OpDef& op_max_pool2d_gather();

}  // namespace tandem
