// The generator behind every resampling: SplitMix64, so that a seed gives the same interval on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::lab::stats {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// A whole number below n; n < 2^32. Its bias is below n / 2^32.
  uint64_t below(uint64_t n) { return ((next() >> 32) * n) >> 32; }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

/// A seed of its own for everything that has a name: results do not depend on what else is computed, nor when.
inline uint64_t seed_for(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u ^ Random(seed).next();
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return Random(hash).next();
}

}  // namespace tandem::lab::stats
