// grid_sample: one thread per result. Its adjoint sorts what the points read by pixel, stably, so that each pixel adds
// up its own in the order of the points, as on the CPU; no atomics. The gradient of the grid: one thread per point, over
// the channels.
#include <bit>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/sorting.h"
#include "tandem/core/op.h"
#include "tandem/ops/grid_taps.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;
unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

struct Sizes {
  int64_t images, channels, height, width, points;  // points: of one image
  TD_HD int64_t pixels() const { return height * width; }
};

/// The pixels that a point reads: each one across with each one down. `none`: grid_taps.h.
template <class C>
struct PointTaps {
  GridTaps<C> across, down;
  __device__ C none() const { return across.none + down.none; }
};
template <class T, class C>
__device__ PointTaps<C> taps_of(const GridAttrs& attrs, const Sizes& s, const T* grid, int64_t point) {
  return {grid_taps(attrs, static_cast<C>(grid[2 * point]), s.width, attrs.across),
          grid_taps(attrs, static_cast<C>(grid[2 * point + 1]), s.height, attrs.down)};
}

/// Calls each(place of the pixel, its numbers across and down) for the pixels of one point that lie in the image.
template <class C, class F>
__device__ void each_pixel(const PointTaps<C>& taps, int64_t width, const F& each) {
  for (int y = 0; y < taps.down.count; ++y)
    for (int x = 0; x < taps.across.count; ++x)
      if (taps.down.at[y] >= 0 && taps.across.at[x] >= 0)
        each(taps.down.at[y] * width + taps.across.at[x], x, y);
}

/// Thread i makes element i of out (image, channel, point), pixels row by row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const GridAttrs attrs, const Sizes s, int64_t size, const T* __restrict__ x,
                  const T* __restrict__ grid, T* __restrict__ out) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t plane = i / s.points, point = i - plane * s.points, image = plane / s.channels;
  const auto taps = taps_of<T, C>(attrs, s, grid, image * s.points + point);
  const T* from = x + plane * s.pixels();
  C sum = taps.none();
  each_pixel(taps, s.width, [&](int64_t at, int u, int v) {
    sum += taps.down.weight[v] * taps.across.weight[u] * static_cast<C>(from[at]);
  });
  out[i] = static_cast<T>(sum);
}

/// One thread owns both numbers of its point and adds the channels up in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grid_gradient_kernel(const GridAttrs attrs, const Sizes s, const T* __restrict__ g,
                         const T* __restrict__ x, const T* __restrict__ grid, T* __restrict__ out) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.images * s.points) return;
  const int64_t image = i / s.points, point = i - image * s.points;
  const auto taps = taps_of<T, C>(attrs, s, grid, i);
  C across = 0, down = 0;
  for (int64_t c = 0; c < s.channels; ++c) {
    const int64_t plane = image * s.channels + c;
    const T* from = x + plane * s.pixels();
    C by_x = taps.none(), by_y = by_x;
    each_pixel(taps, s.width, [&](int64_t at, int u, int v) {
      const C value = static_cast<C>(from[at]);
      by_x += taps.down.weight[v] * taps.across.slope[u] * value;
      by_y += taps.down.slope[v] * taps.across.weight[u] * value;
    });
    const C arriving = static_cast<C>(g[plane * s.points + point]);
    across += arriving * by_x;
    down += arriving * by_y;
  }
  out[2 * i] = static_cast<T>(across);
  out[2 * i + 1] = static_cast<T>(down);
}

/// One entry for each pixel that a point reads: its place among those of all images as the key, and its weight.
/// A pixel outside the image gets the key behind all others, `nowhere`. Entry e belongs to point e / taps_each.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    entries_kernel(const GridAttrs attrs, const Sizes s, int taps_each, const T* __restrict__ grid,
                   uint64_t* __restrict__ keys, uint32_t* __restrict__ entries, C* __restrict__ weights) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.images * s.points) return;
  const auto taps = taps_of<T, C>(attrs, s, grid, i);
  const int64_t first = i * taps_each, base = i / s.points * s.pixels(), nowhere = s.images * s.pixels();
  for (int k = 0; k < taps_each; ++k) {
    const int v = k / taps.across.count, u = k - v * taps.across.count;
    const bool inside = taps.down.at[v] >= 0 && taps.across.at[u] >= 0;
    keys[first + k] =
        static_cast<uint64_t>(inside ? base + taps.down.at[v] * s.width + taps.across.at[u] : nowhere);
    entries[first + k] = static_cast<uint32_t>(first + k);
    weights[first + k] = taps.down.weight[v] * taps.across.weight[u];
  }
}

/// The first sorted entry of a pixel adds up all of them, for one channel.
/// Thread t stands for sorted entry t % count and channel t / count. So each pixel of a channel has one writer;
/// pixels that nobody reads keep the zero that was there before.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    pixel_sums_kernel(const Sizes s, int taps_each, int64_t count, const uint64_t* __restrict__ keys,
                      const uint32_t* __restrict__ entries, const C* __restrict__ weights,
                      const T* __restrict__ g, T* __restrict__ out) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= count * s.channels) return;
  const int64_t c = t / count, p = t - c * count;
  const uint64_t key = keys[p];
  if (key == static_cast<uint64_t>(s.images * s.pixels()) || (p > 0 && keys[p - 1] == key)) return;
  const int64_t image = static_cast<int64_t>(key) / s.pixels(),
                pixel = static_cast<int64_t>(key) - image * s.pixels();
  const int64_t plane = image * s.channels + c;
  // entry / taps_each counts the points of all images, g (image, channel, point) those of one.
  const T* arriving = g + plane * s.points - image * s.points;
  C sum = 0;
  for (int64_t q = p; q < count && keys[q] == key; ++q) {
    const int64_t entry = entries[q];
    sum += weights[entry] * static_cast<C>(arriving[entry / taps_each]);
  }
  out[plane * s.pixels() + pixel] = static_cast<T>(sum);
}

void grid_sample_any(const KernelArgs& args) {
  const Buffer &x = args.in[0], &grid = args.in[1], &out = args.out[0];
  const int64_t size = out.size();
  if (size == 0) return;
  const Sizes s{x.shape[0], x.shape[1], x.shape[2], x.shape[3], grid.shape[1] * grid.shape[2]};
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    sample_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
        args.attributes<GridAttrs>(), s, size, x.as<T>(), grid.as<T>(), out.as<T>());
  });
  launched("sample_kernel");
}

void grid_gradient_any(const KernelArgs& args) {
  const Buffer &g = args.in[0], &x = args.in[1], &grid = args.in[2], &out = args.out[0];
  if (out.size() == 0) return;
  const Sizes s{x.shape[0], x.shape[1], x.shape[2], x.shape[3], grid.shape[1] * grid.shape[2]};
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    grid_gradient_kernel<T><<<blocks_for(s.images * s.points), kThreads, 0, stream_of(args)>>>(
        args.attributes<GridAttrs>(), s, g.as<T>(), x.as<T>(), grid.as<T>(), out.as<T>());
  });
  launched("grid_gradient_kernel");
}

void adjoint_any(const KernelArgs& args) {
  const Buffer &g = args.in[0], &grid = args.in[1], &out = args.out[0];
  if (out.size() == 0) return;
  check(cudaMemsetAsync(out.data, 0, static_cast<size_t>(out.size()) * bytes_of(out.dtype), stream_of(args)),
        "cudaMemsetAsync");
  const auto& attrs = args.attributes<GridAttrs>();
  const Sizes s{out.shape[0], out.shape[1], out.shape[2], out.shape[3], grid.shape[1] * grid.shape[2]};
  const auto mode = static_cast<GridMode>(attrs.mode);
  const int taps_each = mode == GridMode::nearest ? 1 : (mode == GridMode::bilinear ? 4 : 16);
  const int64_t points = s.images * s.points, count = points * taps_each;
  TD_CHECK(count < int64_t{1} << 31,
           "grid_sample: on a GPU the points of the grid must read under 2^31 pixels; got ", count,
           ". Split the batch.");
  if (count == 0) return;
  // The weights lie behind the sort's memory: 8 bytes each are enough for either type.
  SortBuffers sorted =
      sort_buffers(args.workspace(sort_workspace(count, static_cast<size_t>(count) * sizeof(double))), count);
  visit_floating(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    auto* weights = reinterpret_cast<C*>(sorted.rest);
    entries_kernel<T, C><<<blocks_for(points), kThreads, 0, stream_of(args)>>>(
        attrs, s, taps_each, grid.as<T>(), sorted.keys, sorted.values, weights);
    launched("entries_kernel");
    sort_pairs(stream_of(args), sorted, count, std::bit_width(static_cast<uint64_t>(s.images * s.pixels())));
    pixel_sums_kernel<T, C><<<blocks_for(count * s.channels), kThreads, 0, stream_of(args)>>>(
        s, taps_each, count, sorted.keys, sorted.values, weights, g.as<T>(), out.as<T>());
    launched("pixel_sums_kernel");
  });
}

}  // namespace

void register_grid_sample_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_grid_sample().kernels[kCuda] = &grid_sample_any;
  op_grid_sample_adjoint().kernels[kCuda] = &adjoint_any;
  op_grid_sample_grid_gradient().kernels[kCuda] = &grid_gradient_any;
}

}  // namespace tandem::cuda
