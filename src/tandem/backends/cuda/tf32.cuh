// One step of the matrix units (sm_80 and above): d (16, 8) += a (16, 8) · b (8, 8), by one warp, of f32 numbers. Each
// number is rounded to tf32, or (kExact) is the sum of two tf32 numbers, which three products multiply: all 24 bits count.
//
// With g = lane / 4 and t = lane % 4 a thread holds
//   a[0] (g, t)  a[1] (g + 8, t)  a[2] (g, t + 4)  a[3] (g + 8, t + 4)
//   b[0] (t, g)  b[1] (t + 4, g)
//   d[0] (g, 2t)  d[1] (g, 2t + 1)  d[2] (g + 8, 2t)  d[3] (g + 8, 2t + 1)
// On older chips these do nothing; the host never launches their kernels there.
#pragma once

namespace tandem::cuda {

/// Rounds to the 10 mantissa bits of tf32, ties away from zero.
__device__ __forceinline__ unsigned to_tf32(float x) {
  unsigned rounded = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
#endif
  return rounded;
}

/// A factor as multiply_add takes it: rounded once and for all, or the f32 number itself.
template <bool kExact>
__device__ __forceinline__ unsigned factor(float x) {
  return kExact ? __float_as_uint(x) : to_tf32(x);
}

/// x = high + low up to 2^-22 of x. Both have the sign of x, and low is zero for tiny numbers alone: so a product with an
/// infinity is that infinity in each of its parts.
__device__ __forceinline__ void split(unsigned x, unsigned& high, unsigned& low) {
  constexpr unsigned kSign = 0x80000000u, kInfinity = 0x7f800000u, kSmallest = 0x00800000u;
  constexpr float kTiny = 1e-31f;
  high = x & 0xffffe000u;  // towards zero: rounding could make an infinity
  const float rest = __uint_as_float(x) - __uint_as_float(high);
  low = to_tf32(rest);
  if (rest == 0 && fabsf(__uint_as_float(x)) > kTiny) low = (x & kSign) | kSmallest;
  if ((x & kInfinity) == kInfinity) low = high;  // infinities, and numbers that are none
}

__device__ __forceinline__ void multiply_add_tf32(float (&d)[4], const unsigned (&a)[4],
                                                  const unsigned (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// d += a · b for factors made by factor<kExact>().
template <bool kExact>
__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (!kExact) {
    multiply_add_tf32(d, a, b);
  } else {
    unsigned a_high[4], a_low[4], b_high[2], b_low[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) split(a[i], a_high[i], a_low[i]);
#pragma unroll
    for (int i = 0; i < 2; ++i) split(b[i], b_high[i], b_low[i]);
    // The matrix units cut sums off instead of rounding them: over many steps that would add up, so they sum one alone.
    float step[4] = {};
    multiply_add_tf32(step, a_low, b_high);
    multiply_add_tf32(step, a_high, b_low);
    multiply_add_tf32(step, a_high, b_high);
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] += step[i];
  }
}

}  // namespace tandem::cuda
