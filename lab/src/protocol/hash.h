// The hash of lab/docs/protocol.md. It gives the order of samples, weights and made-up samples.
#pragma once

#include <cstdint>

namespace tandem::lab {

/// Number i of stream s.
constexpr uint32_t hashed(uint32_t i, uint32_t s) {
  uint32_t h = i * 0x9E3779B1u + s * 0x7F4A7C15u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

/// The same, as a number from -1 to 1.
constexpr float hashed_unit(uint32_t i, uint32_t s) {
  return static_cast<float>(hashed(i, s) >> 8) * 0x1p-23f - 1.0f;
}

}  // namespace tandem::lab
