// Max pooling and its two companions. One thread an output element, in fixed order: the scatter looks, for each
// input place, at the windows that cover it, so that overlapping windows sum without atomics.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/op.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

struct PoolShape {
  int height, width;          // of the large side
  int out_height, out_width;  // of the pooled side
  int kernel, stride, padding;
  FastDivide by_plane, by_width, by_out_plane, by_out_width, by_stride;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ x, T* __restrict__ values,
                    int* __restrict__ positions) {
  using C = typename ComputeType<T>::type;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const uint32_t plane = s.by_out_plane.divide(i);
  const int place = static_cast<int>(i - plane * s.by_out_plane.divisor);
  const int oh = static_cast<int>(s.by_out_width.divide(place)), ow = place - oh * s.out_width;
  const T* from = x + static_cast<int64_t>(plane) * s.height * s.width;
  const int h0 = oh * s.stride - s.padding, w0 = ow * s.stride - s.padding;
  const int h_end = min(h0 + s.kernel, s.height), w_end = min(w0 + s.kernel, s.width);
  int best = -1;
  C largest = 0;
  for (int h = max(h0, 0); h < h_end; ++h)
    for (int w = max(w0, 0); w < w_end; ++w) {
      const C v = static_cast<C>(from[h * s.width + w]);
      // A NaN replaces any number; nothing replaces a NaN.
      const bool wins = best < 0 || (largest == largest && (v > largest || v != v));
      largest = wins ? v : largest;
      best = wins ? h * s.width + w : best;
    }
  values[i] = static_cast<T>(largest);
  positions[i] = best;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_scatter_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ g,
                        const int* __restrict__ positions, T* __restrict__ out) {
  using C = typename ComputeType<T>::type;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const uint32_t plane = s.by_plane.divide(i);
  const int place = static_cast<int>(i - plane * s.by_plane.divisor);
  const int h = static_cast<int>(s.by_width.divide(place)), w = place - h * s.width;
  const int64_t base = static_cast<int64_t>(plane) * s.out_height * s.out_width;
  // Windows that cover h: oh · stride - padding <= h < oh · stride - padding + kernel.
  const int above = h + s.padding - s.kernel, left = w + s.padding - s.kernel;
  const int oh0 = above < 0 ? 0 : static_cast<int>(s.by_stride.divide(above)) + 1;
  const int ow0 = left < 0 ? 0 : static_cast<int>(s.by_stride.divide(left)) + 1;
  const int oh1 = min(static_cast<int>(s.by_stride.divide(h + s.padding)), s.out_height - 1);
  const int ow1 = min(static_cast<int>(s.by_stride.divide(w + s.padding)), s.out_width - 1);
  C sum = 0;
  for (int oh = oh0; oh <= oh1; ++oh)
    for (int ow = ow0; ow <= ow1; ++ow) {
      const int64_t at = base + oh * s.out_width + ow;
      if (positions[at] == place) sum += static_cast<C>(g[at]);
    }
  out[i] = static_cast<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_gather_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ x,
                       const int* __restrict__ positions, T* __restrict__ out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t plane = s.by_out_plane.divide(i);
  out[i] = x[plane * s.height * s.width + positions[i]];
}

/// An empty image may have windows, all padding; nothing is divided by its size then.
FastDivide divide_by(int size) { return FastDivide(static_cast<uint32_t>(size > 0 ? size : 1)); }

PoolShape pool_shape(const Buffer& large, const Buffer& pooled, const PoolAttrs& a) {
  PoolShape s;
  s.height = static_cast<int>(large.shape[2]);
  s.width = static_cast<int>(large.shape[3]);
  s.out_height = static_cast<int>(pooled.shape[2]);
  s.out_width = static_cast<int>(pooled.shape[3]);
  s.kernel = static_cast<int>(a.kernel);
  s.stride = static_cast<int>(a.stride);
  s.padding = static_cast<int>(a.padding);
  s.by_plane = divide_by(s.height * s.width);
  s.by_width = divide_by(s.width);
  s.by_out_plane = divide_by(s.out_height * s.out_width);
  s.by_out_width = divide_by(s.out_width);
  s.by_stride = divide_by(s.stride);
  return s;
}

/// Calls f(large offset, pooled offset, planes) for pieces of N · C planes whose elements fit 31 bits.
template <class F>
void in_planes(const Buffer& large, const Buffer& pooled, const F& f) {
  const int64_t planes = large.shape[0] * large.shape[1], large_plane = large.shape[2] * large.shape[3],
                pooled_plane = pooled.shape[2] * pooled.shape[3];
  const int64_t plane = large_plane > pooled_plane ? large_plane : pooled_plane;
  TD_CHECK(plane <= int64_t{1} << 30, "max_pool2d: on a GPU a plane has at most 2^30 elements; got ", plane,
           ". Cut the image.");
  const int64_t step = (int64_t{1} << 30) / plane;
  for (int64_t p = 0; p < planes; p += step)
    f(p * large_plane, p * pooled_plane, planes - p < step ? planes - p : step);
}

unsigned blocks_for(uint32_t size) { return (size + kThreads - 1) / kThreads; }

void max_pool(const KernelArgs& args) {
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(x, out, args.attributes<PoolAttrs>());
  visit_dtype(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    in_planes(x, out, [&](int64_t large, int64_t pooled, int64_t planes) {
      const uint32_t size = static_cast<uint32_t>(planes) * shape.by_out_plane.divisor;
      max_pool_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
          shape, size, x.as<T>() + large, out.as<T>() + pooled, args.out[1].as<int>() + pooled);
    });
  });
  launched("max_pool_kernel");
}

void pool_scatter(const KernelArgs& args) {
  const Buffer &g = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(out, g, args.attributes<PoolAttrs>());
  visit_floating(g.dtype, [&](auto zero) {
    using T = decltype(zero);
    in_planes(out, g, [&](int64_t large, int64_t pooled, int64_t planes) {
      const uint32_t size = static_cast<uint32_t>(planes) * shape.by_plane.divisor;
      pool_scatter_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
          shape, size, g.as<T>() + pooled, args.in[1].as<int>() + pooled, out.as<T>() + large);
    });
  });
  launched("pool_scatter_kernel");
}

void pool_gather(const KernelArgs& args) {
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(x, out, args.attributes<PoolAttrs>());
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    in_planes(x, out, [&](int64_t large, int64_t pooled, int64_t planes) {
      const uint32_t size = static_cast<uint32_t>(planes) * shape.by_out_plane.divisor;
      pool_gather_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
          shape, size, x.as<T>() + large, args.in[1].as<int>() + pooled, out.as<T>() + pooled);
    });
  });
  launched("pool_gather_kernel");
}

}  // namespace

void register_pool_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_max_pool2d().kernels[kCuda] = &max_pool;
  op_max_pool2d_scatter().kernels[kCuda] = &pool_scatter;
  op_max_pool2d_gather().kernels[kCuda] = &pool_gather;
}

}  // namespace tandem::cuda
