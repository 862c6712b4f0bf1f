#include "lab/src/stats/distributions.h"

#include <cmath>
#include <limits>

#include "lab/src/stats/bisect.h"
#include "lab/src/stats/special.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// P(T > t) for t >= 0.
/// By the beta function at df / (df + t²), with its complement computed by itself rather than as 1 - x.
double t_upper(double t, double df) {
  const double square = t * t;
  if (std::isinf(square)) return 0;
  const double x = df / (df + square), y = square / (df + square);
  return 0.5 * beta_lower(df / 2, 0.5, x, y);
}

void check_df(const char* what, double df) {
  TD_CHECK(df > 0 && std::isfinite(df), what, ": the degrees of freedom must be positive and finite; got ",
           df, ". Give more values.");
}

}  // namespace

double normal_pdf(double z) { return 0.39894228040143267794 * std::exp(-0.5 * z * z); }
double normal_cdf(double z) { return 0.5 * std::erfc(-z * kSqrtHalf); }
double normal_sf(double z) { return 0.5 * std::erfc(z * kSqrtHalf); }

double normal_quantile(double p) {
  TD_CHECK(p >= 0 && p <= 1, "normal_quantile: p must lie between 0 and 1; got ", p, ". Give a probability.");
  if (p == 0) return -kInfinity;
  if (p == 1) return kInfinity;
  if (p == 0.5) return 0;
  if (p > 0.5) return -normal_quantile(1 - p);
  // A rational start (Abramowitz and Stegun 26.2.23), then Newton's steps on the logarithm, which is nearly straight.
  const double t = std::sqrt(-2 * std::log(p));
  double z =
      (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int i = 0; i < 6; ++i) {
    const double cdf = normal_cdf(z);
    const double step = std::log(cdf / p) * cdf / normal_pdf(z);
    z -= step;
    if (std::abs(step) < 1e-16 * std::abs(z)) break;
  }
  return z;
}

double t_cdf(double t, double df) { return t_sf(-t, df); }

double t_sf(double t, double df) {
  check_df("t_sf", df);
  return t >= 0 ? t_upper(t, df) : 1 - t_upper(-t, df);
}

double t_upper_quantile(double p, double df) {
  check_df("t_upper_quantile", df);
  TD_CHECK(p > 0 && p < 1, "t_upper_quantile: p must lie between 0 and 1; got ", p, ". Give a probability.");
  if (p > 0.5) return -t_upper_quantile(1 - p, df);
  return first_where(0, 1e150, [&](double t) { return t_upper(t, df) <= p; });
}

double chi2_cdf(double x, double df) {
  check_df("chi2_cdf", df);
  return x <= 0 ? 0 : gamma_lower(df / 2, x / 2);
}

double chi2_sf(double x, double df) {
  check_df("chi2_sf", df);
  return x <= 0 ? 1 : gamma_upper(df / 2, x / 2);
}

double f_cdf(double f, double df1, double df2) {
  check_df("f_cdf", df1);
  check_df("f_cdf", df2);
  if (f <= 0) return 0;
  if (std::isinf(f)) return 1;
  const double sum = df2 + df1 * f;
  return beta_lower(df1 / 2, df2 / 2, df1 * f / sum, df2 / sum);
}

double f_sf(double f, double df1, double df2) {
  check_df("f_sf", df1);
  check_df("f_sf", df2);
  if (f <= 0) return 1;
  if (std::isinf(f)) return 0;
  const double sum = df2 + df1 * f;
  return beta_lower(df2 / 2, df1 / 2, df2 / sum, df1 * f / sum);
}

double binomial_cdf(int64_t k, int64_t n, double p) {
  TD_CHECK(n >= 0 && p >= 0 && p <= 1, "binomial_cdf: n must not be negative and p lie between 0 and 1; got ",
           n, " and ", p, ". Check both.");
  if (k < 0) return 0;
  if (k >= n) return 1;
  // P(X <= k) = I_{1-p}(n - k, k + 1).
  return beta_lower(static_cast<double>(n - k), static_cast<double>(k) + 1, 1 - p, p);
}

double binomial_at_least(int64_t k, int64_t n, double p) {
  TD_CHECK(n >= 0 && p >= 0 && p <= 1,
           "binomial_at_least: n must not be negative and p lie between 0 and 1; got ", n, " and ", p,
           ". Check both.");
  if (k <= 0) return 1;
  if (k > n) return 0;
  return beta_lower(static_cast<double>(k), static_cast<double>(n - k) + 1, p, 1 - p);
}

// The shares at which k or more, or k or fewer, would have just the chance of the tail.
Bounds clopper_pearson(int64_t k, int64_t n, double coverage) {
  TD_CHECK(n > 0 && k >= 0 && k <= n, "clopper_pearson: n must be positive and k lie between 0 and n; got k ",
           k, " and n ", n, ". Check the counts.");
  TD_CHECK(coverage > 0 && coverage < 1, "clopper_pearson: the coverage must lie between 0 and 1; got ",
           coverage, ". Use 0.95.");
  const double tail = (1 - coverage) / 2;
  Bounds bounds;
  if (k > 0) bounds.low = first_where(0, 1, [&](double p) { return binomial_at_least(k, n, p) >= tail; });
  if (k < n) bounds.high = first_where(0, 1, [&](double p) { return binomial_cdf(k, n, p) <= tail; });
  return bounds;
}

}  // namespace tandem::lab::stats
