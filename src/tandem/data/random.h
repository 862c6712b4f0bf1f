// Random numbers for samples: a function of (seed, epoch, index), whatever thread asks and in whatever order, so that
// neither the number of workers nor an interruption changes a sample.
#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/rng.h"

namespace tandem::data {

class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index)
      : SampleRandom(
            key_of(seed ^ kStream, static_cast<uint64_t>(epoch) << 32 ^ static_cast<uint64_t>(index))) {}

  /// Stream n of this sample, whose numbers have nothing to do with those of other streams: each transform of a
  /// chain takes its own.
  SampleRandom stream(uint64_t n) const { return SampleRandom(key_of(key_ ^ kStream, n)); }

  uint32_t word() {
    if (used_ == 4) {
      block_ = philox(key_, counter_++);
      used_ = 0;
    }
    return block_.x[used_++];
  }
  /// [0, 1) with 53 random bits.
  double uniform() {
    const uint64_t high = word(), bits = high << 32 | word();
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }
  /// [low, high): where the sum rounds up to high, the number before it.
  double between(double low, double high) {
    const double x = low + (high - low) * uniform();
    return x < high || high <= low ? x : std::nextafter(high, low);
  }
  /// 0 … n-1; n must be at least 1.
  int64_t below(int64_t n) {
    const uint64_t high = word(), bits = high << 32 | word();
    return static_cast<int64_t>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(n) >> 64);
  }
  bool chance(double p) { return uniform() < p; }
  double normal() {  // Box-Muller; 1 - u is never 0
    const double radius = std::sqrt(-2 * std::log(1 - uniform())),
                 angle = 2 * 3.14159265358979323846 * uniform();
    return radius * std::cos(angle);
  }
  /// Beta(a, a) for a > 0, by two gamma numbers (Marsaglia and Tsang's method).
  double symmetric_beta(double a) {
    const double x = gamma(a), y = gamma(a);
    return x + y > 0 ? x / (x + y) : 0.5;
  }

 private:
  static constexpr uint64_t kStream =
      0x73616d706c657321;  // keeps these numbers apart from other uses of a seed
  explicit SampleRandom(uint64_t key) : key_(key) {}
  static uint64_t key_of(uint64_t seed, uint64_t counter) {
    const PhiloxBlock block = philox(seed, counter);
    return uint64_t{block.x[1]} << 32 | block.x[0];
  }
  double gamma(double a) {
    if (a < 1) {
      const double u = uniform();
      return gamma(a + 1) * std::pow(u, 1 / a);
    }
    const double d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), v = (1 + c * x) * (1 + c * x) * (1 + c * x);
      if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  uint64_t key_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace tandem::data
