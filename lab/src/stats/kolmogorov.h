// The distribution of Kolmogorov's statistic D, the largest distance between n values' steps and the distribution they
// are said to come from.
#pragma once

#include <cstddef>

namespace tandem::lab::stats {

/// P(D >= d) for n values, two-sided, exact.
double kolmogorov_exact_sf(double d, size_t n);
/// P(D+ >= d) for n values, one-sided, exact (Birnbaum and Tingey).
double smirnov_sf(double d, size_t n);
/// The limit for many values: P(sqrt(n) D >= x).
double kolmogorov_limit_sf(double x);

/// n up to which kolmogorov_exact_sf is worth its time.
inline constexpr size_t kKolmogorovExact = 1000;

}  // namespace tandem::lab::stats
