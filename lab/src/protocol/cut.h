// Where lab/docs/protocol.md cuts a picture ("Images"): in the middle in test mode, at a place that the hash draws in training.
// So every driver must make exactly the same samples.
#pragma once

#include "lab/src/protocol/hash.h"

namespace tandem::lab {

struct Cut {
  int64_t top = 0, left = 0;
  bool is_mirrored = false;
};

/// For a picture of height by width, which must be at least as large as the cut.
constexpr Cut middle_cut(int64_t height, int64_t width, int64_t cut_height, int64_t cut_width) {
  return {(height - cut_height) / 2, (width - cut_width) / 2, false};
}

/// For the sample at `position`, counted over all batches of a run.
constexpr Cut drawn_cut(int64_t position, uint64_t seed, int64_t height, int64_t width, int64_t cut_height,
                        int64_t cut_width) {
  const auto drawn = [&](uint32_t number) {
    return uint64_t{hashed(3 * static_cast<uint32_t>(position) + number, static_cast<uint32_t>(seed))};
  };
  const auto below = [&](uint32_t number, int64_t most) {
    return static_cast<int64_t>(drawn(number) * static_cast<uint64_t>(most + 1) >> 32);
  };
  return {below(0, height - cut_height), below(1, width - cut_width), drawn(2) >> 31 == 1};
}

}  // namespace tandem::lab
