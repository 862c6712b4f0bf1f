// "direct": convolution written out, one thread per output element (one block per weight, for the weight gradient),
// sums in a fixed order. Slow and sure; it stands in where cuDNN has no deterministic algorithm.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

/// Where a place lies: its coordinates on the three axes, taken off the end of i.
__device__ __forceinline__ void split(int64_t& i, const Axes3& sizes, int64_t (&at)[3]) {
  for (int a = 2; a >= 0; --a) {
    at[a] = i % sizes.v[a];
    i /= sizes.v[a];
  }
}
/// The element of x that kernel element k reads at output place o, or -1.
__device__ __forceinline__ int64_t read_place(const Convolution& s, const int64_t (&o)[3],
                                              const int64_t (&k)[3]) {
  int64_t place = 0;
  for (int a = 0; a < 3; ++a) {
    const int64_t at = o[a] * s.stride.v[a] - s.padding.v[a] + k[a] * s.dilation.v[a];
    if (at < 0 || at >= s.in.v[a]) return -1;
    place = place * s.in.v[a] + at;
  }
  return place;
}
__device__ __forceinline__ int64_t volume(const Axes3& a) { return a.v[0] * a.v[1] * a.v[2]; }

/// Thread i makes element i of y (n, o, out…): the sum over the group's channels, then the kernel's elements in
/// memory order. Padding is left out of the sum, not added as zero.
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const Convolution s, int64_t size, const T* __restrict__ x, const T* __restrict__ weight,
                   T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  T* to = y + i;
  int64_t out[3], k[3];
  split(i, s.out, out);
  const int64_t o = i % s.o, n = i / s.o;
  const int64_t cg = s.c / s.groups, first = o / (s.o / s.groups) * cg;
  const int64_t taps = volume(s.kernel), plane = volume(s.in);
  C sum = 0;
  for (int64_t c = 0; c < cg; ++c) {
    const T* from = x + (n * s.c + first + c) * plane;
    const T* w = weight + (o * cg + c) * taps;
    for (k[0] = 0; k[0] < s.kernel.v[0]; ++k[0])
      for (k[1] = 0; k[1] < s.kernel.v[1]; ++k[1])
        for (k[2] = 0; k[2] < s.kernel.v[2]; ++k[2], ++w) {
          const int64_t place = read_place(s, out, k);
          if (place >= 0) sum = fused(static_cast<C>(from[place]), static_cast<C>(*w), sum);
        }
  }
  *to = static_cast<T>(sum);
}

/// Thread i makes element i of gx (n, c, in…). It looks for the outputs that read this element, rather than adding to
/// it from each output: one writer and no atomics. Sums run over output channels, then the kernel's elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(const Convolution s, int64_t size, const T* __restrict__ g,
                          const T* __restrict__ weight, T* __restrict__ gx) {
  using C = typename ComputeType<T>::type;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  T* to = gx + i;
  int64_t in[3], k[3];
  split(i, s.in, in);
  const int64_t c = i % s.c, n = i / s.c;
  const int64_t cg = s.c / s.groups, og = s.o / s.groups, first = c / cg * og;
  const int64_t taps = volume(s.kernel), plane = volume(s.out);
  C sum = 0;
  for (int64_t o = first; o < first + og; ++o) {
    const T* from = g + (n * s.o + o) * plane;
    const T* w = weight + (o * cg + c % cg) * taps;
    for (k[0] = 0; k[0] < s.kernel.v[0]; ++k[0])
      for (k[1] = 0; k[1] < s.kernel.v[1]; ++k[1])
        for (k[2] = 0; k[2] < s.kernel.v[2]; ++k[2], ++w) {
          int64_t place = 0;  // of the output that kernel element k joins with this input
          bool inside = true;
          for (int a = 0; a < 3; ++a) {
            const int64_t moved = in[a] + s.padding.v[a] - k[a] * s.dilation.v[a];
            const int64_t at = moved / s.stride.v[a];
            inside = inside && moved >= 0 && at * s.stride.v[a] == moved && at < s.out.v[a];
            place = place * s.out.v[a] + at;
          }
          if (inside) sum = fused(static_cast<C>(from[place]), static_cast<C>(*w), sum);
        }
  }
  *to = static_cast<T>(sum);
}

/// One block per weight; thread t takes places t, t + kThreads … of (n, output) and a tree joins the threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    weight_gradient_kernel(const Convolution s, const T* __restrict__ g, const T* __restrict__ x,
                           T* __restrict__ gw) {
  using C = typename ComputeType<T>::type;
  __shared__ C sums[kThreads];
  int64_t i = blockIdx.x;
  int64_t k[3], out[3];
  split(i, s.kernel, k);
  const int64_t cg = s.c / s.groups, c = i % cg, o = i / cg;
  const int64_t channel = o / (s.o / s.groups) * cg + c;
  const int64_t plane = volume(s.out), places = s.n * plane;
  C sum = 0;
  // p counts (n, output place); split() takes the place off and leaves n.
  for (int64_t p = threadIdx.x; p < places; p += kThreads) {
    int64_t n = p;
    split(n, s.out, out);
    const int64_t place = read_place(s, out, k);
    if (place < 0) continue;
    sum = fused(static_cast<C>(g[(n * s.o + o) * plane + p % plane]),
                static_cast<C>(x[(n * s.c + channel) * volume(s.in) + place]), sum);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    // Barriers on both sides: a step reads what the step before it wrote.
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) gw[blockIdx.x] = static_cast<T>(sums[0]);
}

/// y has been rounded to T once already; the sum with the bias is rounded again.
template <class T>
__global__ void __launch_bounds__(kThreads)
    channel_bias_kernel(int64_t size, int64_t plane, int64_t channels, const T* __restrict__ bias,
                        T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = static_cast<T>(static_cast<C>(y[i]) + static_cast<C>(bias[i / plane % channels]));
}

unsigned blocks_for(int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

class DirectConv final : public ConvImplementation {
 public:
  std::string name() const override { return "direct"; }
  const char* can(const ConvProblem&) const override { return nullptr; }
  bool is_fixed() const override { return true; }
  void run(const ConvCall& call) const override {
    const Convolution& s = call.problem.shape;
    const cudaStream_t stream = stream_of(call.args);
    visit_floating(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T *a = static_cast<const T*>(call.a), *b = static_cast<const T*>(call.b);
      T* out = static_cast<T*>(call.out);
      switch (call.problem.pass) {
        case Pass::forward:
          forward_kernel<T><<<blocks_for(s.y_size()), kThreads, 0, stream>>>(s, s.y_size(), a, b, out);
          break;
        case Pass::input_gradient:
          input_gradient_kernel<T><<<blocks_for(s.x_size()), kThreads, 0, stream>>>(s, s.x_size(), a, b, out);
          break;
        case Pass::weight_gradient:
          weight_gradient_kernel<T>
              <<<static_cast<unsigned>(s.weight_size()), kThreads, 0, stream>>>(s, a, b, out);
          break;
      }
    });
    launched("direct convolution");
    if (call.bias) add_channel_bias(call.args, s, call.bias, call.out);
  }
};

}  // namespace

const ConvImplementation& direct_conv() {
  static constexpr DirectConv row;
  return row;
}

void add_channel_bias(const KernelArgs& args, const Convolution& s, const void* bias, void* y) {
  const int64_t size = s.y_size();
  visit_floating(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    channel_bias_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
        size, s.out_plane(), s.o, static_cast<const T*>(bias), static_cast<T*>(y));
  });
  launched("channel_bias_kernel");
}

}  // namespace tandem::cuda
