// Products of bf16 panels by BFMMLA: four elements of each of two rows of A times the same of two columns of B are
// added to a 2 x 2 block of C.
#if defined(__aarch64__)

#include <arm_neon.h>
#include <sys/auxv.h>

#include "tandem/backends/cpu/gemm_bf16.h"

namespace tandem::cpu {
namespace {

constexpr int kRows = 8, kColumns = 12;

__attribute__((target("arch=armv8.2-a+bf16"))) void multiply(const BFloat16* a, const BFloat16* b, int64_t k,
                                                             float* sums) {
  const auto* ap = reinterpret_cast<const bfloat16_t*>(a);
  const auto* bp = reinterpret_cast<const bfloat16_t*>(b);
  float32x4_t at[kRows / 2][kColumns / 2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows / 2; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < kColumns / 2; ++c) at[r][c] = vdupq_n_f32(0);
  for (; k > 0; k -= 4, ap += 4 * kRows, bp += 4 * kColumns) {
    bfloat16x8_t rows[kRows / 2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows / 2; ++r) rows[r] = vld1q_bf16(ap + 8 * r);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns / 2; ++c) {
      const bfloat16x8_t columns = vld1q_bf16(bp + 8 * c);
#pragma GCC unroll 16
      for (int r = 0; r < kRows / 2; ++r) at[r][c] = vbfmmlaq_f32(at[r][c], rows[r], columns);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows / 2; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < kColumns / 2; c += 2) {
      const float64x2_t left = vreinterpretq_f64_f32(at[r][c]), right = vreinterpretq_f64_f32(at[r][c + 1]);
      float* to = sums + 2 * r * kColumns + 2 * c;
      vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
      vst1q_f32(to + kColumns, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
    }
}

constexpr Bf16Kernel kBfmmla{"bfmmla", kRows, kColumns, 4, 4, 4, &multiply};

bool has_bfmmla() {
  constexpr unsigned long kHwcap2Bf16 = 1ul << 14;  // HWCAP2_BF16, which older headers lack
  return (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0;
}

}  // namespace

const Bf16Candidate kBf16Candidates[] = {{&kBfmmla, &has_bfmmla}, {nullptr, nullptr}};

}  // namespace tandem::cpu

#endif
