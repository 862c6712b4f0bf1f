#include "lab/src/stats/spread.h"

#include <cmath>
#include <limits>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab::stats {
namespace {

void check_samples(const char* what, std::span<const std::vector<double>> samples) {
  TD_CHECK(samples.size() >= 2, what, ": there must be at least two samples; got ", samples.size(),
           ". Give one for each system.");
  for (const auto& sample : samples) check_sample(what, sample, 2);
}

std::vector<double> distances(const std::vector<double>& sample, Centre centre) {
  const double middle = centre == Centre::median ? median(sample) : mean(sample);
  std::vector<double> result;
  for (const double value : sample) result.push_back(std::abs(value - middle));
  return result;
}

}  // namespace

// An analysis of variance of the distances from each sample's centre.
TestResult levene(std::span<const std::vector<double>> samples, Centre centre) {
  check_samples("levene", samples);
  std::vector<std::vector<double>> away;
  double sum = 0, n = 0;
  for (const auto& sample : samples) {
    away.push_back(distances(sample, centre));
    for (const double value : away.back()) sum += value;
    n += static_cast<double>(sample.size());
  }
  double between = 0, within = 0;
  for (const auto& group : away) {
    const double middle = mean(group);
    between += static_cast<double>(group.size()) * (middle - sum / n) * (middle - sum / n);
    for (const double value : group) within += (value - middle) * (value - middle);
  }
  const double k = static_cast<double>(samples.size());
  TestResult result;
  result.name = centre == Centre::median ? "Brown-Forsythe" : "Levene";
  result.runs = static_cast<size_t>(n);
  if (between == 0) return result;  // equally wide to the last digit
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  result.statistic = within > 0 ? (n - k) / (k - 1) * between / within : kInfinity;
  result.p = f_sf(result.statistic, k - 1, n - k);
  return result;
}

// Distances from the medians, ranked together and turned into normal scores: hardly moved by a single outlier.
TestResult fligner(std::span<const std::vector<double>> samples) {
  check_samples("fligner", samples);
  std::vector<double> all;
  for (const auto& sample : samples)
    for (const double distance : distances(sample, Centre::median)) all.push_back(distance);
  const auto n = static_cast<double>(all.size());
  std::vector<double> scores;
  for (const double rank : ranks(all).of) scores.push_back(normal_quantile(rank / (2 * (n + 1)) + 0.5));
  const double centre = mean(scores), spread = variance(scores);
  TestResult result;
  result.name = "Fligner-Killeen";
  result.runs = all.size();
  if (spread == 0) return result;  // all distances are equal
  size_t begin = 0;
  for (const auto& sample : samples) {
    const double middle = mean(std::span(scores).subspan(begin, sample.size()));
    result.statistic += static_cast<double>(sample.size()) * (middle - centre) * (middle - centre) / spread;
    begin += sample.size();
  }
  result.p = chi2_sf(result.statistic, static_cast<double>(samples.size()) - 1);
  return result;
}

}  // namespace tandem::lab::stats
