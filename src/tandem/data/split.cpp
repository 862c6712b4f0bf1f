// Splitting samples by chance.
#include "tandem/data/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/data/random.h"

namespace tandem::data {

namespace {

constexpr uint64_t kSplitStream = 0x7461626c65;  // apart from other uses of a seed

/// The numbers 0 … n-1 in an order by chance.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed) {
  SampleRandom random = SampleRandom(seed, 0, 0).stream(kSplitStream);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  return order;
}

/// How many of each group's samples are for testing, `wanted` in all where the groups have them: each its share rounded
/// down, then one more to those with the largest rest (the first among equals). At least one sample of each is left.
std::vector<int64_t> quotas(const std::vector<int64_t>& sizes, double share, int64_t wanted) {
  std::vector<int64_t> quota;
  std::vector<std::pair<double, size_t>> rests;  // largest first
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double part = share * static_cast<double>(sizes[i]);
    quota.push_back(static_cast<int64_t>(part));
    wanted -= quota[i];
    rests.emplace_back(static_cast<double>(quota[i]) - part, i);
  }
  std::sort(rests.begin(), rests.end());
  for (const auto& [rest, i] : rests) {
    if (wanted <= 0) break;
    if (quota[i] + 1 >= sizes[i]) continue;
    ++quota[i];
    --wanted;
  }
  return quota;
}

}  // namespace

SplitIndices split_indices(std::span<const int64_t> groups, double share, uint64_t seed) {
  TD_CHECK(share > 0 && share < 1, "split: the share must be above 0 and below 1; got ", share, ".");
  const auto count = static_cast<int64_t>(groups.size());
  TD_CHECK(count >= 2, "split: must have at least 2 samples; got ", count, ".");
  std::vector<int64_t> sizes;
  for (int64_t group : groups) {
    TD_ASSERT(group >= 0 && group < count, "groups are numbered from 0");
    if (group >= static_cast<int64_t>(sizes.size())) sizes.resize(static_cast<size_t>(group) + 1);
    ++sizes[static_cast<size_t>(group)];
  }
  const auto part = static_cast<int64_t>(std::floor(share * static_cast<double>(count) + 0.5));
  std::vector<int64_t> left = quotas(sizes, share, std::clamp(part, int64_t{1}, count - 1));
  std::vector<bool> is_test(groups.size());
  // The first samples of each group in shuffled order are for testing, until its quota is used up; both lists stay in
  // the order of the samples.
  for (int64_t i : shuffled(count, seed)) {
    int64_t& quota = left[static_cast<size_t>(groups[static_cast<size_t>(i)])];
    is_test[static_cast<size_t>(i)] = quota > 0;
    quota -= quota > 0;
  }
  SplitIndices parts;
  for (int64_t i = 0; i < count; ++i)
    (is_test[static_cast<size_t>(i)] ? parts.test : parts.train).push_back(i);
  return parts;
}

}  // namespace tandem::data
