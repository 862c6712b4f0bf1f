// Equivalence by two one-sided t tests (TOST): a small p says that the difference lies within the margins. A large p of
// an ordinary test never says that.
#pragma once

#include <span>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

/// The answer's statistic is the t that is nearer to zero.
struct Equivalence {
  TestResult test;
  double difference = 0;  // mean of second - first (of logarithms: its exponential, a ratio)
  double low = 0,
         high =
             0;  // the interval of coverage 1 - 2 level: equivalence at that level means that it lies within
};

/// Mean of second - first of pairs within (low, high); at least two pairs.
Equivalence tost_paired(std::span<const double> first, std::span<const double> second, double low,
                        double high, double level = 0.05);
/// The same of two samples, by Welch's t test; at least two values each.
Equivalence tost_welch(std::span<const double> first, std::span<const double> second, double low, double high,
                       double level = 0.05);
/// The ratio second / first (of geometric means) within 1 / (1 + margin) and 1 + margin. All values must be positive.
Equivalence tost_ratio(std::span<const double> first, std::span<const double> second, double margin,
                       bool paired, double level = 0.05);

}  // namespace tandem::lab::stats
