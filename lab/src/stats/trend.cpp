#include "lab/src/stats/trend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr size_t kExactTreatments = 8, kExactBlocks = 100;

struct RankedRows {
  std::vector<double> sums;  // of ranks, one a treatment
  double tie_sum = 0;
  double blocks = 0, treatments = 0;
};

RankedRows rank_rows(const char* what, std::span<const std::vector<double>> rows) {
  TD_CHECK(rows.size() >= 2 && rows[0].size() >= 3, what,
           ": there must be at least two blocks and three treatments; got ", rows.size(), " and ",
           rows.empty() ? 0 : rows[0].size(), ". Measure more, or compare two systems by wilcoxon.");
  RankedRows result;
  result.sums.resize(rows[0].size());
  result.blocks = static_cast<double>(rows.size());
  result.treatments = static_cast<double>(rows[0].size());
  for (const std::vector<double>& row : rows) {
    TD_CHECK(row.size() == result.sums.size(), what,
             ": every block must have every treatment; got blocks of ", result.sums.size(), " and ",
             row.size(), ". Leave incomplete blocks out.");
    check_sample(what, row, 1);
    const Ranks ranked = ranks(row);
    result.tie_sum += ranked.tie_sum;
    for (size_t j = 0; j < row.size(); ++j) result.sums[j] += ranked.of[j];
  }
  return result;
}

/// P(L >= l) where every order of a block is as likely as any other: the blocks' distributions, convolved.
double page_exact_sf(size_t l, size_t blocks, size_t treatments) {
  std::vector<size_t> order(treatments);
  std::iota(order.begin(), order.end(), size_t{1});
  size_t most = 0;
  for (const size_t rank : order) most += rank * rank;
  std::vector<double> one(most + 1);
  double ways = 0;
  do {
    size_t sum = 0;
    for (size_t j = 0; j < treatments; ++j) sum += (j + 1) * order[j];
    ++one[sum];
    ++ways;
  } while (std::next_permutation(order.begin(), order.end()));
  for (double& count : one) count /= ways;
  std::vector<double> all{1};
  for (size_t block = 0; block < blocks; ++block) {
    std::vector<double> next(all.size() + most);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] > 0)
        for (size_t j = 0; j < one.size(); ++j) next[i + j] += all[i] * one[j];
    all = std::move(next);
  }
  double tail = 0;
  for (size_t i = all.size(); i-- > l;) tail += all[i];
  return std::min(1.0, tail);
}

}  // namespace

// Whether the treatments differ at all: rank sums against their common mean, with ties taken out.
TestResult friedman(std::span<const std::vector<double>> rows) {
  const RankedRows data = rank_rows("friedman", rows);
  const double m = data.blocks, k = data.treatments;
  TestResult result;
  result.name = "Friedman";
  result.runs = rows.size();
  double squares = 0;
  for (const double sum : data.sums) squares += (sum - m * (k + 1) / 2) * (sum - m * (k + 1) / 2);
  const double correction = 1 - data.tie_sum / (m * k * (k * k - 1));
  result.smallest_p = chi2_sf(m * (k - 1), k - 1);  // all blocks agree
  if (correction <= 0) return result;               // within every block all values are equal
  result.statistic = 12 / (m * k * (k + 1)) * squares / correction;
  result.p = chi2_sf(result.statistic, k - 1);
  result.at_floor = result.statistic >= m * (k - 1) * (1 - 1e-12);
  return result;
}

// Whether the treatments rise in the order in which they are given: L = Σ j · (rank sum of treatment j).
TestResult page(std::span<const std::vector<double>> rows, Method method) {
  const RankedRows data = rank_rows("page", rows);
  const double m = data.blocks, k = data.treatments;
  TestResult result;
  result.runs = rows.size();
  for (size_t j = 0; j < data.sums.size(); ++j) result.statistic += static_cast<double>(j + 1) * data.sums[j];
  const bool fits = data.sums.size() <= kExactTreatments && rows.size() <= kExactBlocks && data.tie_sum == 0;
  TD_CHECK(method != Method::exact || fits, "page: the exact test takes up to ", kExactTreatments,
           " treatments and ", kExactBlocks, " blocks without ties; got ", k, " treatments, ", m,
           " blocks. Use the normal approximation.");
  const bool exact = fits && method != Method::normal;
  result.name = exact ? "Page, exact" : "Page, normal approximation";
  const double most = m * k * (k + 1) * (2 * k + 1) / 6;
  const auto p_of = [&](double l) {
    if (exact) return page_exact_sf(static_cast<size_t>(std::lround(l)), rows.size(), data.sums.size());
    const double centre = m * k * (k + 1) * (k + 1) / 4;
    const double variance = m * k * k * (k + 1) * (k * k - 1) / 144;
    return normal_sf((l - centre) / std::sqrt(variance));
  };
  result.p = p_of(result.statistic);
  // Every block in the one right order of its k!.
  result.smallest_p = exact ? std::exp(-m * std::lgamma(k + 1)) : p_of(most);
  result.at_floor = result.statistic >= most;
  return result;
}

}  // namespace tandem::lab::stats
