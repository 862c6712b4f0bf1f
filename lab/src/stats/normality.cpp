#include "lab/src/stats/normality.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/kolmogorov.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

/// Kolmogorov's D: the largest distance between the sample's steps and the normal distribution.
double largest_distance(std::span<const double> values, double centre, double scale) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  double distance = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double cdf = normal_cdf((sorted[i] - centre) / scale);
    distance = std::max({distance, static_cast<double>(i + 1) / n - cdf, cdf - static_cast<double>(i) / n});
  }
  return distance;
}

double polynomial(double x, double a, double b, double c, double d, double e) {
  return a + x * (b + x * (c + x * (d + x * e)));
}

}  // namespace

TestResult kolmogorov_smirnov_normal(std::span<const double> values, double mean, double deviation,
                                     Method method) {
  check_sample("kolmogorov_smirnov_normal", values, 1);
  TD_CHECK(deviation > 0 && std::isfinite(deviation) && std::isfinite(mean),
           "kolmogorov_smirnov_normal: the mean must be finite and the deviation positive; got ", mean,
           " and ", deviation, ". Check the sample.");
  const size_t n = values.size();
  const bool exact = method == Method::exact || (method == Method::automatic && n <= kKolmogorovExact);
  TD_CHECK(!exact || n <= 10 * kKolmogorovExact, "kolmogorov_smirnov_normal: the exact test takes up to ",
           10 * kKolmogorovExact, " values; got ", n, ". Use the normal method.");
  TestResult result;
  result.name = exact ? "Kolmogorov-Smirnov, exact" : "Kolmogorov-Smirnov, limit";
  result.runs = n;
  result.statistic = largest_distance(values, mean, deviation);
  result.p = exact ? kolmogorov_exact_sf(result.statistic, n)
                   : kolmogorov_limit_sf(result.statistic * std::sqrt(static_cast<double>(n)));
  return result;
}

TestResult lilliefors(std::span<const double> values) {
  check_sample("lilliefors", values, 5);
  const double scale = deviation(values);
  TD_CHECK(scale > 0, "lilliefors: the values must not all be equal; got ", values.size(), " times ",
           values[0], ". Nothing can be said of their distribution.");
  TestResult result;
  result.name = "Lilliefors";
  result.runs = values.size();
  result.statistic = largest_distance(values, mean(values), scale);
  const auto n = static_cast<double>(values.size());
  // Dallal and Wilkinson fitted up to 100 values; beyond, the statistic is carried back to 100.
  const double size = std::min(n, 100.0);
  const double d = n <= 100 ? result.statistic : result.statistic * std::pow(n / 100, 0.49);
  result.p = std::exp(-7.01256 * d * d * (size + 2.78019) + 2.99587 * d * std::sqrt(size + 2.78019) -
                      0.122119 + 0.974598 / std::sqrt(size) + 1.67997 / size);
  // The fit above holds for p up to 0.1; beyond it polynomials in a scaled statistic take over (Stephens).
  if (result.p > 0.1) {
    const double k = (std::sqrt(n) - 0.01 + 0.85 / std::sqrt(n)) * result.statistic;
    if (k <= 0.302)
      result.p = 1;
    else if (k <= 0.5)
      result.p = polynomial(k, 2.76773, -19.828315, 80.709644, -138.55152, 81.218052);
    else if (k <= 0.9)
      result.p = polynomial(k, -4.901232, 40.662806, -97.490286, 94.029866, -32.355711);
    else if (k <= 1.31)
      result.p = polynomial(k, 6.198765, -19.558097, 23.186922, -12.234627, 2.423045);
    else
      result.p = 0;
  }
  result.p = std::clamp(result.p, 0.0, 1.0);
  return result;
}

}  // namespace tandem::lab::stats
