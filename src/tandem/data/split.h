// Splitting samples into a training and a test part by chance: the one rule for tables, images and arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::data {

/// Indices of the samples of each part, in rising order.
struct SplitIndices {
  std::vector<int64_t> train, test;
};

/// Takes `share` of the samples (rounded, at least one) as the test part: a function of the groups, share and seed, the
/// same on every machine. Sample i is of group groups[i]: each group comes in equal shares to both parts, as near
/// as whole samples allow, and keeps at least one sample in training. The test part is empty where every sample is a
/// group of its own. Throws Error unless 0 < share < 1; there must be at least two samples.
SplitIndices split_indices(std::span<const int64_t> groups, double share, uint64_t seed);

/// Draws `count` of the samples, all where there are no more: a function of the groups, count and seed, the same on every
/// machine. -> their indices in rising order. Sample i is of group groups[i]. Where `count` allows it, the groups
/// come in equal shares, as near as whole samples allow, and each gives one sample at least; else as many groups as
/// `count`, drawn by chance, give one each. Throws Error unless count is at least 1.
std::vector<int64_t> draw_indices(std::span<const int64_t> groups, int64_t count, uint64_t seed);

}  // namespace tandem::data
