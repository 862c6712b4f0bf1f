#include "lab/src/stats/equivalence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

/// Two one-sided tests: above low, and below high. Both must hold, so that the larger p counts. The interval has
/// coverage 1 - 2 · level and lies within the margins exactly where both tests reject.
Equivalence two_tests(double difference, double error, double df, double low, double high, double level) {
  TD_CHECK(low < high, "tost: the margins must have low < high; got ", low, " and ", high,
           ". Swap or widen them.");
  TD_CHECK(level > 0 && level < 0.5, "tost: the level must lie between 0 and 0.5; got ", level,
           ". Use 0.05.");
  Equivalence result;
  result.difference = difference;
  if (error == 0) {
    // Every difference is the same number: it lies within, or it does not.
    const bool within = low < difference && difference < high;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    result.test.p = within ? 0 : 1;
    result.test.statistic = within ? kInfinity : 0;
    result.low = result.high = difference;
    return result;
  }
  const double above = (difference - low) / error, below = (difference - high) / error;
  const double p_above = t_sf(above, df), p_below = t_cdf(below, df);
  result.test.p = std::max(p_above, p_below);
  result.test.statistic = p_above >= p_below ? above : below;
  const double reach = t_upper_quantile(level, df) * error;
  result.low = difference - reach;
  result.high = difference + reach;
  return result;
}

std::vector<double> logarithms(std::span<const double> values) {
  check_sample("tost_ratio", values, 2);
  std::vector<double> logs;
  for (const double value : values) {
    TD_CHECK(value > 0, "tost_ratio: every value must be positive; got ", value,
             ". Test the differences instead.");
    logs.push_back(std::log(value));
  }
  return logs;
}

}  // namespace

Equivalence tost_paired(std::span<const double> first, std::span<const double> second, double low,
                        double high, double level) {
  check_pairs("tost_paired", first, second, 2);
  std::vector<double> differences;
  for (size_t i = 0; i < first.size(); ++i) differences.push_back(second[i] - first[i]);
  const auto n = static_cast<double>(differences.size());
  Equivalence result =
      two_tests(mean(differences), std::sqrt(variance(differences) / n), n - 1, low, high, level);
  result.test.name = "TOST, paired";
  result.test.runs = first.size();
  return result;
}

Equivalence tost_welch(std::span<const double> first, std::span<const double> second, double low, double high,
                       double level) {
  check_sample("tost_welch", first, 2);
  check_sample("tost_welch", second, 2);
  const auto n = static_cast<double>(first.size()), m = static_cast<double>(second.size());
  const double a = variance(first) / n, b = variance(second) / m;
  // Welch and Satterthwaite; where nothing varies any number will do, as no t is computed.
  const double df = a + b > 0 ? (a + b) * (a + b) / (a * a / (n - 1) + b * b / (m - 1)) : n + m - 2;
  Equivalence result = two_tests(mean(second) - mean(first), std::sqrt(a + b), df, low, high, level);
  result.test.name = "TOST, Welch";
  result.test.runs = std::min(first.size(), second.size());
  return result;
}

// On logarithms, where a ratio is a difference: the margins are 1 / (1 + margin) and 1 + margin.
Equivalence tost_ratio(std::span<const double> first, std::span<const double> second, double margin,
                       bool paired, double level) {
  TD_CHECK(margin > 0, "tost_ratio: the margin must be positive; got ", margin, ". Use 0.02 for 2 %.");
  const std::vector<double> a = logarithms(first), b = logarithms(second);
  const double reach = std::log1p(margin);
  Equivalence result =
      paired ? tost_paired(a, b, -reach, reach, level) : tost_welch(a, b, -reach, reach, level);
  result.test.name += ", of ratios";
  result.difference = std::exp(result.difference);
  result.low = std::exp(result.low);
  result.high = std::exp(result.high);
  return result;
}

}  // namespace tandem::lab::stats
