// Shifts and dominance. The order statistics of the n(n+1)/2 or n·m differences are found by bisection with counting in
// linear time, so that no list of them is ever made.
#include "lab/src/stats/effect.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lab/src/stats/bisect.h"
#include "lab/src/stats/distributions.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr size_t kExactPairs = 50, kExactValues = 60;

/// The k-th smallest (from 1) of the numbers that `count(v)` counts up to v.
double order_statistic(double k, double low, double high, const std::function<double(double)>& count) {
  return first_where(low, high, [&](double v) { return count(v) >= k; });
}

/// The median, and the k-th from both ends, of `total` numbers.
Interval from_orders(double total, double k, double low, double high,
                     const std::function<double(double)>& count) {
  Interval interval;
  const double below = std::floor((total + 1) / 2), above = std::ceil((total + 1) / 2);
  const double first = order_statistic(below, low, high, count);
  const double second = below == above ? first : order_statistic(above, low, high, count);
  interval.value = first + (second - first) / 2;
  interval.low = order_statistic(k, low, high, count);
  interval.high = order_statistic(total + 1 - k, low, high, count);
  return interval;
}

/// The largest k for which the chance of fewer than k on one side is at most `tail`, but at least 1; and that chance.
struct Cut {
  double k = 1, tail = 0;
};

Cut exact_cut(const std::vector<double>& chances, size_t step, size_t start, double tail) {
  // chances[start + i·step] is that of the statistic i; P(statistic < k) must not pass the tail.
  Cut cut;
  double sum = chances[start];
  cut.tail = sum;
  for (size_t i = 1; start + i * step < chances.size(); ++i) {
    if (sum > tail) break;
    cut.k = static_cast<double>(i);
    cut.tail = sum;
    sum += chances[start + i * step];
  }
  return cut;
}

Cut normal_cut(double centre, double variance, double tail) {
  Cut cut;
  cut.k = std::max(1.0, std::round(centre + normal_quantile(tail) * std::sqrt(variance)));
  cut.tail = tail;
  return cut;
}

void check_coverage(const char* what, double coverage) {
  TD_CHECK(coverage > 0 && coverage < 1, what, ": the coverage must lie between 0 and 1; got ", coverage,
           ". Use 0.95.");
}

}  // namespace

// The median of the means of all pairs of differences, and the interval that the signed-rank test gives.
Interval hodges_lehmann_paired(std::span<const double> first, std::span<const double> second,
                               double coverage) {
  check_pairs("hodges_lehmann_paired", first, second, 1);
  check_coverage("hodges_lehmann_paired", coverage);
  std::vector<double> d;
  for (size_t i = 0; i < first.size(); ++i) d.push_back(second[i] - first[i]);
  std::sort(d.begin(), d.end());
  const size_t n = d.size();
  // Pairs i <= j whose mean is at most v; as i grows, the largest such j falls.
  const auto count = [&](double v) {
    double pairs = 0;
    size_t j = n;
    for (size_t i = 0; i < n; ++i) {
      while (j > i && 0.5 * d[i] + 0.5 * d[j - 1] > v) --j;
      if (j <= i) break;
      pairs += static_cast<double>(j - i);
    }
    return pairs;
  };
  const auto size = static_cast<double>(n);
  const double total = size * (size + 1) / 2, tail = (1 - coverage) / 2;
  Cut cut;
  if (n <= kExactPairs) {
    std::vector<size_t> doubled;
    for (size_t i = 1; i <= n; ++i) doubled.push_back(2 * i);
    cut = exact_cut(signed_rank_distribution(doubled), 2, 0, tail);
  } else {
    cut = normal_cut(total / 2, size * (size + 1) * (2 * size + 1) / 24, tail);
  }
  Interval interval = from_orders(total, cut.k, d.front(), d.back(), count);
  interval.coverage = 1 - 2 * cut.tail;
  return interval;
}

// The median of all differences y - x, and the interval that the rank-sum test gives.
Interval hodges_lehmann(std::span<const double> first, std::span<const double> second, double coverage) {
  check_sample("hodges_lehmann", first, 1);
  check_sample("hodges_lehmann", second, 1);
  check_coverage("hodges_lehmann", coverage);
  std::vector<double> x(first.begin(), first.end()), y(second.begin(), second.end());
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  // Pairs with y - x <= v; as x grows, so does the count of y.
  const auto count = [&](double v) {
    double pairs = 0;
    size_t j = 0;
    for (const double value : x) {
      while (j < y.size() && y[j] - value <= v) ++j;
      pairs += static_cast<double>(j);
    }
    return pairs;
  };
  const auto a = static_cast<double>(x.size()), b = static_cast<double>(y.size());
  const double tail = (1 - coverage) / 2;
  Cut cut;
  if (x.size() + y.size() <= kExactValues) {
    std::vector<size_t> doubled;
    for (size_t i = 1; i <= x.size() + y.size(); ++i) doubled.push_back(2 * i);
    cut = exact_cut(rank_sum_distribution(doubled, x.size()), 2, x.size() * (x.size() + 1), tail);
  } else {
    cut = normal_cut(a * b / 2, a * b * (a + b + 1) / 12, tail);
  }
  Interval interval = from_orders(a * b, cut.k, y.front() - x.back(), y.back() - x.front(), count);
  interval.coverage = 1 - 2 * cut.tail;
  return interval;
}

// P(second > first) - P(second < first) over all pairs.
double cliffs_delta(std::span<const double> first, std::span<const double> second) {
  check_sample("cliffs_delta", first, 1);
  check_sample("cliffs_delta", second, 1);
  std::vector<double> sorted(first.begin(), first.end());
  std::sort(sorted.begin(), sorted.end());
  double sum = 0;
  for (const double value : second) {
    const auto [low, high] = std::equal_range(sorted.begin(), sorted.end(), value);
    sum += static_cast<double>(low - sorted.begin()) - static_cast<double>(sorted.end() - high);
  }
  return sum / (static_cast<double>(first.size()) * static_cast<double>(second.size()));
}

}  // namespace tandem::lab::stats
