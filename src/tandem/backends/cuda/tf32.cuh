// One step of the matrix units in tf32 (sm_80 and above): d (16, 8) += a (16, 8) · b (8, 8), by one warp.
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

__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace tandem::cuda
