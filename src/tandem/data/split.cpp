// Splitting samples by chance.
#include "tandem/data/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "tandem/core/error.h"
#include "tandem/data/random.h"

namespace tandem::data {

namespace {

constexpr uint64_t kSplitStream = 0x7461626c65;  // apart from other uses of a seed
constexpr uint64_t kDrawStream = 0x6c696d6974;

/// The numbers 0 … n-1 in an order by chance.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed, uint64_t stream) {
  SampleRandom random = SampleRandom(seed, 0, 0).stream(stream);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  return order;
}

/// The groups by the numbers 0, 1, 2 … in their order, and the size of each.
struct Numbered {
  std::vector<size_t> of_sample;
  std::vector<int64_t> sizes;
};
Numbered numbered(std::span<const int64_t> groups) {
  std::vector<int64_t> names(groups.begin(), groups.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  Numbered out{.of_sample = {}, .sizes = std::vector<int64_t>(names.size())};
  for (const int64_t group : groups) {
    out.of_sample.push_back(
        static_cast<size_t>(std::lower_bound(names.begin(), names.end(), group) - names.begin()));
    ++out.sizes[out.of_sample.back()];
  }
  return out;
}

/// How many samples each group gives to a draw of `count`, of which there are fewer than samples: see draw_indices. `order`
/// decides which groups give one where there are too many.
std::vector<int64_t> drawn_of_each(const Numbered& groups, int64_t count, const std::vector<int64_t>& order) {
  std::vector<int64_t> drawn(groups.sizes.size());
  const auto all = static_cast<int64_t>(groups.of_sample.size()),
             kinds = static_cast<int64_t>(groups.sizes.size());
  if (count < kinds) {
    for (const int64_t i : order) {
      int64_t& of_group = drawn[groups.of_sample[static_cast<size_t>(i)]];
      if (count == 0) break;
      count -= of_group == 0;
      of_group = 1;
    }
    return drawn;
  }
  // A share of each, rounded down, and one more to those with the largest rest.
  int64_t left = count;
  std::vector<std::pair<int64_t, size_t>> rests;  // the largest first
  for (size_t i = 0; i < drawn.size(); ++i) {
    const int64_t parts = count * groups.sizes[i];
    drawn[i] = parts / all;
    left -= drawn[i];
    rests.emplace_back(-(parts % all), i);
  }
  std::sort(rests.begin(), rests.end());
  for (size_t i = 0; static_cast<int64_t>(i) < left; ++i) ++drawn[rests[i].second];
  // Those that would have none take one of the group that has the most.
  std::priority_queue<std::pair<int64_t, size_t>> most;
  for (size_t i = 0; i < drawn.size(); ++i) most.emplace(drawn[i], i);
  for (int64_t& of_group : drawn) {
    if (of_group > 0) continue;
    const size_t from = most.top().second;
    most.pop();
    most.emplace(--drawn[from], from);
    of_group = 1;
  }
  return drawn;
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
  const Numbered known = numbered(groups);
  const auto part = static_cast<int64_t>(std::floor(share * static_cast<double>(count) + 0.5));
  std::vector<int64_t> left = quotas(known.sizes, share, std::clamp(part, int64_t{1}, count - 1));
  std::vector<bool> is_test(groups.size());
  // The first samples of each group in shuffled order are for testing, until its quota is used up; both lists stay in
  // the order of the samples.
  for (int64_t i : shuffled(count, seed, kSplitStream)) {
    int64_t& quota = left[known.of_sample[static_cast<size_t>(i)]];
    is_test[static_cast<size_t>(i)] = quota > 0;
    quota -= quota > 0;
  }
  SplitIndices parts;
  for (int64_t i = 0; i < count; ++i)
    (is_test[static_cast<size_t>(i)] ? parts.test : parts.train).push_back(i);
  return parts;
}

std::vector<int64_t> draw_indices(std::span<const int64_t> groups, int64_t count, uint64_t seed) {
  TD_CHECK(count >= 1, "limit: must be at least 1 sample; got ", count, ".");
  const auto all = static_cast<int64_t>(groups.size());
  std::vector<int64_t> drawn;
  if (count >= all) {
    drawn.resize(groups.size());
    std::iota(drawn.begin(), drawn.end(), int64_t{0});
    return drawn;
  }
  const Numbered known = numbered(groups);
  const std::vector<int64_t> order = shuffled(all, seed, kDrawStream);
  std::vector<int64_t> left = drawn_of_each(known, count, order);
  for (const int64_t i : order)
    if (left[known.of_sample[static_cast<size_t>(i)]]-- > 0) drawn.push_back(i);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace tandem::data
