// Intervals by resampling runs. A resample is a count for each run; the median is found by walking the runs in the order
// of their values until half of the counts are passed, so that nothing is sorted inside the loop.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/random.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Medians of resamples of one sample.
class Sorted {
 public:
  explicit Sorted(std::span<const double> values) : order_(values.size()) {
    std::iota(order_.begin(), order_.end(), uint32_t{0});
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return values[a] < values[b]; });
    for (const uint32_t i : order_) values_.push_back(values[i]);
  }

  /// The median where run i occurs counts[i] times; `size` is the sum of the counts.
  double median(const std::vector<uint32_t>& counts, size_t size) const {
    const size_t below = (size + 1) / 2, above = size / 2 + 1;  // places from 1
    size_t passed = 0, i = 0;
    while ((passed += counts[order_[i]]) < below) ++i;
    const double low = values_[i];
    while (passed < above) passed += counts[order_[++i]];
    return 0.5 * low + 0.5 * values_[i];
  }
  size_t size() const { return values_.size(); }

 private:
  std::vector<uint32_t> order_;
  std::vector<double> values_;
};

/// As many draws as there are runs, with replacement.
void draw(std::vector<uint32_t>& counts, Random& random) {
  std::fill(counts.begin(), counts.end(), 0);
  for (size_t i = 0; i < counts.size(); ++i) ++counts[random.below(counts.size())];
}

void check_options(const BootstrapOptions& options) {
  TD_CHECK(options.resamples >= 100 && options.resamples <= 10000000,
           "bootstrap: resamples must lie between 100 and 10000000; got ", options.resamples, ". Use 4000.");
  TD_CHECK(options.coverage > 0 && options.coverage < 1,
           "bootstrap: the coverage must lie between 0 and 1; got ", options.coverage, ". Use 0.95.");
}

/// Where the ends lie among the sorted resamples, with the bias and the skewness corrected (Efron's BCa). `left_out` are
/// the statistics with one run left out, each sample centred by itself.
Bounds bca_places(double value, const std::vector<double>& sorted, const std::vector<double>& left_out,
                  double tail) {
  const auto equal = std::equal_range(sorted.begin(), sorted.end(), value);
  const double below = static_cast<double>(equal.first - sorted.begin()) +
                       0.5 * static_cast<double>(equal.second - equal.first);
  const double share = below / static_cast<double>(sorted.size());
  if (share <= 0 || share >= 1) return {tail, 1 - tail};  // no bias can be read off
  const double bias = normal_quantile(share);
  double squares = 0, cubes = 0;
  for (const double u : left_out) {
    squares += u * u;
    cubes += u * u * u;
  }
  const double skew = squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
  const auto place = [&](double z) { return normal_cdf(bias + (bias + z) / (1 - skew * (bias + z))); };
  const double z = normal_quantile(tail);
  return {place(z), place(-z)};
}

/// Influences of leaving one run out: the mean of the statistics minus each.
void add_influences(std::vector<double>& to, const std::vector<double>& statistics) {
  const double centre = mean(statistics);
  for (const double statistic : statistics) to.push_back(centre - statistic);
}

Interval ends(double value, std::vector<double> resampled, const BootstrapOptions& options,
              const std::function<std::vector<double>()>& influences) {
  Interval interval{value, kNaN, kNaN, options.coverage};
  // A ratio to a median that is not positive means nothing: then there is no interval.
  for (const double statistic : resampled)
    if (!std::isfinite(statistic)) return interval;
  std::sort(resampled.begin(), resampled.end());
  const double tail = (1 - options.coverage) / 2;
  Bounds places{tail, 1 - tail};
  if (options.kind == BootstrapOptions::Kind::bca) places = bca_places(value, resampled, influences(), tail);
  interval.low = sorted_quantile(resampled, places.low);
  interval.high = sorted_quantile(resampled, places.high);
  return interval;
}

/// How the medians of two samples make a ratio. Where every value is positive, on logarithms: the middle of two runs is their
/// geometric mean, and the ratio of reciprocals (throughputs instead of times) is the reciprocal of the ratio, with the ends of
/// its interval. Else as they are, where the ratio means something: to a median above zero.
class Scale {
 public:
  Scale(std::span<const double> first, std::span<const double> second)
      : logarithmic_(all_positive(first) && all_positive(second)) {}

  std::vector<double> of(std::span<const double> values) const {
    std::vector<double> scaled(values.begin(), values.end());
    if (logarithmic_)
      for (double& value : scaled) value = std::log(value);
    return scaled;
  }
  double ratio(double second, double first) const {
    if (logarithmic_) return second - first;
    return first > 0 ? second / first : kNaN;
  }
  Interval unscaled(Interval interval) const {
    if (logarithmic_)
      for (double* end : {&interval.value, &interval.low, &interval.high}) *end = std::exp(*end);
    return interval;
  }

 private:
  static bool all_positive(std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [](double value) { return value > 0; });
  }

  bool logarithmic_;
};

/// The statistics with each of `size` runs left out in turn.
std::vector<double> jackknife(size_t size,
                              const std::function<double(const std::vector<uint32_t>&)>& statistic) {
  std::vector<uint32_t> counts(size, 1);
  std::vector<double> result;
  for (size_t i = 0; i < size; ++i) {
    counts[i] = 0;
    result.push_back(statistic(counts));
    counts[i] = 1;
  }
  return result;
}

}  // namespace

Interval median_interval(std::span<const double> values, const BootstrapOptions& options) {
  check_sample("median_interval", values, 1);
  check_options(options);
  const Sorted sorted(values);
  const size_t n = values.size();
  std::vector<uint32_t> counts(n);
  Random random(options.seed);
  std::vector<double> resampled;
  for (int i = 0; i < options.resamples; ++i) {
    draw(counts, random);
    resampled.push_back(sorted.median(counts, n));
  }
  return ends(median(values), std::move(resampled), options, [&] {
    std::vector<double> influences;
    if (n > 1)
      add_influences(influences, jackknife(n, [&](const auto& kept) { return sorted.median(kept, n - 1); }));
    return influences;
  });
}

// Pairs are drawn together: one set of counts for both samples.
Interval median_ratio_paired(std::span<const double> first, std::span<const double> second,
                             const BootstrapOptions& options) {
  check_pairs("median_ratio_paired", first, second, 1);
  check_options(options);
  const Scale scale(first, second);
  const std::vector<double> x = scale.of(first), y = scale.of(second);
  const Sorted a(x), b(y);
  const size_t n = first.size();
  std::vector<uint32_t> counts(n);
  Random random(options.seed);
  std::vector<double> resampled;
  for (int i = 0; i < options.resamples; ++i) {
    draw(counts, random);
    resampled.push_back(scale.ratio(b.median(counts, n), a.median(counts, n)));
  }
  return scale.unscaled(ends(scale.ratio(median(y), median(x)), std::move(resampled), options, [&] {
    std::vector<double> influences;
    if (n > 1)
      add_influences(influences, jackknife(n, [&](const auto& kept) {
                       return scale.ratio(b.median(kept, n - 1), a.median(kept, n - 1));
                     }));
    return influences;
  }));
}

// The samples are drawn apart, and their influences centred apart.
Interval median_ratio(std::span<const double> first, std::span<const double> second,
                      const BootstrapOptions& options) {
  check_sample("median_ratio", first, 1);
  check_sample("median_ratio", second, 1);
  check_options(options);
  const Scale scale(first, second);
  const std::vector<double> x = scale.of(first), y = scale.of(second);
  const Sorted a(x), b(y);
  const double top = median(y), reference = median(x);
  std::vector<uint32_t> counts_a(first.size()), counts_b(second.size());
  Random random(options.seed);
  std::vector<double> resampled;
  for (int i = 0; i < options.resamples; ++i) {
    draw(counts_a, random);
    draw(counts_b, random);
    resampled.push_back(scale.ratio(b.median(counts_b, b.size()), a.median(counts_a, a.size())));
  }
  return scale.unscaled(ends(scale.ratio(top, reference), std::move(resampled), options, [&] {
    std::vector<double> influences;
    if (a.size() > 1)
      add_influences(influences, jackknife(a.size(), [&](const auto& kept) {
                       return scale.ratio(top, a.median(kept, a.size() - 1));
                     }));
    if (b.size() > 1)
      add_influences(influences, jackknife(b.size(), [&](const auto& kept) {
                       return scale.ratio(b.median(kept, b.size() - 1), reference);
                     }));
    return influences;
  }));
}

}  // namespace tandem::lab::stats
