// Sampling of images at the points of a grid, for spatial transformers and flow fields.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

enum class GridMode : uint8_t { bilinear, nearest, bicubic };
/// What stands outside of the image: zeros, its nearest pixel, or its mirror image.
enum class GridPadding : uint8_t { zeros, border, reflection };
struct GridSampleOptions {
  GridMode mode = GridMode::bilinear;
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;  ///< -1 and 1 are the centres of the outermost pixels, else their outer edges
};
/// x (N, C, H, W) read at grid (N, H', W', 2), whose last axis holds x (along W) and y (along H) from -1 to 1:
/// (N, C, H', W'), as PyTorch's. Derivatives exist to every order.
///
/// Where a coordinate is infinite or NaN, as on PyTorch's CPU: bicubic samples are NaN. With zeros, bilinear ones are NaN, too,
/// as is the gradient of the grid, and nearest ones are 0. With border an infinite coordinate reads the edge and NaN the first
/// pixel; with reflection both read the first pixel.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});
/// The grid (N, H, W, 2) of the affine maps theta (N, 2, 3), for an output of `shape` (N, C, H, W).
Tensor affine_grid(const Tensor& theta, const Dims& shape, bool align_corners = false);

/// Ops, all of row-major tensors of one floating type. grid_sample: in x, grid; out (N, C, H', W'). Its adjoint: in g
/// (N, C, H', W'), grid; out (N, C, height, width). Both with the weights of the pixels, or with their derivatives by the grid's
/// coordinates. grid_sample_grid_gradient: in g, x, grid; out like grid, for the weights themselves.
struct GridAttrs {
  int64_t mode = 0, padding = 0;  // a GridMode, a GridPadding
  bool corners = false;
  int64_t height = 0, width = 0;  // the adjoint's
  int64_t across = 0, down = 0;   // which derivative of the weights along each axis; not the grid gradient's
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("mode", &GridAttrs::mode), field("padding", &GridAttrs::padding),
                 field("corners", &GridAttrs::corners), field("height", &GridAttrs::height),
                 field("width", &GridAttrs::width), field("across", &GridAttrs::across),
                 field("down", &GridAttrs::down));
  }
};
OpDef& op_grid_sample();
OpDef& op_grid_sample_adjoint();
OpDef& op_grid_sample_grid_gradient();

}  // namespace tandem
