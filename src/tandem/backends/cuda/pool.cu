// Max pooling and its two companions. One thread an output element, in fixed order: the scatter looks, for each
// input place, at the windows that cover it, so that overlapping windows sum without atomics.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

struct PoolShape {
  int64_t planes;             // N · C
  int height, width;          // of the large side
  int out_height, out_width;  // of the pooled side
  int kernel_height, kernel_width, stride, padding;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(const PoolShape s, const T* __restrict__ x, T* __restrict__ values,
                    int* __restrict__ positions) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int per_plane = s.out_height * s.out_width;
  if (i >= s.planes * per_plane) return;
  const int64_t plane = i / per_plane;
  const int place = static_cast<int>(i - plane * per_plane);
  const int oh = place / s.out_width, ow = place - oh * s.out_width;
  const T* from = x + plane * s.height * s.width;
  const int h0 = oh * s.stride - s.padding, w0 = ow * s.stride - s.padding;
  const int h_end = min(h0 + s.kernel_height, s.height), w_end = min(w0 + s.kernel_width, s.width);
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
    pool_scatter_kernel(const PoolShape s, const T* __restrict__ g, const int* __restrict__ positions,
                        T* __restrict__ out) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int per_plane = s.height * s.width;
  if (i >= s.planes * per_plane) return;
  const int64_t plane = i / per_plane;
  const int place = static_cast<int>(i - plane * per_plane);
  const int h = place / s.width, w = place - h * s.width;
  const int64_t base = plane * s.out_height * s.out_width;
  // Windows that cover h: oh · stride - padding <= h < oh · stride - padding + kernel.
  const int above = h + s.padding - s.kernel_height, left = w + s.padding - s.kernel_width;
  const int oh0 = above < 0 ? 0 : above / s.stride + 1, ow0 = left < 0 ? 0 : left / s.stride + 1;
  const int oh1 = min((h + s.padding) / s.stride, s.out_height - 1);
  const int ow1 = min((w + s.padding) / s.stride, s.out_width - 1);
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
    pool_gather_kernel(int64_t size, int64_t pooled_plane, int64_t plane, const T* __restrict__ x,
                       const int* __restrict__ positions, T* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] = x[i / pooled_plane * plane + positions[i]];
}

PoolShape pool_shape(const Buffer& large, const Buffer& pooled, const PoolAttrs& a) {
  return {
      large.shape[0] * large.shape[1],   static_cast<int>(large.shape[2]),  static_cast<int>(large.shape[3]),
      static_cast<int>(pooled.shape[2]), static_cast<int>(pooled.shape[3]), static_cast<int>(a.kernel),
      static_cast<int>(a.kernel),        static_cast<int>(a.stride),        static_cast<int>(a.padding)};
}

unsigned blocks_for(int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

void max_pool(const KernelArgs& args) {
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(x, out, args.attributes<PoolAttrs>());
  visit_dtype(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    max_pool_kernel<T><<<blocks_for(out.size()), kThreads, 0, stream_of(args)>>>(
        shape, x.as<T>(), out.as<T>(), args.out[1].as<int>());
  });
  launched("max_pool_kernel");
}

void pool_scatter(const KernelArgs& args) {
  const Buffer &g = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const PoolShape shape = pool_shape(out, g, args.attributes<PoolAttrs>());
  visit_floating(g.dtype, [&](auto zero) {
    using T = decltype(zero);
    pool_scatter_kernel<T><<<blocks_for(out.size()), kThreads, 0, stream_of(args)>>>(
        shape, g.as<T>(), args.in[1].as<int>(), out.as<T>());
  });
  launched("pool_scatter_kernel");
}

void pool_gather(const KernelArgs& args) {
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const int64_t plane = x.shape[2] * x.shape[3], pooled = out.shape[2] * out.shape[3];
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    pool_gather_kernel<T><<<blocks_for(out.size()), kThreads, 0, stream_of(args)>>>(
        out.size(), pooled, plane, x.as<T>(), args.in[1].as<int>(), out.as<T>());
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
