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

/// What a draw needs besides its words.
struct DrawAttrs {
  UniformDraw range;
  ChanceDraw chance;
  double a, b;
};

__device__ float unit(const PhiloxBlock& words, int k) { return uniform_from_bits(words.x[k]); }
__device__ double unit(const WordPairs& words, int k) { return uniform_from_word64(words[k]); }
__device__ NormalPair normals(const PhiloxBlock& words, int k) {
  return normal_pair(words.x[k], words.x[k + 1]);
}
__device__ NormalPairDouble normals(const WordPairs& words, int k) {
  return normal_pair(static_cast<unsigned long long>(words[k]),
                     static_cast<unsigned long long>(words[k + 1]));
}

/// Four values of every kind but bernoulli.
template <class C, class Words>
__device__ void draw_four(const Draw draw, const Words& words, const DrawAttrs& attrs, C* value) {
  if (draw == Draw::normal) {
    const C mean = static_cast<C>(attrs.a), deviation = static_cast<C>(attrs.b);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const auto pair = normals(words, j);
      value[j] = mean + deviation * pair.first;
      value[j + 1] = mean + deviation * pair.second;
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    // u < 1, so the logarithm is of a number above 0.
    const C u = unit(words, j);
    value[j] = draw == Draw::uniform ? attrs.range.raw(u) : (C(0) - log_(C(1) - u)) / static_cast<C>(attrs.a);
  }
}

/// Thread t draws block offset + t and writes elements 4t … 4t + 3, of which the last thread may have fewer. In a
/// replayed graph seed and offset are read from device memory, so that every replay draws anew.
template <class T>
__global__ void __launch_bounds__(kThreads)
    random_kernel(int64_t size, const Draw draw, const RngPosition rng, const DrawAttrs attrs, T* out) {
  using C = typename ComputeType<T>::type;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (4 * thread >= size) return;
  const uint64_t seed = rng.base ? rng.base[0] : rng.seed;
  const uint64_t block = (rng.base ? rng.base[1] + rng.offset : rng.offset) + static_cast<uint64_t>(thread);
  const PhiloxBlock words = philox(seed, block);
  C value[4];
  if (draw == Draw::bernoulli) {
    bool undecided = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      value[j] = attrs.chance.fires(words.x[j]) ? C(1) : C(0);
      undecided = undecided || attrs.chance.undecided(words.x[j]);
    }
    // Rare (once in 2^32 words). The lower halves come from a second stream: drawing them moves no other number.
    if (undecided) {
      const PhiloxBlock lower = lower_words(seed, block);
#pragma unroll
      for (int j = 0; j < 4; ++j) value[j] = attrs.chance.fires(words.x[j], lower.x[j]) ? C(1) : C(0);
    }
  } else if constexpr (std::is_same_v<T, bool>) {  // of the others there are none
  } else if constexpr (sizeof(T) == 8) {
    draw_four(draw, WordPairs{words, lower_words(seed, block)}, attrs, value);
  } else {
    draw_four(draw, words, attrs, value);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (4 * thread + j >= size) break;
    T made = static_cast<T>(value[j]);
    // Rounding to T may reach `high`, which must not come out: limited after it, not before.
    if constexpr (!std::is_same_v<T, bool>)
      if (draw == Draw::uniform) made = static_cast<T>(attrs.range.kept(static_cast<C>(made)));
    out[4 * thread + j] = made;
  }
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
  DrawAttrs attrs{{}, ChanceDraw(kDraw == Draw::bernoulli ? a.a : 0.), a.a, a.b};
  if (kDraw == Draw::uniform) attrs.range = uniform_draw(a.a, a.b, a.dtype);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    random_kernel<T><<<blocks_for((size + 3) / 4), kThreads, 0, stream_of(args)>>>(size, kDraw, args.rng,
                                                                                   attrs, out.as<T>());
  };
  if (kDraw == Draw::bernoulli && out.dtype == DType::boolean)
    run(false);
  else
    visit_floating(out.dtype, run);
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
