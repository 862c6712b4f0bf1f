// Tensors made from nothing: full, arange, and random numbers by Philox (core/rng.h). A thread draws one block
// of four words and writes the four elements that it makes: the same bits as on the CPU.
#include <cstring>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/rng.h"
#include "tandem/ops/random.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(int64_t size, T value, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] = value;
}

template <class T>
__global__ void __launch_bounds__(kThreads) arange_kernel(int64_t size, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] = CastTo<T, int64_t>::apply(i);
}

enum class Draw { uniform, normal, bernoulli, exponential };

template <class T>
__global__ void __launch_bounds__(kThreads)
    random_kernel(int64_t size, const Draw draw, const RngPosition rng, const float a, const float b,
                  T* out) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (4 * block >= size) return;
  const uint64_t seed = rng.base ? rng.base[0] : rng.seed;
  const uint64_t offset = rng.base ? rng.base[1] + rng.offset : rng.offset;
  const PhiloxBlock words = philox(seed, offset + static_cast<uint64_t>(block));
  float value[4];
  if (draw == Draw::normal) {
    const NormalPair first = normal_pair(words.x[0], words.x[1]),
                     second = normal_pair(words.x[2], words.x[3]);
    value[0] = a + b * first.first;
    value[1] = a + b * first.second;
    value[2] = a + b * second.first;
    value[3] = a + b * second.second;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float u = uniform_from_bits(words.x[j]);
      value[j] = draw == Draw::uniform     ? a + u * (b - a)
                 : draw == Draw::bernoulli ? (u < a ? 1.f : 0.f)
                                           : -log_(1.f - u) / a;
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (4 * block + j < size) out[4 * block + j] = CastTo<T, float>::apply(value[j]);
}

void full_any(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const FullAttrs& a = args.attributes<FullAttrs>();
  const int64_t size = out.size();
  if (size == 0) return;
  // The element's bits are made on the host; the kernel only needs their width.
  uint64_t bits = 0;
  visit_dtype(out.dtype, [&](auto element) {
    using T = decltype(element);
    if (is_floating(out.dtype))
      element = CastTo<T, double>::apply(a.value);
    else
      element = CastTo<T, int64_t>::apply(a.integer);
    std::memcpy(&bits, &element, sizeof(element));
  });
  const cudaStream_t stream = stream_of(args);
  switch (bytes_of(out.dtype)) {
    case 1:
      fill_kernel<<<blocks_for(size), kThreads, 0, stream>>>(size, static_cast<uint8_t>(bits),
                                                             out.as<uint8_t>());
      break;
    case 2:
      fill_kernel<<<blocks_for(size), kThreads, 0, stream>>>(size, static_cast<uint16_t>(bits),
                                                             out.as<uint16_t>());
      break;
    case 4:
      fill_kernel<<<blocks_for(size), kThreads, 0, stream>>>(size, static_cast<uint32_t>(bits),
                                                             out.as<uint32_t>());
      break;
    default:
      fill_kernel<<<blocks_for(size), kThreads, 0, stream>>>(size, bits, out.as<uint64_t>());
  }
  launched("fill_kernel");
}

void arange_any(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const int64_t size = out.size();
  if (size == 0) return;
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    arange_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(size, out.as<T>());
  });
  launched("arange_kernel");
}

template <Draw kDraw>
void random_any(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const RandomAttrs& a = args.attributes<RandomAttrs>();
  const int64_t size = out.size();
  if (size == 0) return;
  visit_floating(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    random_kernel<T><<<blocks_for((size + 3) / 4), kThreads, 0, stream_of(args)>>>(
        size, kDraw, args.rng, static_cast<float>(a.a), static_cast<float>(a.b), out.as<T>());
  });
  launched("random_kernel");
}

}  // namespace

void register_random_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_full().kernels[kCuda] = &full_any;
  op_arange().kernels[kCuda] = &arange_any;
  op_uniform().kernels[kCuda] = &random_any<Draw::uniform>;
  op_normal().kernels[kCuda] = &random_any<Draw::normal>;
  op_bernoulli().kernels[kCuda] = &random_any<Draw::bernoulli>;
  op_exponential().kernels[kCuda] = &random_any<Draw::exponential>;
}

}  // namespace tandem::cuda
