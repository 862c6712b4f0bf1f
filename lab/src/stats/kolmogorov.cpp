#include "lab/src/stats/kolmogorov.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

/// A square matrix whose entries are scaled by 10^exponent, so that high powers do not overflow.
struct Scaled {
  size_t size;
  std::vector<double> entries;  // (size, size)
  int exponent = 0;

  double& at(size_t row, size_t column) { return entries[row * size + column]; }
  double at(size_t row, size_t column) const { return entries[row * size + column]; }
};

Scaled product(const Scaled& a, const Scaled& b) {
  Scaled c{a.size, std::vector<double>(a.size * a.size), a.exponent + b.exponent};
  for (size_t i = 0; i < a.size; ++i)
    for (size_t k = 0; k < a.size; ++k) {
      const double factor = a.at(i, k);
      if (factor == 0) continue;
      for (size_t j = 0; j < a.size; ++j) c.at(i, j) += factor * b.at(k, j);
    }
  if (c.at(a.size / 2, a.size / 2) > 1e140) {
    for (double& entry : c.entries) entry *= 1e-140;
    c.exponent += 140;
  }
  return c;
}

Scaled power(const Scaled& base, size_t n) {
  if (n == 1) return base;
  const Scaled half = power(base, n / 2);
  const Scaled square = product(half, half);
  return n % 2 == 0 ? square : product(base, square);
}

/// P(D < d) by the matrix of Durbin, as Marsaglia, Tsang and Wang (2003) compute it.
double matrix_cdf(double d, size_t n) {
  const double nd = static_cast<double>(n) * d;
  const size_t k = static_cast<size_t>(nd) + 1;
  const double h = static_cast<double>(k) - nd;
  const size_t m = 2 * k - 1;
  Scaled matrix{m, std::vector<double>(m * m)};
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < m && j <= i + 1; ++j) matrix.at(i, j) = 1;
  for (size_t i = 0; i < m; ++i) {
    matrix.at(i, 0) -= std::pow(h, static_cast<double>(i + 1));
    matrix.at(m - 1, i) -= std::pow(h, static_cast<double>(m - i));
  }
  if (2 * h > 1) matrix.at(m - 1, 0) += std::pow(2 * h - 1, static_cast<double>(m));
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j <= i; ++j)
      for (size_t g = 2; g <= i - j + 1; ++g) matrix.at(i, j) /= static_cast<double>(g);
  const Scaled result = power(matrix, n);
  double value = result.at(k - 1, k - 1);
  int exponent = result.exponent;
  for (size_t i = 1; i <= n; ++i) {
    value *= static_cast<double>(i) / static_cast<double>(n);
    if (value < 1e-140) {
      value *= 1e140;
      exponent -= 140;
    }
  }
  return value * std::pow(10.0, exponent);
}

}  // namespace

// The one-sided chance, by the sum of Birnbaum and Tingey; terms in logarithms, since the binomials overflow.
double smirnov_sf(double d, size_t n) {
  TD_CHECK(n > 0, "smirnov_sf: there must be values; got none. Measure at least one run.");
  if (d <= 0) return 1;
  if (d >= 1) return 0;
  const auto count = static_cast<double>(n);
  double sum = std::exp(count * std::log1p(-d));
  const double log_factorial = std::lgamma(count + 1);
  for (size_t j = 1; j < n; ++j) {
    const auto step = static_cast<double>(j);
    const double above = 1 - d - step / count;
    if (above <= 0) break;
    sum += std::exp(std::log(d) + log_factorial - std::lgamma(step + 1) - std::lgamma(count - step + 1) +
                    (step - 1) * std::log(d + step / count) + (count - step) * std::log(above));
  }
  return std::min(1.0, sum);
}

double kolmogorov_exact_sf(double d, size_t n) {
  TD_CHECK(n > 0, "kolmogorov_exact_sf: there must be values; got none. Measure at least one run.");
  const auto count = static_cast<double>(n);
  if (d <= 0.5 / count) return 1;
  if (d >= 1) return 0;
  // Both sides cannot be far off at once where d >= 1/2, and hardly ever in the far tail: there the chance is twice the
  // one-sided one (to 1e-11 relative), and 1 - cdf would have lost its digits.
  if (d >= 0.5 || count * d * d >= 4.5) return std::min(1.0, 2 * smirnov_sf(d, n));
  return std::clamp(1 - matrix_cdf(d, n), 0.0, 1.0);
}

// Two series for one function: the first converges fast for small x, the second for large.
double kolmogorov_limit_sf(double x) {
  if (x <= 0) return 1;
  constexpr double kPi = 3.14159265358979323846;
  double sum = 0;
  if (x < 1) {
    for (int k = 1; k <= 7; k += 2) sum += std::exp(-k * k * kPi * kPi / (8 * x * x));
    return 1 - std::sqrt(2 * kPi) / x * sum;
  }
  for (int k = 1; k <= 8; ++k) sum += (k % 2 ? 2 : -2) * std::exp(-2.0 * k * k * x * x);
  return sum;
}

}  // namespace tandem::lab::stats
