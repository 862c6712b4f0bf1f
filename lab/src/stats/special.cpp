// The factors in front of the series are written with Stirling's remainder and the deviance (C. Loader's saddle-point
// form), so that no large logarithms cancel; the rest are a power series and continued fractions (modified Lentz).
#include "lab/src/stats/special.h"

#include <cmath>
#include <limits>

#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kTiny = 1e-300;
constexpr double kTwoPi = 6.283185307179586476925286766559;
constexpr int kMostTerms = 1000000;

/// log z! minus Stirling's formula.
double stirling_remainder(double z) {
  if (z < 15) return std::lgamma(z + 1) - (z + 0.5) * std::log(z) + z - 0.5 * std::log(kTwoPi);
  const double s = 1 / (z * z);
  const double terms[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                          1.0 / 1188, -691.0 / 360360.0, 1.0 / 156};
  double sum = 0;
  for (int i = 6; i >= 0; --i) sum = sum * s + terms[i];
  return sum / z;
}

/// x log(x / m) + m - x, precise where x is close to m.
double deviance(double x, double m) {
  if (std::abs(x - m) >= 0.1 * (x + m)) return x * std::log(x / m) + m - x;
  const double v = (x - m) / (x + m);
  double sum = (x - m) * v;
  double term = 2 * x * v;
  for (int j = 1; j < 1000; ++j) {
    term *= v * v;
    const double next = sum + term / (2 * j + 1);
    if (next == sum) break;
    sum = next;
  }
  return sum;
}

/// x^a e^-x / Gamma(a + 1).
double gamma_factor(double a, double x) {
  return std::exp(-stirling_remainder(a) - deviance(a, x)) / std::sqrt(kTwoPi * a);
}

/// The lower part, for x below a + 1: all terms are positive, so that nothing cancels.
double gamma_series(double a, double x) {
  double term = 1, sum = 1;
  for (int i = 1; i < kMostTerms && term > sum * kEpsilon * 0.25; ++i) {
    term *= x / (a + i);
    sum += term;
  }
  return sum * gamma_factor(a, x);
}

/// The upper part, for x above a + 1.
double gamma_fraction(double a, double x) {
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double value = d;
  for (int i = 1; i < kMostTerms; ++i) {
    const double numerator = -i * (i - a);
    b += 2;
    d = numerator * d + b;
    if (std::abs(d) < kTiny) d = kTiny;
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double change = c * d;
    value *= change;
    if (std::abs(change - 1) < kEpsilon) break;
  }
  return value * a * gamma_factor(a, x);
}

/// x^a y^b / (a B(a, b)).
double beta_factor(double a, double b, double x, double y) {
  const double n = a + b;
  const double exponent = stirling_remainder(n) - stirling_remainder(a) - stirling_remainder(b) -
                          deviance(a, n * x) - deviance(b, n * y);
  return std::exp(exponent) * std::sqrt(b / (kTwoPi * a * n));
}

/// I_x(a, b) where x lies below about the mean: there the fraction converges quickly.
double beta_fraction(double a, double b, double x, double y) {
  double c = 1;
  double d = 1 - (a + b) * x / (a + 1);
  if (std::abs(d) < kTiny) d = kTiny;
  d = 1 / d;
  double value = d;
  const auto step = [&](double numerator) {
    d = 1 + numerator * d;
    if (std::abs(d) < kTiny) d = kTiny;
    c = 1 + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double change = c * d;
    value *= change;
    return change;
  };
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    step(even);
    if (std::abs(step(odd) - 1) < kEpsilon) break;
  }
  return value * beta_factor(a, b, x, y);
}

}  // namespace

// Each of the two is computed where it is the smaller one, about: its digits count, and the other is 1 minus it.
double gamma_lower(double a, double x) {
  TD_CHECK(a > 0 && x >= 0, "gamma_lower: a must be positive and x not negative; got ", a, " and ", x,
           ". Check the degrees of freedom and the statistic.");
  if (x == 0) return 0;
  if (std::isinf(x)) return 1;
  return x < a + 1 ? gamma_series(a, x) : 1 - gamma_fraction(a, x);
}

double gamma_upper(double a, double x) {
  TD_CHECK(a > 0 && x >= 0, "gamma_upper: a must be positive and x not negative; got ", a, " and ", x,
           ". Check the degrees of freedom and the statistic.");
  if (x == 0) return 1;
  if (std::isinf(x)) return 0;
  return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double beta_lower(double a, double b, double x, double y) {
  TD_CHECK(a > 0 && b > 0 && x >= 0 && y >= 0 && x <= 1 && y <= 1,
           "beta_lower: a and b must be positive, x and y between 0 and 1; got a ", a, ", b ", b, ", x ", x,
           ", y ", y, ". Check the degrees of freedom and the statistic.");
  if (x == 0) return 0;
  if (y == 0) return 1;
  return x < (a + 1) / (a + b + 2) ? beta_fraction(a, b, x, y) : 1 - beta_fraction(b, a, y, x);
}

}  // namespace tandem::lab::stats
