// How large a difference is: Hodges and Lehmann's shift, Cliff's delta, and intervals by resampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::lab::stats {

/// A value with an interval, and the coverage that the interval really has (or aims at, where it is resampled): with few
/// runs a rank interval cannot reach 95 %.
struct Interval {
  double value = 0, low = 0, high = 0;
  double coverage = 0.95;
};

/// The shift second - first of pairs: the median of the means of all pairs of differences (Walsh averages), with the
/// interval that Wilcoxon's test gives.
Interval hodges_lehmann_paired(std::span<const double> first, std::span<const double> second,
                               double coverage = 0.95);
/// The shift second - first of two samples: the median of all differences, with the interval of Mann and Whitney's test.
Interval hodges_lehmann(std::span<const double> first, std::span<const double> second,
                        double coverage = 0.95);

/// P(second > first) - P(second < first) over all pairs of values: -1 to 1.
double cliffs_delta(std::span<const double> first, std::span<const double> second);

struct BootstrapOptions {
  enum class Kind { percentile, bca } kind = Kind::percentile;
  int resamples = 4000;
  uint64_t seed = 1;
  double coverage = 0.95;
};

/// The median, resampling values.
Interval median_interval(std::span<const double> values, const BootstrapOptions& options = {});
/// Median of second / median of first, resampling pairs, or each sample for itself. Where all values are positive, the median
/// of an even number of them is the geometric mean of the middle two: then the ratio of reciprocals is the reciprocal of the
/// ratio, and of its interval. A ratio means something only to a median above zero: the value is no number where the first's is not, and low and high where a resampled one is not.
Interval median_ratio_paired(std::span<const double> first, std::span<const double> second,
                             const BootstrapOptions& options = {});
Interval median_ratio(std::span<const double> first, std::span<const double> second,
                      const BootstrapOptions& options = {});

}  // namespace tandem::lab::stats
