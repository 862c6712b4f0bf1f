// Tests on ranks: two systems, paired by block (Wilcoxon) or not (Mann and Whitney).
#pragma once

#include <span>
#include <vector>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

/// What happens to pairs that do not differ.
enum class Zeros {
  drop,   // left out before ranking (Wilcoxon; SciPy's "wilcox")
  pratt,  // ranked with the others, then left out
};

struct WilcoxonOptions {
  Alternative alternative = Alternative::two_sided;  // greater: the differences tend to be above zero
  Method method = Method::automatic;                 // automatic: exact up to 50 differences
  Zeros zeros = Zeros::drop;
  bool continuity = false;  // of the normal approximation
};

/// Wilcoxon's signed-rank test of differences around zero. Exact also with ties: the distribution is that of the ranks at
/// hand. The statistic is the sum of ranks of positive differences, and for a two-sided question the smaller sum.
TestResult wilcoxon(std::span<const double> differences, const WilcoxonOptions& options = {});
/// Of second - first, pair by pair.
TestResult wilcoxon(std::span<const double> first, std::span<const double> second,
                    const WilcoxonOptions& options = {});

/// The smallest two-sided p of n untied differences: 2^(1-n) where exact.
double wilcoxon_smallest_p(size_t n, Method method = Method::automatic);
/// How many pairs the exact test needs before it can go below p.
size_t wilcoxon_least_pairs(double p);

struct MannWhitneyOptions {
  Alternative alternative = Alternative::two_sided;  // greater: the first sample tends to be larger
  Method method = Method::automatic;                 // automatic: exact up to 60 values in all
  bool continuity = true;                            // of the normal approximation
};

/// Mann and Whitney's U of the first sample: pairs in which it is larger, ties counted half.
TestResult mann_whitney(std::span<const double> first, std::span<const double> second,
                        const MannWhitneyOptions& options = {});
/// The smallest two-sided p of two untied samples.
double mann_whitney_smallest_p(size_t first, size_t second);

/// The distribution of the sum of signed ranks: [s] is the chance that twice the sum of ranks with a positive sign is s.
/// `doubled` holds each rank times two, which is whole also where values tie.
std::vector<double> signed_rank_distribution(std::span<const size_t> doubled);
/// The same for the sum of the ranks of `chosen` values drawn from all of them.
std::vector<double> rank_sum_distribution(std::span<const size_t> doubled, size_t chosen);

}  // namespace tandem::lab::stats
