// Two systems under one condition: the test, the effect sizes, and the verdict.
#include "lab/src/analysis/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/src/stats/effect.h"
#include "lab/src/stats/equivalence.h"
#include "lab/src/stats/random.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"

namespace tandem::lab {
namespace {

Estimate estimate(const stats::Interval& interval) { return {interval.value, interval.low, interval.high}; }

template <class Before>
Samples matched(const std::vector<Observation>& first, const std::vector<Observation>& second,
                Before before) {
  Samples samples;
  auto a = first.begin();
  auto b = second.begin();
  while (a != first.end() && b != second.end()) {
    if (before(*a, *b)) {
      ++a;
    } else if (before(*b, *a)) {
      ++b;
    } else {
      samples.same_epochs = samples.same_epochs && a->epochs == b->epochs;
      samples.disturbed += a->disturbed + b->disturbed;
      samples.first.push_back(a++->value);
      samples.second.push_back(b++->value);
    }
  }
  return samples;
}

bool all_positive(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return value > 0; });
}

bool all_same(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
}

bool is_constant(const Samples& samples, const std::string& metric) {
  const bool repeated = samples.first.size() > 1 && samples.second.size() > 1;
  return (repeated || is_count(metric)) && all_same(samples.first) && all_same(samples.second);
}

/// The smallest p that a sample of this size can give, whatever is measured.
double smallest_p(const Samples& samples) {
  return samples.paired ? stats::wilcoxon_smallest_p(samples.first.size())
                        : stats::mann_whitney_smallest_p(samples.first.size(), samples.second.size());
}

/// How many runs could decide, with the family's correction.
size_t least_runs(bool paired, size_t family, double level) {
  const double needed = level / static_cast<double>(family);
  if (paired) return stats::wilcoxon_least_pairs(needed);
  size_t runs = 1;
  while (stats::mann_whitney_smallest_p(runs, runs) >= needed && runs < 1000) ++runs;
  return runs;
}

/// p of the claim that both lie within the margin of each other.
double equivalence_p(const Samples& samples, double margin, double level) {
  if (samples.first.size() < 2 || samples.second.size() < 2) return 1;
  if (all_positive(samples.first) && all_positive(samples.second))
    return stats::tost_ratio(samples.first, samples.second, margin, samples.paired, level).test.p;
  // No ratios here: the margin is that share of the first median.
  const double reach = margin * std::abs(stats::median(samples.first));
  if (reach == 0) {
    const auto zero = [](double value) { return value == 0; };
    const bool same = std::all_of(samples.first.begin(), samples.first.end(), zero) &&
                      std::all_of(samples.second.begin(), samples.second.end(), zero);
    return same ? 0 : 1;
  }
  return samples.paired ? stats::tost_paired(samples.first, samples.second, -reach, reach, level).test.p
                        : stats::tost_welch(samples.first, samples.second, -reach, reach, level).test.p;
}

/// Whether the interval of the effect lies beyond the noise floor, on the side to which the shift points.
bool beyond(const Comparison& comparison, double floor) {
  const Estimate& ratio = comparison.ratio;
  if (std::isfinite(ratio.low) && std::isfinite(ratio.high)) {
    if (ratio.low > 1 + floor) return comparison.shift.value > 0;
    return ratio.high < 1 / (1 + floor) && comparison.shift.value < 0;
  }
  // A ratio to zero means nothing; the shift must at least exclude zero.
  return comparison.shift.low > 0 || comparison.shift.high < 0;
}

/// The side that the shift favours.
Verdict better_side(const Comparison& comparison) {
  const bool first_is_lower = comparison.shift.value > 0;
  const bool lower_wins = metric(comparison.metric).better != Metric::Better::more;
  return first_is_lower == lower_wins ? Verdict::first : Verdict::second;
}

/// Of constants no p decides. That a measured value did not vary counts from as many runs on as could decide if it had.
void judge_constant(Comparison& comparison, const Yardstick& yardstick, const AnalysisOptions& options) {
  const bool counted = is_count(comparison.metric);
  if (!counted && yardstick.noise) comparison.noise = yardstick.noise->floor;
  comparison.beyond_noise = beyond(comparison, comparison.noise.value_or(0));
  comparison.can_decide = counted || comparison.runs >= least_runs(comparison.paired, 1, options.level);
  if (!comparison.can_decide)
    comparison.verdict = Verdict::undecided;
  else if (comparison.shift.value == 0)
    comparison.verdict = Verdict::equivalent;
  else
    comparison.verdict = comparison.beyond_noise ? better_side(comparison) : Verdict::undecided;
}

}  // namespace

Samples match(const std::vector<Observation>& first, const std::vector<Observation>& second) {
  Samples samples = matched(first, second, [](const Observation& a, const Observation& b) {
    return a.block != b.block ? a.block < b.block : a.part < b.part;
  });
  if (samples.first.empty())
    samples =
        matched(first, second, [](const Observation& a, const Observation& b) { return a.block < b.block; });
  if (!samples.first.empty() && 2 * samples.first.size() >= std::min(first.size(), second.size()))
    return samples;
  samples = {};
  samples.paired = false;
  for (const auto& [from, to] : {std::pair(&first, &samples.first), std::pair(&second, &samples.second)})
    for (const Observation& observation : *from) {
      to->push_back(observation.value);
      samples.disturbed += observation.disturbed;
      samples.same_epochs = samples.same_epochs && observation.epochs == first.front().epochs;
    }
  return samples;
}

std::string resampled_as(const std::string& metric) {
  return metric == "samples_per_s" || metric == "step.call_s" ? "step.throughput_s" : metric;
}

Comparison compare(const Samples& samples, Comparison head, const AnalysisOptions& options) {
  Comparison result = std::move(head);
  result.paired = samples.paired;
  result.runs = std::min(samples.first.size(), samples.second.size());
  result.disturbed = samples.disturbed;
  stats::BootstrapOptions bootstrap;
  bootstrap.resamples = options.resamples;
  bootstrap.seed = stats::seed_for(options.seed, result.condition.text() + "|" + resampled_as(result.metric) +
                                                     "|" + result.first + "|" + result.second);
  stats::TestResult test;
  if (samples.paired) {
    test = stats::wilcoxon(samples.first, samples.second);
    result.ratio = estimate(stats::median_ratio_paired(samples.first, samples.second, bootstrap));
    result.shift = estimate(stats::hodges_lehmann_paired(samples.first, samples.second));
  } else {
    test = stats::mann_whitney(samples.first, samples.second);
    result.ratio = estimate(stats::median_ratio(samples.first, samples.second, bootstrap));
    result.shift = estimate(stats::hodges_lehmann(samples.first, samples.second));
  }
  // Nothing against nothing is the same, though the ratio of zeros is no number.
  if (stats::cliffs_delta(samples.first, samples.second) == 0 && result.shift.low == 0 &&
      result.shift.high == 0 && !std::isfinite(result.ratio.value))
    result.ratio = {1, 1, 1};
  result.cliffs_delta = stats::cliffs_delta(samples.first, samples.second);
  result.test = test.name;
  result.p = result.p_holm = test.p;
  result.at_floor = test.at_floor;
  if (is_constant(samples, result.metric)) {
    result.constant = true;
    result.test.clear();
    result.p = result.p_holm = std::numeric_limits<double>::quiet_NaN();
    result.at_floor = false;
  }
  return result;
}

void judge(Comparison& comparison, const Samples& samples, const Yardstick& yardstick,
           const AnalysisOptions& options) {
  const double floor = yardstick.noise ? yardstick.noise->floor : 0;
  Grounds grounds;
  grounds.median_first = stats::median(samples.first);
  grounds.median_second = stats::median(samples.second);
  // What is counted is the same on a busy machine.
  if ((comparison.disturbed > 0 || !yardstick.lost_controls.empty()) &&
      !(comparison.constant && is_count(comparison.metric))) {
    if (yardstick.noise) comparison.noise = floor;
    comparison.can_decide = false;
    comparison.text = disturbed_text(comparison, grounds, yardstick);
    return;
  }
  if (comparison.constant) {
    judge_constant(comparison, yardstick, options);
    comparison.text = constant_text(comparison, grounds, yardstick);
    return;
  }
  grounds.smallest_p_holm = std::min(1.0, smallest_p(samples) * static_cast<double>(yardstick.family));
  grounds.least_runs = least_runs(samples.paired, yardstick.family, options.level);
  grounds.equivalence_p = equivalence_p(samples, options.equivalence, options.level);
  if (yardstick.noise) comparison.noise = floor;
  comparison.beyond_noise = beyond(comparison, floor);
  comparison.can_decide = grounds.smallest_p_holm < options.level;

  if (comparison.p_holm < options.level && comparison.beyond_noise) {
    comparison.verdict = better_side(comparison);
  } else if (grounds.equivalence_p < options.level && floor <= options.equivalence) {
    comparison.verdict = Verdict::equivalent;
  } else {
    comparison.verdict = Verdict::undecided;
  }
  comparison.text = verdict_text(comparison, grounds, yardstick, options);
}

}  // namespace tandem::lab
