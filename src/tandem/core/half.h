// The two 16-bit floating types, as storage: arithmetic happens in float and every result is rounded once,
// to nearest even. Plain C++ without includes for NVRTC, which compiles it too.
#pragma once

#ifndef __CUDACC_RTC__
#include "tandem/core/standard.h"
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define TD_HD __host__ __device__ __forceinline__
#else
#define TD_HD inline
#endif

namespace tandem {

TD_HD unsigned float_bits(float x) { return __builtin_bit_cast(unsigned, x); }
TD_HD float float_from_bits(unsigned x) { return __builtin_bit_cast(float, x); }

struct BFloat16 {
  unsigned short bits = 0;
  BFloat16() = default;
  TD_HD explicit BFloat16(float x) {
    const unsigned u = float_bits(x);
    const unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<unsigned short>(is_nan ? 0x7fc0u : rounded);
  }
  TD_HD operator float() const { return float_from_bits(static_cast<unsigned>(bits) << 16); }
};

struct Float16 {
  unsigned short bits = 0;
  Float16() = default;
  TD_HD explicit Float16(float x) {
    const unsigned u = float_bits(x);
    const unsigned sign = (u >> 16) & 0x8000u;
    const unsigned magnitude = u & 0x7fffffffu;
    // Normal results: re-bias the exponent and round the 13 lost bits to nearest even.
    const unsigned normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal results: adding 0.5 in float rounds at the right bit; the low mantissa bits are then the
    // result.
    const float shifted = float_from_bits(magnitude) + 0.5f;
    const unsigned subnormal = float_bits(shifted) - 0x3f000000u;
    unsigned h = magnitude < 0x38800000u ? subnormal : normal;
    h = magnitude >= 0x477ff000u ? 0x7c00u : h;  // 65520 and above round to infinity
    h = magnitude > 0x7f800000u ? 0x7e00u : h;
    bits = static_cast<unsigned short>(sign | h);
  }
  TD_HD operator float() const {
    const unsigned sign = (static_cast<unsigned>(bits) & 0x8000u) << 16;
    const unsigned magnitude = bits & 0x7fffu;
    const unsigned normal = (magnitude << 13) + 0x38000000u;
    const unsigned subnormal =
        float_bits(static_cast<float>(static_cast<int>(magnitude)) * 5.9604644775390625e-8f);
    unsigned u = magnitude < 0x400u ? subnormal : normal;
    u = magnitude >= 0x7c00u ? (magnitude << 13) + 0x70000000u : u;
    return float_from_bits(sign | u);
  }
};

}  // namespace tandem
