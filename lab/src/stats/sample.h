// One sample: its middle, its spread, its quantiles and its ranks. Values must be finite throughout.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::lab::stats {

/// Throws Error where there are fewer than `least` values or one is not finite. `what` begins the message.
void check_sample(const char* what, std::span<const double> values, size_t least);
/// The same, and both of one size.
void check_pairs(const char* what, std::span<const double> first, std::span<const double> second,
                 size_t least);

double mean(std::span<const double> values);
/// With n - 1 below; 0 for one value.
double variance(std::span<const double> values);
double deviation(std::span<const double> values);
double median(std::span<const double> values);
/// Linear between the order statistics (type 7, the default of NumPy and R); 0 <= q <= 1.
double quantile(std::span<const double> values, double q);
double sorted_quantile(std::span<const double> sorted, double q);

/// Ranks from 1 on; equal values share the mean of theirs.
struct Ranks {
  std::vector<double> of;
  double tie_sum = 0;  // sum of t^3 - t over groups of t equal values; 0: no ties
};
Ranks ranks(std::span<const double> values);

}  // namespace tandem::lab::stats
