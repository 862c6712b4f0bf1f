#include "lab/src/stats/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::lab::stats {

void check_sample(const char* what, std::span<const double> values, size_t least) {
  TD_CHECK(values.size() >= least, what, ": there must be at least ", least, " values; got ", values.size(),
           ". Measure more runs.");
  for (size_t i = 0; i < values.size(); ++i)
    TD_CHECK(std::isfinite(values[i]), what, ": every value must be finite; got ", values[i], " at place ", i,
             ". Leave that run out.");
}

void check_pairs(const char* what, std::span<const double> first, std::span<const double> second,
                 size_t least) {
  TD_CHECK(first.size() == second.size(), what, ": pairs must be complete; got ", first.size(), " and ",
           second.size(), " values. Leave out runs without a partner.");
  check_sample(what, first, least);
  check_sample(what, second, least);
}

double mean(std::span<const double> values) {
  check_sample("mean", values, 1);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double variance(std::span<const double> values) {
  const double middle = mean(values);
  if (values.size() == 1) return 0;
  double squares = 0, rest = 0;  // the rest fixes what rounding left in the mean
  for (const double value : values) {
    squares += (value - middle) * (value - middle);
    rest += value - middle;
  }
  const auto n = static_cast<double>(values.size());
  return (squares - rest * rest / n) / (n - 1);
}

double deviation(std::span<const double> values) { return std::sqrt(variance(values)); }

double median(std::span<const double> values) { return quantile(values, 0.5); }

double quantile(std::span<const double> values, double q) {
  check_sample("quantile", values, 1);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, q);
}

double sorted_quantile(std::span<const double> sorted, double q) {
  TD_CHECK(!sorted.empty() && q >= 0 && q <= 1,
           "quantile: there must be values and q lie between 0 and 1; got ", sorted.size(), " values and q ",
           q, ". Check both.");
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double share = place - static_cast<double>(below);
  if (share == 0) return sorted[below];
  // Written so that equal neighbours give themselves.
  const double low = sorted[below], high = sorted[below + 1];
  if (share == 0.5) return 0.5 * low + 0.5 * high;
  return share >= 0.5 ? high - (high - low) * (1 - share) : low + (high - low) * share;
}

// Ties share the mean of their places. tie_sum: the sum of t³ - t over groups of t equal values.
Ranks ranks(std::span<const double> values) {
  check_sample("ranks", values, 0);
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  Ranks result{std::vector<double>(values.size())};
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + 1 + end);
    for (size_t i = begin; i < end; ++i) result.of[order[i]] = rank;
    const auto ties = static_cast<double>(end - begin);
    result.tie_sum += ties * ties * ties - ties;
  }
  return result;
}

}  // namespace tandem::lab::stats
