// CPU kernels of grid_sample, its adjoint and its gradient with respect to the grid. The pixels that a few points read are
// found once for all channels; each sum runs over points and pixels in order.
// levels: one
#include "tandem/ops/grid_sample.h"

#include <algorithm>
#include <cstring>

#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"
#include "tandem/ops/grid_taps.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kPoints = 64;    // at a time
constexpr int64_t kChannels = 16;  // of the adjoint, that one task adds up

struct Sizes {
  int64_t images, channels, height, width, points;  // points: of one image
  int64_t pixels() const { return height * width; }
};

template <class C>
struct PointTaps {
  GridTaps<C> across, down;
  C none() const { return across.none + down.none; }
};

/// The taps of points [begin, begin + n) of all images' grids.
template <class T, class C>
void find_taps(const GridAttrs& attrs, const Sizes& s, const T* grid, int64_t begin, int64_t n,
               PointTaps<C>* taps) {
  for (int64_t i = 0; i < n; ++i) {
    taps[i].across = grid_taps(attrs, static_cast<C>(grid[2 * (begin + i)]), s.width, attrs.across);
    taps[i].down = grid_taps(attrs, static_cast<C>(grid[2 * (begin + i) + 1]), s.height, attrs.down);
  }
}

/// Calls each(place of the pixel, its numbers across and down) for the pixels of one point that lie in the image.
template <class C, class F>
void each_pixel(const PointTaps<C>& taps, int64_t width, F&& each) {
  for (int y = 0; y < taps.down.count; ++y)
    for (int x = 0; x < taps.across.count; ++x)
      if (taps.down.at[y] >= 0 && taps.across.at[x] >= 0)
        each(taps.down.at[y] * width + taps.across.at[x], x, y);
}

/// Calls f(image, first point of the image, count, taps) for runs of points.
template <class T, class C, class F>
void by_points(const GridAttrs& attrs, const Sizes& s, const T* grid, F&& f) {
  const int64_t runs = (s.points + kPoints - 1) / kPoints;
  parallel_for(s.images * runs, [&](int64_t task) {
    const int64_t image = task / runs, first = task % runs * kPoints;
    const int64_t n = std::min(kPoints, s.points - first);
    PointTaps<C> taps[kPoints];
    find_taps(attrs, s, grid, image * s.points + first, n, taps);
    f(image, first, n, taps);
  });
}

void grid_sample(const KernelArgs& args) {
  const Buffer &x = args.in[0], &grid = args.in[1], &out = args.out[0];
  if (out.size() == 0) return;
  const auto& attrs = args.attributes<GridAttrs>();
  const Sizes s{x.shape[0], x.shape[1], x.shape[2], x.shape[3], grid.shape[1] * grid.shape[2]};
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    by_points<T, C>(
        attrs, s, grid.as<T>(), [&](int64_t image, int64_t first, int64_t n, const PointTaps<C>* taps) {
          for (int64_t c = 0; c < s.channels; ++c) {
            const int64_t plane = image * s.channels + c;
            const T* from = x.as<T>() + plane * s.pixels();
            T* to = out.as<T>() + plane * s.points + first;
            for (int64_t i = 0; i < n; ++i) {
              C sum = taps[i].none();
              each_pixel(taps[i], s.width, [&](int64_t at, int u, int v) {
                sum += taps[i].down.weight[v] * taps[i].across.weight[u] * static_cast<C>(from[at]);
              });
              to[i] = static_cast<T>(sum);
            }
          }
        });
  });
}

/// A task owns some channels of an image, so that their sums run in order.
void grid_sample_adjoint(const KernelArgs& args) {
  const Buffer &g = args.in[0], &grid = args.in[1], &out = args.out[0];
  if (out.size() == 0) return;
  const auto& attrs = args.attributes<GridAttrs>();
  const Sizes s{out.shape[0], out.shape[1], out.shape[2], out.shape[3], grid.shape[1] * grid.shape[2]};
  visit_floating(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;  // 16-bit floats add up in f32 and are rounded once
    C* sums;
    if constexpr (std::is_same_v<T, C>)
      sums = out.as<T>();
    else
      sums = static_cast<C*>(args.workspace(static_cast<size_t>(out.size()) * sizeof(C)));
    const int64_t groups = (s.channels + kChannels - 1) / kChannels;
    // Each task finds the taps of all points again for its kChannels channels: points may read the same pixels, so
    // that they can not be shared out.
    parallel_for(s.images * groups, [&](int64_t task) {
      const int64_t image = task / groups, from = task % groups * kChannels,
                    upto = std::min(from + kChannels, s.channels);
      C* own = sums + (image * s.channels + from) * s.pixels();
      const int64_t size = (upto - from) * s.pixels();
      std::memset(static_cast<void*>(own), 0, static_cast<size_t>(size) * sizeof(C));
      PointTaps<C> taps[kPoints];
      for (int64_t first = 0; first < s.points; first += kPoints) {
        const int64_t n = std::min(kPoints, s.points - first);
        find_taps(attrs, s, grid.as<T>(), image * s.points + first, n, taps);
        for (int64_t c = from; c < upto; ++c) {
          const T* arriving = g.as<T>() + (image * s.channels + c) * s.points + first;
          C* plane = own + (c - from) * s.pixels();
          for (int64_t i = 0; i < n; ++i)
            each_pixel(taps[i], s.width, [&](int64_t at, int u, int v) {
              plane[at] += taps[i].down.weight[v] * taps[i].across.weight[u] * static_cast<C>(arriving[i]);
            });
        }
      }
      if constexpr (!std::is_same_v<T, C>) {
        T* to = out.as<T>() + (image * s.channels + from) * s.pixels();
        for (int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(own[i]);
      }
    });
  });
}

/// A task owns its points, whose sums run over the channels in order.
void grid_sample_grid_gradient(const KernelArgs& args) {
  const Buffer &g = args.in[0], &x = args.in[1], &grid = args.in[2], &out = args.out[0];
  if (out.size() == 0) return;
  const auto& attrs = args.attributes<GridAttrs>();
  const Sizes s{x.shape[0], x.shape[1], x.shape[2], x.shape[3], grid.shape[1] * grid.shape[2]};
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    by_points<T, C>(attrs, s, grid.as<T>(),
                    [&](int64_t image, int64_t first, int64_t n, const PointTaps<C>* taps) {
                      C across[kPoints] = {}, down[kPoints] = {};
                      for (int64_t c = 0; c < s.channels; ++c) {
                        const int64_t plane = image * s.channels + c;
                        const T* from = x.as<T>() + plane * s.pixels();
                        const T* arriving = g.as<T>() + plane * s.points + first;
                        for (int64_t i = 0; i < n; ++i) {
                          C by_x = taps[i].none(), by_y = by_x;
                          each_pixel(taps[i], s.width, [&](int64_t at, int u, int v) {
                            const C value = static_cast<C>(from[at]);
                            by_x += taps[i].down.weight[v] * taps[i].across.slope[u] * value;
                            by_y += taps[i].down.slope[v] * taps[i].across.weight[u] * value;
                          });
                          across[i] += static_cast<C>(arriving[i]) * by_x;
                          down[i] += static_cast<C>(arriving[i]) * by_y;
                        }
                      }
                      T* to = out.as<T>() + 2 * (image * s.points + first);
                      for (int64_t i = 0; i < n; ++i) {
                        to[2 * i] = static_cast<T>(across[i]);
                        to[2 * i + 1] = static_cast<T>(down[i]);
                      }
                    });
  });
}

}  // namespace

void register_grid_sample_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_grid_sample().kernels[kCpu] = grid_sample;
  op_grid_sample_adjoint().kernels[kCpu] = grid_sample_adjoint;
  op_grid_sample_grid_gradient().kernels[kCpu] = grid_sample_grid_gradient;
}

}  // namespace tandem::cpu::TD_ISA
