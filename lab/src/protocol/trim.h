// Where lab/docs/protocol.md trims a batch ("Lengths"): every driver must cut off the same places, so that all do the same work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::lab {

/// One length and what it trims: the first axis of these inputs and targets is cut to the longest sample of the batch.
struct TrimRule {
  std::string length;           // an input or a target: one whole number per sample
  std::vector<std::string> of;  // inputs and targets whose places it counts
  int64_t multiple = 1;  // sizes are rounded up to a multiple of this, so that few different sizes occur
};

/// How many of `places` are left in a batch whose longest sample has `longest`.
constexpr int64_t trimmed_size(int64_t longest, int64_t multiple, int64_t places) {
  return std::min(places, (longest + multiple - 1) / multiple * multiple);
}

}  // namespace tandem::lab
