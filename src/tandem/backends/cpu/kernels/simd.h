// Vectors for the GEMM, convolution and pooling kernels: compiler vector types, as wide as the instruction-set
// level that this file is compiled for. The only places with intrinsics are fma(), which contraction being off
// would otherwise not give (levels without the instruction multiply and add), and multiply_halves().
#pragma once

#include <cstdint>
#include <type_traits>

#include "tandem/core/half.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__FMA__)
#include <immintrin.h>
#endif

namespace tandem::cpu::TD_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
using Vec = typename VecOf<T>::type;

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

/// What sums of elements of type S are computed in.
template <class S>
using Accumulator = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class T>
[[gnu::always_inline]] inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename VecOf<T>::unaligned*>(p);
}

template <class T>
[[gnu::always_inline]] inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename VecOf<T>::unaligned*>(p) = v;
}

template <class T>
[[gnu::always_inline]] inline Vec<T> splat(T x) {
  return x - Vec<T>{};  // x - 0 is x to the bit, signed zeros included
}

/// a * b + c with one rounding.
[[gnu::always_inline]] inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__ARM_NEON)
  return vfmaq_f32(c, a, b);
#elif defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

[[gnu::always_inline]] inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__ARM_NEON)
  return vfmaq_f64(c, a, b);
#elif defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

/// The product of the lower halves of each lane.
[[gnu::always_inline]] inline Vec<uint64_t> multiply_halves(Vec<uint64_t> a, Vec<uint64_t> b) {
#if defined(__ARM_NEON)
  return vmull_u32(vmovn_u64(a), vmovn_u64(b));
#elif defined(__AVX512F__)
  return (Vec<uint64_t>)_mm512_maskz_mul_epu32(0xff, (__m512i)a,
                                               (__m512i)b);  // gcc 12 warns of its own plain one
#elif defined(__AVX2__)
  return (Vec<uint64_t>)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  constexpr uint64_t kLow = 0xffffffffu;
  return (a & kLow) * (b & kLow);
#endif
}

/// kCount numbers of a type, in a vector of another length than Vec<T>.
template <class T, int kCount>
struct SomeOf {
  typedef T type __attribute__((vector_size(kCount * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(kCount * sizeof(T)), aligned(alignof(T)), may_alias));
};

/// Of each lane of a Vec<T> whether its byte is not zero: all bits or none. The bytes become wide in steps, for which there are
/// instructions.
template <class T>
[[gnu::always_inline]] inline auto truths(const bool* from) {
  constexpr int kL = kLanes<T>;
  const auto& bytes = *reinterpret_cast<const typename SomeOf<uint8_t, kL>::unaligned*>(from);
  const auto halves = __builtin_convertvector(bytes, typename SomeOf<uint16_t, kL>::type);
  const auto words = __builtin_convertvector(halves, typename SomeOf<int32_t, kL>::type);
  if constexpr (sizeof(T) == 4)
    return words != 0;
  else
    return __builtin_convertvector(words, Vec<int64_t>) != 0;
}

/// The sum of the lanes, in halves: lane i and lane i + n/2 first.
template <class T>
[[gnu::always_inline]] inline T sum(Vec<T> v) {
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int n = kLanes<T> / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  return lanes[0];
}

/// out[i] = (or, with add, +=) sum(v[i]) for i < n, the same bits as sum() gives.
template <class T, int n>
[[gnu::always_inline]] inline void sum_each(T* out, const Vec<T>* v, bool add) {
  int done = 0;
  if constexpr (kLanes<T> == 4 && sizeof(T) == 4 && n >= 4) {
    using Index = typename VecOf<int32_t>::type;
#pragma GCC unroll 16
    for (int i = 0; i + 4 <= n; i += 4) {  // two steps of a transposition, with an addition after each
      const Vec<T> ab = __builtin_shuffle(v[i], v[i + 1], Index{0, 4, 1, 5}) +
                        __builtin_shuffle(v[i], v[i + 1], Index{2, 6, 3, 7});
      const Vec<T> cd = __builtin_shuffle(v[i + 2], v[i + 3], Index{0, 4, 1, 5}) +
                        __builtin_shuffle(v[i + 2], v[i + 3], Index{2, 6, 3, 7});
      const Vec<T> total =
          __builtin_shuffle(ab, cd, Index{0, 1, 4, 5}) + __builtin_shuffle(ab, cd, Index{2, 3, 6, 7});
      store(out + i, add ? load(out + i) + total : total);
    }
    done = n / 4 * 4;
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i)
    if (i >= done) out[i] = add ? out[i] + sum<T>(v[i]) : sum<T>(v[i]);
}

/// to[i] = from[i], converted. A 16-bit destination is rounded to nearest even.
template <class To, class From>
[[gnu::always_inline]] inline void convert(To* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

}  // namespace tandem::cpu::TD_ISA
