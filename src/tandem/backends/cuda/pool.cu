// Max pooling and its two companions. One thread per output element, in fixed order: the scatter looks, for each
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

/// Sizes by axis: depth, height, width. kernel 0: adaptive.
struct PoolShape {
  int in[3], out[3];  // of the large and the pooled side
  int kernel[3], stride[3], padding[3], dilation[3];
  int large, pooled;  // elements of an image
  bool is_plain;      // planes, neither adaptive nor dilated: most pools, whose kernels need less arithmetic
  FastDivide by_large, by_pooled, by_in[3], by_out[3], by_stride[3];
};

struct Range {
  int begin, end, step;
};

/// What window i of an axis covers, without padding.
/// Adaptive: from i · in / out, rounded down, to (i + 1) · in / out, rounded up. Else the padding is cut off; with a
/// dilation the first place that is inside stays on the window's own grid of steps.
template <bool kPlain>
__device__ __forceinline__ Range window(const PoolShape& s, int axis, int i) {
  const int in = s.in[axis];
  if constexpr (kPlain) {
    if (axis == 0) return {0, 1, 1};
    const int start = i * s.stride[axis] - s.padding[axis];
    return {max(start, 0), min(start + s.kernel[axis], in), 1};
  }
  if (s.kernel[axis] == 0) {
    const int64_t out = s.out[axis], first = static_cast<int64_t>(i) * in;
    return {static_cast<int>(first / out), static_cast<int>((first + in + out - 1) / out), 1};
  }
  const int step = s.dilation[axis], start = i * s.stride[axis] - s.padding[axis];
  const int begin = start < 0 ? start + (step - 1 - start) / step * step : start;
  return {begin, min(start + step * (s.kernel[axis] - 1) + 1, in), step};
}

/// The windows begin … end - 1 of an axis are those that may cover element j.
/// They may be more than do cover it: the caller compares positions.
template <bool kPlain>
__device__ __forceinline__ Range windows_over(const PoolShape& s, int axis, int j) {
  if (kPlain && axis == 0) return {0, 1, 1};
  const int out = s.out[axis];
  if (!kPlain && s.kernel[axis] == 0) {  // i · in / out <= j < (i + 1) · in / out, rounded outwards
    const int64_t in = s.in[axis], at = static_cast<int64_t>(j) * out;
    return {static_cast<int>(at / in), min(static_cast<int>((at + out + in - 1) / in), out), 1};
  }
  const int reach = kPlain ? s.kernel[axis] - 1 : s.dilation[axis] * (s.kernel[axis] - 1);
  const int first = j + s.padding[axis] - reach - 1;
  return {first < 0 ? 0 : static_cast<int>(s.by_stride[axis].divide(first)) + 1,
          min(static_cast<int>(s.by_stride[axis].divide(j + s.padding[axis])) + 1, out), 1};
}

/// A place within an image as coordinates.
template <bool kPlain>
__device__ __forceinline__ void split(int place, const FastDivide (&sizes)[3], int (&at)[3]) {
  uint32_t rest = static_cast<uint32_t>(place);
#pragma unroll
  for (int a = 2; a > (kPlain ? 1 : 0); --a) {
    const uint32_t q = sizes[a].divide(rest);
    at[a] = static_cast<int>(rest - q * sizes[a].divisor);
    rest = q;
  }
  at[kPlain ? 1 : 0] = static_cast<int>(rest);
  if (kPlain) at[0] = 0;
}

/// Thread i makes pooled element i; of equal values the first in memory order wins.
template <class T, bool kPlain>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ x, T* __restrict__ values,
                    int* __restrict__ positions) {
  using C = typename ComputeType<T>::type;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const uint32_t image = s.by_pooled.divide(i);
  int at[3];
  split<kPlain>(static_cast<int>(i - image * s.by_pooled.divisor), s.by_out, at);
  const T* from = x + static_cast<int64_t>(image) * s.large;
  const Range depth = window<kPlain>(s, 0, at[0]), row = window<kPlain>(s, 1, at[1]),
              column = window<kPlain>(s, 2, at[2]);
  int best = -1;
  C largest = 0;
  for (int d = depth.begin; d < depth.end; d += depth.step)
    for (int h = row.begin; h < row.end; h += row.step)
      for (int w = column.begin; w < column.end; w += column.step) {
        const int place = (d * s.in[1] + h) * s.in[2] + w;
        const C v = static_cast<C>(from[place]);
        // A NaN replaces any number; nothing replaces a NaN.
        const bool wins = best < 0 || (largest == largest && (v > largest || v != v));
        largest = wins ? v : largest;
        best = wins ? place : best;
      }
  values[i] = static_cast<T>(largest);
  positions[i] = best;
}

/// Thread i makes input place i: the sum of g over the windows whose position it is, in their order.
template <class T, bool kPlain>
__global__ void __launch_bounds__(kThreads)
    pool_scatter_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ g,
                        const int* __restrict__ positions, T* __restrict__ out) {
  using C = typename ComputeType<T>::type;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const uint32_t image = s.by_large.divide(i);
  const int place = static_cast<int>(i - image * s.by_large.divisor);
  int at[3];
  split<kPlain>(place, s.by_in, at);
  const int64_t base = static_cast<int64_t>(image) * s.pooled;
  const Range depth = windows_over<kPlain>(s, 0, at[0]), row = windows_over<kPlain>(s, 1, at[1]),
              column = windows_over<kPlain>(s, 2, at[2]);
  C sum = 0;
  for (int d = depth.begin; d < depth.end; ++d)
    for (int h = row.begin; h < row.end; ++h)
      for (int w = column.begin; w < column.end; ++w) {
        const int64_t from = base + (d * s.out[1] + h) * s.out[2] + w;
        if (positions[from] == place) sum += static_cast<C>(g[from]);
      }
  out[i] = static_cast<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_gather_kernel(const PoolShape s, const uint32_t size, const T* __restrict__ x,
                       const int* __restrict__ positions, T* __restrict__ out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t image = s.by_pooled.divide(i);
  const int place = positions[i];  // one outside of the image reads as zero
  out[i] = place >= 0 && place < s.large ? x[image * s.large + place] : static_cast<T>(0.f);
}

/// Sizes are at least 1 where anything runs.
FastDivide divide_by(int size) { return FastDivide(static_cast<uint32_t>(size > 0 ? size : 1)); }

PoolShape pool_shape(const Buffer& large, const Buffer& pooled, const PoolAttrs& a) {
  PoolShape s{};
  s.large = s.pooled = 1;
  const auto size = [](const Buffer& b, int axis) {
    const int at = b.rank - 3 + axis;
    return static_cast<int>(at < 2 ? 1 : b.shape[at]);
  };
  for (int i = 0; i < 3; ++i) {
    s.in[i] = size(large, i);
    s.out[i] = size(pooled, i);
    s.kernel[i] = static_cast<int>(a.kernel[i]);
    s.stride[i] = static_cast<int>(a.stride[i]);
    s.padding[i] = static_cast<int>(a.padding[i]);
    s.dilation[i] = static_cast<int>(a.dilation[i]);
    s.large *= s.in[i];
    s.pooled *= s.out[i];
    s.by_in[i] = divide_by(s.in[i]);
    s.by_out[i] = divide_by(s.out[i]);
    s.by_stride[i] = divide_by(s.stride[i]);
  }
  s.by_large = divide_by(s.large);
  s.by_pooled = divide_by(s.pooled);
  s.is_plain = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0;
  for (int i = 1; i < 3; ++i) s.is_plain = s.is_plain && s.kernel[i] > 0 && s.dilation[i] == 1;
  return s;
}

/// Calls f(large offset, pooled offset, images) for pieces of N · C images whose elements fit 31 bits.
template <class F>
void in_images(const Buffer& large, const Buffer& pooled, const F& f) {
  const int64_t images = large.shape[0] * large.shape[1];
  const int64_t large_image = large.size() / images, pooled_image = pooled.size() / images;
  const int64_t image = large_image > pooled_image ? large_image : pooled_image;
  TD_CHECK(image <= int64_t{1} << 30, "max_pool: on a GPU an image has at most 2^30 elements; got ", image,
           ". Cut the image.");
  const int64_t step = (int64_t{1} << 30) / image;
  for (int64_t p = 0; p < images; p += step)
    f(p * large_image, p * pooled_image, images - p < step ? images - p : step);
}

unsigned blocks_for(uint32_t size) { return (size + kThreads - 1) / kThreads; }

void max_pool(const KernelArgs& args) {
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(x, out, args.attributes<PoolAttrs>());
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    in_images(x, out, [&](int64_t large, int64_t pooled, int64_t images) {
      const uint32_t size = static_cast<uint32_t>(images) * shape.by_pooled.divisor;
      const auto kernel = shape.is_plain ? &max_pool_kernel<T, true> : &max_pool_kernel<T, false>;
      kernel<<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
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
    in_images(out, g, [&](int64_t large, int64_t pooled, int64_t images) {
      const uint32_t size = static_cast<uint32_t>(images) * shape.by_large.divisor;
      const auto kernel = shape.is_plain ? &pool_scatter_kernel<T, true> : &pool_scatter_kernel<T, false>;
      kernel<<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
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
    in_images(x, out, [&](int64_t large, int64_t pooled, int64_t images) {
      const uint32_t size = static_cast<uint32_t>(images) * shape.by_pooled.divisor;
      pool_gather_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
          shape, size, x.as<T>() + large, args.in[1].as<int>() + pooled, out.as<T>() + pooled);
    });
  });
  launched("pool_gather_kernel");
}

}  // namespace

void register_pool_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_max_pool().kernels[kCuda] = &max_pool;
  op_max_pool_scatter().kernels[kCuda] = &pool_scatter;
  op_max_pool_gather().kernels[kCuda] = &pool_gather;
}

}  // namespace tandem::cuda
