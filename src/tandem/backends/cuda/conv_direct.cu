// Convolution written out: one thread an output element (one block a weight, for the weight gradient), sums in a
// fixed order. Slow and sure; it stands in where cuDNN has no deterministic algorithm.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Convolution s, const T* __restrict__ x,
                                                           const T* __restrict__ weight, T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.n * s.o * s.oh * s.ow) return;
  T* to = y + i;
  const int64_t ow = i % s.ow, oh = (i /= s.ow) % s.oh, o = (i /= s.oh) % s.o, n = i / s.o;
  const int64_t cg = s.c / s.groups, first = o / (s.o / s.groups) * cg;
  C sum = 0;
  for (int64_t c = 0; c < cg; ++c)
    for (int64_t kh = 0; kh < s.kh; ++kh)
      for (int64_t kw = 0; kw < s.kw; ++kw) {
        const int64_t h = oh * s.stride - s.padding + kh * s.dilation,
                      w = ow * s.stride - s.padding + kw * s.dilation;
        if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
        sum = fused(static_cast<C>(x[((n * s.c + first + c) * s.h + h) * s.w + w]),
                    static_cast<C>(weight[((o * cg + c) * s.kh + kh) * s.kw + kw]), sum);
      }
  *to = static_cast<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(const Convolution s, const T* __restrict__ g, const T* __restrict__ weight,
                          T* __restrict__ gx) {
  using C = typename ComputeType<T>::type;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.n * s.c * s.h * s.w) return;
  T* to = gx + i;
  const int64_t w = i % s.w, h = (i /= s.w) % s.h, c = (i /= s.h) % s.c, n = i / s.c;
  const int64_t cg = s.c / s.groups, og = s.o / s.groups, first = c / cg * og;
  C sum = 0;
  for (int64_t o = first; o < first + og; ++o)
    for (int64_t kh = 0; kh < s.kh; ++kh)
      for (int64_t kw = 0; kw < s.kw; ++kw) {
        const int64_t down = h + s.padding - kh * s.dilation, right = w + s.padding - kw * s.dilation;
        if (down < 0 || right < 0 || down % s.stride || right % s.stride) continue;
        const int64_t oh = down / s.stride, ow = right / s.stride;
        if (oh >= s.oh || ow >= s.ow) continue;
        sum = fused(static_cast<C>(g[((n * s.o + o) * s.oh + oh) * s.ow + ow]),
                    static_cast<C>(weight[((o * cg + c % cg) * s.kh + kh) * s.kw + kw]), sum);
      }
  *to = static_cast<T>(sum);
}

/// One block a weight; thread t takes places t, t + kThreads … of (n, oh, ow) and a tree joins the threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    weight_gradient_kernel(const Convolution s, const T* __restrict__ g, const T* __restrict__ x,
                           T* __restrict__ gw) {
  using C = typename ComputeType<T>::type;
  __shared__ C sums[kThreads];
  int64_t i = blockIdx.x;
  const int64_t cg = s.c / s.groups;
  const int64_t kw = i % s.kw, kh = (i /= s.kw) % s.kh, c = (i /= s.kh) % cg, o = i / cg;
  const int64_t channel = o / (s.o / s.groups) * cg + c, places = s.n * s.oh * s.ow;
  C sum = 0;
  for (int64_t p = threadIdx.x; p < places; p += kThreads) {
    const int64_t ow = p % s.ow, oh = p / s.ow % s.oh, n = p / (s.ow * s.oh);
    const int64_t h = oh * s.stride - s.padding + kh * s.dilation,
                  w = ow * s.stride - s.padding + kw * s.dilation;
    if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
    sum = fused(static_cast<C>(g[((n * s.o + o) * s.oh + oh) * s.ow + ow]),
                static_cast<C>(x[((n * s.c + channel) * s.h + h) * s.w + w]), sum);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) gw[blockIdx.x] = static_cast<T>(sums[0]);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    channel_bias_kernel(int64_t size, int64_t plane, int64_t channels, const T* __restrict__ bias,
                        T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = static_cast<T>(static_cast<C>(y[i]) + static_cast<C>(bias[i / plane % channels]));
}

unsigned blocks_for(int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

}  // namespace

void direct_conv_forward(const KernelArgs& args, const Convolution& s, const void* x, const void* weight,
                         void* y) {
  visit_floating(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward_kernel<T><<<blocks_for(s.n * s.o * s.oh * s.ow), kThreads, 0, stream_of(args)>>>(
        s, static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(y));
  });
  launched("conv forward_kernel");
}

void direct_conv_input_gradient(const KernelArgs& args, const Convolution& s, const void* g,
                                const void* weight, void* gx) {
  visit_floating(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    input_gradient_kernel<T><<<blocks_for(s.n * s.c * s.h * s.w), kThreads, 0, stream_of(args)>>>(
        s, static_cast<const T*>(g), static_cast<const T*>(weight), static_cast<T*>(gx));
  });
  launched("conv input_gradient_kernel");
}

void direct_conv_weight_gradient(const KernelArgs& args, const Convolution& s, const void* g, const void* x,
                                 void* gw) {
  visit_floating(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    weight_gradient_kernel<T>
        <<<static_cast<unsigned>(s.o * (s.c / s.groups) * s.kh * s.kw), kThreads, 0, stream_of(args)>>>(
            s, static_cast<const T*>(g), static_cast<const T*>(x), static_cast<T*>(gw));
  });
  launched("conv weight_gradient_kernel");
}

void add_channel_bias(const KernelArgs& args, const Convolution& s, const void* bias, void* y) {
  const int64_t size = s.n * s.o * s.oh * s.ow;
  visit_floating(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    channel_bias_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
        size, s.oh * s.ow, s.o, static_cast<const T*>(bias), static_cast<T*>(y));
  });
  launched("channel_bias_kernel");
}

}  // namespace tandem::cuda
