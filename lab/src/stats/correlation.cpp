#include "lab/src/stats/correlation.h"

#include <algorithm>
#include <cmath>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/sample.h"
#include "lab/src/stats/special.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

TestResult correlate(const char* what, std::span<const double> x, std::span<const double> y) {
  const double mean_x = mean(x), mean_y = mean(y);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  TD_CHECK(xx > 0 && yy > 0, what, ": both measurements must vary; got ", x.size(), " equal values of the ",
           xx > 0 ? "second" : "first", ". A constant correlates with nothing.");
  TestResult result;
  result.runs = x.size();
  // One root of the product is 1 where the values are the same; two roots are safe where the product is not.
  const double both = xx * yy;
  const double scale = std::isnormal(both) ? std::sqrt(both) : std::sqrt(xx) * std::sqrt(yy);
  result.statistic = std::clamp(xy / scale, -1.0, 1.0);
  // t^2 = df r^2 / (1 - r^2), so that both tails of t are the beta function at 1 - r^2.
  const double r = result.statistic, df = static_cast<double>(x.size()) - 2;
  result.p = beta_lower(df / 2, 0.5, (1 - r) * (1 + r), r * r);
  return result;
}

}  // namespace

TestResult pearson(std::span<const double> x, std::span<const double> y) {
  check_pairs("pearson", x, y, 3);
  TestResult result = correlate("pearson", x, y);
  result.name = "Pearson";
  return result;
}

TestResult spearman(std::span<const double> x, std::span<const double> y) {
  check_pairs("spearman", x, y, 3);
  TestResult result = correlate("spearman", ranks(x).of, ranks(y).of);
  result.name = "Spearman";
  return result;
}

}  // namespace tandem::lab::stats
