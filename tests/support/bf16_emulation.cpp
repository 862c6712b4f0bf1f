#include "tests/support/bf16_emulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

namespace tandem::testing {

using cpu::Bf16Kernel;

namespace {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();

float flushed(float x) { return std::abs(x) < kSmallestNormal ? std::copysign(0.0f, x) : x; }

/// s + error, where |error| is below half a unit of s, as f32: towards zero, with the last bit set where that lost
/// something.
float to_odd(double s, double error) {
  if (!std::isfinite(s) || s == 0) return static_cast<float>(s);
  if (error != 0 && (error < 0) != (s < 0)) s = std::nextafter(s, 0.0);
  if (std::abs(s) < kSmallestNormal) return std::copysign(0.0f, static_cast<float>(s));
  if (std::abs(s) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(s));
  constexpr uint64_t kLost = (uint64_t{1} << 29) - 1;
  const auto bits = std::bit_cast<uint64_t>(s);
  const auto cut = static_cast<float>(std::bit_cast<double>(bits & ~kLost));
  return (bits & kLost) != 0 || error != 0 ? float_from_bits(float_bits(cut) | 1u) : cut;
}

float multiply_odd(BFloat16 a, BFloat16 b) {
  return to_odd(static_cast<double>(flushed(a)) * static_cast<double>(flushed(b)), 0);
}

float add_odd(float x, float y) {
  const double a = flushed(x), b = flushed(y), s = a + b, part = s - a;
  return to_odd(s, std::isfinite(s) ? (a - (s - part)) + (b - part) : 0);
}

float fused(BFloat16 a, BFloat16 b, float c) { return flushed(std::fma(flushed(a), flushed(b), flushed(c))); }

float bfmmla(const BFloat16* a, const BFloat16* b, float sum) {  // one element of the 2 x 2, four k
  for (int k = 0; k < 4; k += 2)
    sum = add_odd(sum, add_odd(multiply_odd(a[k], b[k]), multiply_odd(a[k + 1], b[k + 1])));
  return sum;
}

float vdpbf16ps(const BFloat16* a, const BFloat16* b, float sum) {  // one lane, two k
  return fused(a[0], b[0], fused(a[1], b[1], sum));
}

/// A kernel in which one element of C takes kStep neighbours in k at a time.
template <int kRows, int kColumns, int kStep, float (*take)(const BFloat16*, const BFloat16*, float)>
void multiply(const BFloat16* a, const BFloat16* b, int64_t k, float* sums) {
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int64_t q = 0; q < k; q += kStep)
        sum = take(a + q * kRows + i * kStep, b + q * kColumns + j * kStep, sum);
      sums[i * kColumns + j] = sum;
    }
}

thread_local bool tiles_are_configured = false;
void configure_tiles() { tiles_are_configured = true; }
void release_tiles() { tiles_are_configured = false; }

void multiply_amx(const BFloat16* a, const BFloat16* b, int64_t k, float* sums) {
  EXPECT_TRUE(tiles_are_configured);
  constexpr int kSide = 32, kStep = 32;
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kSide; ++j) {
      float sum = 0;
      for (int64_t q = 0; q < k; q += kStep) {
        const BFloat16* row = a + q * kSide + i * kStep;
        float chains[2] = {0, 0};
        for (int p = 0; p < kStep; ++p)
          chains[p % 2] = fused(row[p], b[(q + p) / 2 * 2 * kSide + 2 * j + p % 2], chains[p % 2]);
        sum = flushed(sum + flushed(chains[0] + chains[1]));
      }
      sums[i * kSide + j] = sum;
    }
}

}  // namespace

constexpr Bf16Kernel kEmulatedBfmmla{"bfmmla", 8, 12, 4, 4, 4, &multiply<8, 12, 4, bfmmla>};
constexpr Bf16Kernel kEmulatedAvx512{"avx512_bf16", 8, 48, 2, 2, 2, &multiply<8, 48, 2, vdpbf16ps>};
constexpr Bf16Kernel kEmulatedAmx{"amx", 32, 32, 32, 2, 32, &multiply_amx, &configure_tiles, &release_tiles};

std::vector<const Bf16Kernel*> bf16_kernels() {
  std::vector<const Bf16Kernel*> list{&kEmulatedBfmmla, &kEmulatedAvx512, &kEmulatedAmx};
  for (const cpu::Bf16Candidate* c = cpu::kBf16Candidates; c->kernel; ++c)
    if (c->can_run()) list.push_back(c->kernel);
  return list;
}

const Bf16Kernel& emulation_of(const Bf16Kernel& kernel) {
  return *bf16_kernels()[kernel.name == std::string_view("bfmmla") ? 0
                         : kernel.name == std::string_view("amx")  ? 2
                                                                   : 1];
}

}  // namespace tandem::testing
