// Wilcoxon's signed-rank test.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr size_t kExact = 50;        // as SciPy chooses; above it the normal approximation is good
constexpr size_t kMostExact = 1000;  // the table's size grows with n^3

/// The ranks of the absolute differences that are not zero, those that are positive, and what the mean and variance of
/// the normal approximation need.
struct Signed {
  std::vector<double> ranks;
  std::vector<bool> positive;
  double tie_sum = 0;
  double all = 0, zeros = 0;  // counts that were ranked, and of those the zeros
};

Signed sign_ranks(std::span<const double> differences, Zeros zeros) {
  std::vector<double> magnitudes;
  std::vector<double> kept;
  Signed result;
  for (const double difference : differences) {
    if (difference == 0 && zeros == Zeros::drop) continue;
    kept.push_back(difference);
    magnitudes.push_back(std::abs(difference));
  }
  const Ranks all = ranks(magnitudes);
  result.all = static_cast<double>(kept.size());
  result.tie_sum = all.tie_sum;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == 0) {
      ++result.zeros;
      continue;
    }
    result.ranks.push_back(all.of[i]);
    result.positive.push_back(kept[i] > 0);
  }
  // The zeros are one group of ties, but the variance takes them out by themselves.
  result.tie_sum -= result.zeros * result.zeros * result.zeros - result.zeros;
  return result;
}

/// P(T <= t) and P(T >= t) of twice the rank sum.
double lower_tail(const std::vector<double>& chances, size_t doubled) {
  double sum = 0;
  for (size_t i = 0; i <= doubled && i < chances.size(); ++i) sum += chances[i];
  return std::min(1.0, sum);
}
double upper_tail(const std::vector<double>& chances, size_t doubled) {
  double sum = 0;
  for (size_t i = chances.size(); i-- > doubled;) sum += chances[i];
  return std::min(1.0, sum);
}

double exact_p(const Signed& data, double plus, Alternative alternative) {
  std::vector<size_t> doubled;
  for (const double rank : data.ranks) doubled.push_back(static_cast<size_t>(std::lround(2 * rank)));
  const std::vector<double> chances = signed_rank_distribution(doubled);
  const auto at = static_cast<size_t>(std::lround(2 * plus));
  const double less = lower_tail(chances, at), greater = upper_tail(chances, at);
  if (alternative == Alternative::less) return less;
  if (alternative == Alternative::greater) return greater;
  return std::min(1.0, 2 * std::min(less, greater));
}

/// Zeros that were ranked are taken out of mean and variance, ties out of the variance.
double normal_p(const Signed& data, double plus, const WilcoxonOptions& options) {
  const double n = data.all, z = data.zeros;
  const double centre = 0.25 * (n * (n + 1) - z * (z + 1));
  const double variance = (n * (n + 1) * (2 * n + 1) - z * (z + 1) * (2 * z + 1) - 0.5 * data.tie_sum) / 24;
  double distance = plus - centre;
  if (options.continuity) {
    const double side = options.alternative == Alternative::greater ? 1
                        : options.alternative == Alternative::less  ? -1
                        : distance > 0                              ? 1
                        : distance < 0                              ? -1
                                                                    : 0;
    distance -= 0.5 * side;
  }
  const double score = distance / std::sqrt(variance);
  if (options.alternative == Alternative::less) return normal_cdf(score);
  if (options.alternative == Alternative::greater) return normal_sf(score);
  return std::min(1.0, 2 * normal_sf(std::abs(score)));
}

}  // namespace

std::vector<double> signed_rank_distribution(std::span<const size_t> doubled) {
  std::vector<double> chances(std::accumulate(doubled.begin(), doubled.end(), size_t{0}) + 1);
  chances[0] = 1;
  size_t reached = 0;
  for (const size_t rank : doubled) {
    // Each sign is a fair coin: half of every chance moves up by the rank.
    reached += rank;
    for (size_t s = reached + 1; s-- > 0;)
      chances[s] = 0.5 * (chances[s] + (s >= rank ? chances[s - rank] : 0));
  }
  return chances;
}

TestResult wilcoxon(std::span<const double> differences, const WilcoxonOptions& options) {
  check_sample("wilcoxon", differences, 1);
  const Signed data = sign_ranks(differences, options.zeros);
  const size_t n = data.ranks.size();
  TD_CHECK(options.method != Method::exact || n <= kMostExact, "wilcoxon: the exact test takes up to ",
           kMostExact, " differences; got ", n, ". Use the normal approximation.");
  const bool exact = options.method == Method::exact || (options.method == Method::automatic && n <= kExact);
  TestResult result;
  result.name = exact ? "Wilcoxon signed-rank, exact" : "Wilcoxon signed-rank, normal approximation";
  result.runs = n;
  result.smallest_p = 1;
  if (n == 0) return result;  // no pair differs
  double plus = 0, total = 0;
  for (size_t i = 0; i < n; ++i) {
    total += data.ranks[i];
    if (data.positive[i]) plus += data.ranks[i];
  }
  const auto p_of = [&](double sum) {
    return exact ? exact_p(data, sum, options.alternative) : normal_p(data, sum, options);
  };
  result.statistic = options.alternative == Alternative::two_sided ? std::min(plus, total - plus) : plus;
  result.p = p_of(plus);
  const bool at_top = plus == total, at_bottom = plus == 0;
  // What these very ranks allow, with all signs alike.
  result.smallest_p = p_of(options.alternative == Alternative::less ? 0 : total);
  result.at_floor = (at_top && options.alternative != Alternative::less) ||
                    (at_bottom && options.alternative != Alternative::greater);
  return result;
}

TestResult wilcoxon(std::span<const double> first, std::span<const double> second,
                    const WilcoxonOptions& options) {
  check_pairs("wilcoxon", first, second, 1);
  std::vector<double> differences;
  for (size_t i = 0; i < first.size(); ++i) differences.push_back(second[i] - first[i]);
  return wilcoxon(differences, options);
}

double wilcoxon_smallest_p(size_t n, Method method) {
  if (n == 0) return 1;
  if (method == Method::exact || (method == Method::automatic && n <= kExact))
    // Two of 2^n patterns of signs.
    return std::min(1.0, std::ldexp(1.0, 1 - static_cast<int>(std::min<size_t>(n, 2000))));
  const auto count = static_cast<double>(n);
  const double score = 0.25 * count * (count + 1) / std::sqrt(count * (count + 1) * (2 * count + 1) / 24);
  return std::min(1.0, 2 * normal_sf(score));
}

size_t wilcoxon_least_pairs(double p) {
  TD_CHECK(p > 0, "wilcoxon_least_pairs: p must be positive; got ", p, ". Give a level such as 0.05.");
  size_t n = 1;
  while (wilcoxon_smallest_p(n, Method::exact) >= p && n < 2000) ++n;
  return n;
}

}  // namespace tandem::lab::stats
