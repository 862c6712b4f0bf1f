// The order of sort, topk, unique and searchsorted as unsigned integers: key(a) < key(b) where a comes before b. NaN is
// the largest value and equal to any NaN; -0 equals 0. For CPU and CUDA kernels.
#pragma once

#include <cstdint>

#include "tandem/core/half.h"

namespace tandem {

TD_HD uint32_t sort_key(float x) {
  if (x != x) return 0xffffffffu;
  const uint32_t bits = x == 0 ? 0u : float_bits(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
TD_HD uint64_t sort_key(double x) {
  if (x != x) return ~uint64_t{0};
  const uint64_t bits = x == 0 ? 0 : __builtin_bit_cast(uint64_t, x);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}
TD_HD uint32_t sort_key(BFloat16 x) { return sort_key(static_cast<float>(x)); }
TD_HD uint32_t sort_key(Float16 x) { return sort_key(static_cast<float>(x)); }
TD_HD uint64_t sort_key(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}
TD_HD uint32_t sort_key(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
TD_HD uint32_t sort_key(int16_t x) { return sort_key(static_cast<int32_t>(x)); }
TD_HD uint32_t sort_key(int8_t x) { return sort_key(static_cast<int32_t>(x)); }
TD_HD uint64_t sort_key(uint64_t x) { return x; }
TD_HD uint32_t sort_key(uint32_t x) { return x; }
TD_HD uint32_t sort_key(uint16_t x) { return x; }
TD_HD uint32_t sort_key(uint8_t x) { return x; }
TD_HD uint32_t sort_key(bool x) { return x; }

}  // namespace tandem
