// Distributions: lower tail (cdf), upper tail (sf) and quantiles, to about 1e-12 relative in both tails.
#pragma once

#include <cstdint>

namespace tandem::lab::stats {

double normal_pdf(double z);
double normal_cdf(double z);
double normal_sf(double z);
/// z with normal_cdf(z) = p; infinite at 0 and 1.
double normal_quantile(double p);

/// Student's t; df > 0 need not be whole.
double t_cdf(double t, double df);
double t_sf(double t, double df);
/// t with t_sf(t) = p: the upper quantile, 0 < p < 1.
double t_upper_quantile(double p, double df);

double chi2_cdf(double x, double df);
double chi2_sf(double x, double df);

double f_cdf(double f, double df1, double df2);
double f_sf(double f, double df1, double df2);

/// P(X <= k) and P(X >= k) of n trials with chance p each.
double binomial_cdf(int64_t k, int64_t n, double p);
double binomial_at_least(int64_t k, int64_t n, double p);

/// The interval of Clopper and Pearson for the chance behind k successes in n trials; it covers with at least `coverage`.
struct Bounds {
  double low = 0, high = 1;
};
Bounds clopper_pearson(int64_t k, int64_t n, double coverage = 0.95);

}  // namespace tandem::lab::stats
