// Mann and Whitney's test of two samples that are not paired.
#include <algorithm>
#include <cmath>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr size_t kExact = 60;
constexpr size_t kMostExact = 200;  // the table's work grows with the fourth power

struct Joined {
  std::vector<double> ranks;  // of both samples together, the first sample first
  double tie_sum = 0;
  size_t first = 0, second = 0;
};

/// With ties the variance is smaller; `continuity` takes half a step towards the middle.
double normal_p(const Joined& data, double u, const MannWhitneyOptions& options) {
  const auto a = static_cast<double>(data.first), b = static_cast<double>(data.second);
  const double n = a + b;
  const double variance = a * b / 12 * (n + 1 - data.tie_sum / (n * (n - 1)));
  if (variance <= 0) return 1;  // all values are equal
  const double centre = a * b / 2, half = options.continuity ? 0.5 : 0;
  const auto upper = [&](double value) { return normal_sf((value - centre - half) / std::sqrt(variance)); };
  if (options.alternative == Alternative::greater) return upper(u);
  if (options.alternative == Alternative::less) return upper(a * b - u);
  return std::min(1.0, 2 * upper(std::max(u, a * b - u)));
}

/// Sums are doubled, so that the half ranks of ties are whole numbers.
double exact_p(const std::vector<double>& chances, double rank_sum, Alternative alternative) {
  const auto at = static_cast<size_t>(std::lround(2 * rank_sum));
  double less = 0, greater = 0;
  for (size_t i = 0; i <= at && i < chances.size(); ++i) less += chances[i];
  for (size_t i = chances.size(); i-- > at;) greater += chances[i];
  if (alternative == Alternative::less) return std::min(1.0, less);
  if (alternative == Alternative::greater) return std::min(1.0, greater);
  return std::min(1.0, 2 * std::min(less, greater));
}

}  // namespace

std::vector<double> rank_sum_distribution(std::span<const size_t> doubled, size_t chosen) {
  TD_CHECK(chosen <= doubled.size(), "rank_sum_distribution: no more ranks can be drawn than there are; got ",
           chosen, " of ", doubled.size(), ". Draw fewer.");
  std::vector<size_t> sorted(doubled.begin(), doubled.end());
  std::sort(sorted.rbegin(), sorted.rend());
  size_t most = 0;
  for (size_t i = 0; i < chosen; ++i) most += sorted[i];
  // ways[k][s]: ways to draw k of the ranks seen so far with doubled sum s.
  std::vector<std::vector<double>> ways(chosen + 1, std::vector<double>(most + 1));
  ways[0][0] = 1;
  for (size_t seen = 0; seen < doubled.size(); ++seen)
    // From the largest down, so that no rank is drawn twice.
    for (size_t k = std::min(chosen, seen + 1); k > 0; --k)
      for (size_t s = most + 1; s-- > doubled[seen];) ways[k][s] += ways[k - 1][s - doubled[seen]];
  double all = 0;
  for (const double count : ways[chosen]) all += count;
  for (double& count : ways[chosen]) count /= all;
  return std::move(ways[chosen]);
}

TestResult mann_whitney(std::span<const double> first, std::span<const double> second,
                        const MannWhitneyOptions& options) {
  check_sample("mann_whitney", first, 1);
  check_sample("mann_whitney", second, 1);
  std::vector<double> values(first.begin(), first.end());
  values.insert(values.end(), second.begin(), second.end());
  Ranks joined = ranks(values);
  Joined data{std::move(joined.of), joined.tie_sum, first.size(), second.size()};
  const size_t n = values.size();
  TD_CHECK(options.method != Method::exact || n <= kMostExact, "mann_whitney: the exact test takes up to ",
           kMostExact, " values; got ", n, ". Use the normal approximation.");
  const bool exact = options.method == Method::exact || (options.method == Method::automatic && n <= kExact);

  double rank_sum = 0;
  for (size_t i = 0; i < first.size(); ++i) rank_sum += data.ranks[i];
  const auto a = static_cast<double>(first.size());
  const double least = a * (a + 1) / 2;  // the rank sum where U is 0
  TestResult result;
  result.name = exact ? "Mann-Whitney, exact" : "Mann-Whitney, normal approximation";
  result.statistic = rank_sum - least;
  result.runs = std::min(first.size(), second.size());

  // The extremes that these very ranks allow: with ties they are not 0 and a b.
  std::vector<double> sorted = data.ranks;
  std::sort(sorted.begin(), sorted.end());
  double lowest = 0, highest = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    lowest += sorted[i];
    highest += sorted[n - 1 - i];
  }
  std::vector<double> chances;
  if (exact) {
    std::vector<size_t> doubled;
    for (const double rank : data.ranks) doubled.push_back(static_cast<size_t>(std::lround(2 * rank)));
    chances = rank_sum_distribution(doubled, first.size());
  }
  const auto p_of = [&](double sum) {
    return exact ? exact_p(chances, sum, options.alternative) : normal_p(data, sum - least, options);
  };
  result.p = p_of(rank_sum);
  result.smallest_p = options.alternative == Alternative::less      ? p_of(lowest)
                      : options.alternative == Alternative::greater ? p_of(highest)
                                                                    : std::min(p_of(lowest), p_of(highest));
  result.at_floor = result.p <= result.smallest_p && result.p < 1;
  return result;
}

double mann_whitney_smallest_p(size_t first, size_t second) {
  // One way of all that n values can be divided, on either side.
  double ways = 1;
  for (size_t i = 1; i <= std::min(first, second); ++i)
    ways *= static_cast<double>(std::max(first, second) + i) / static_cast<double>(i);
  return std::min(1.0, 2 / ways);
}

}  // namespace tandem::lab::stats
