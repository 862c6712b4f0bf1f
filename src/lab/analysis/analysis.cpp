// Sorts a study's runs by condition, metric and system, and summarises and compares them there.
#include "lab/analysis/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "lab/analysis/compare.h"
#include "lab/stats/correction.h"
#include "lab/stats/effect.h"
#include "lab/stats/normality.h"
#include "lab/stats/random.h"
#include "lab/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// The order in which tables show metrics: the list's, then thresholds and strangers by name.
struct MetricOrder {
  bool operator()(const std::string& a, const std::string& b) const { return key(a) < key(b); }
  static std::pair<size_t, std::string> key(const std::string& name) {
    static const std::map<std::string, size_t> places = [] {
      std::map<std::string, size_t> result;
      for (const Metric& known : metrics()) result.emplace(known.name, result.size());
      return result;
    }();
    const auto found = places.find(name);
    return {found == places.end() ? places.size() : found->second, name};
  }
};

/// The ordinary and the control runs of one system.
struct Series {
  std::vector<Observation> ordinary, control;
};
using BySystem = std::map<std::string, Series>;
using ByMetric = std::map<std::string, BySystem, MetricOrder>;
using Sorted = std::map<Condition, ByMetric>;

/// What makes a run the same run: a study that went on after a stop may have taken it twice, and the last one counts.
using RunKey = std::tuple<Condition, std::string, std::string, std::string, int64_t>;

void add_gap(std::vector<Gap>& gaps,
             std::map<std::tuple<Condition, std::string, Status, std::string>, size_t>& places,
             const Gap& gap, const std::string& group) {
  const auto [found, is_new] =
      places.emplace(std::make_tuple(gap.condition, gap.system, gap.status, group), gaps.size());
  if (is_new)
    gaps.push_back(gap);
  else
    ++gaps[found->second].runs;
}

Sorted sort_runs(const Results& results, std::vector<Gap>& gaps) {
  std::map<RunKey, const Run*> latest;
  for (const Run& run : results.runs) {
    const Run*& slot = latest[{run.condition, run.system, run.control, run.part, run.block}];
    // A run that failed and was taken once more is no gap, and a late failure does not undo a measurement.
    if (!slot || run.status == Status::ok || slot->status != Status::ok) slot = &run;
  }
  Sorted sorted;
  std::map<std::tuple<Condition, std::string, Status, std::string>, size_t> places;
  for (const auto& [key, run] : latest) {
    if (run->status != Status::ok) {
      add_gap(gaps, places, {run->condition, run->system, run->status, run->why, run->last_words, 1}, "");
      continue;
    }
    for (const auto& [name, value] : run->metrics) {
      if (!std::isfinite(value)) {
        add_gap(gaps, places,
                {run->condition, run->system, Status::failed, name + " was not a finite number", "", 1},
                name);
        continue;
      }
      Series& series = sorted[run->condition][name][run->system];
      (run->control.empty() ? series.ordinary : series.control).push_back({run->block, run->part, value});
    }
  }
  const auto by_block = [](const Observation& a, const Observation& b) {
    return a.block != b.block ? a.block < b.block : a.part < b.part;
  };
  for (auto& [condition, by_metric] : sorted)
    for (auto& [name, systems] : by_metric)
      for (auto& [system, series] : systems) {
        std::sort(series.ordinary.begin(), series.ordinary.end(), by_block);
        std::sort(series.control.begin(), series.control.end(), by_block);
      }
  return sorted;
}

stats::BootstrapOptions bootstrap_for(const AnalysisOptions& options, const std::string& name) {
  stats::BootstrapOptions bootstrap;
  bootstrap.resamples = options.resamples;
  bootstrap.seed = stats::seed_for(options.seed, name);
  return bootstrap;
}

Summary summarise(const Condition& condition, const std::string& name, const std::string& system,
                  const std::vector<Observation>& runs, const AnalysisOptions& options) {
  Summary summary;
  summary.condition = condition;
  summary.metric = name;
  summary.system = system;
  for (const Observation& run : runs) {
    summary.values.push_back(run.value);
    summary.blocks.push_back(run.block);
  }
  const stats::Interval median = stats::median_interval(
      summary.values, bootstrap_for(options, condition.text() + "|" + name + "|" + system));
  summary.median = {median.value, median.low, median.high};
  summary.mean = stats::mean(summary.values);
  summary.deviation = stats::deviation(summary.values);
  const auto [least, most] = std::minmax_element(summary.values.begin(), summary.values.end());
  summary.minimum = *least;
  summary.maximum = *most;
  if (runs.size() >= 5) {
    summary.ks_normality = stats::kolmogorov_smirnov_normal(summary.values).p;
    if (summary.deviation > 0) summary.normality = stats::lilliefors(summary.values).p;
  }
  return summary;
}

std::optional<NoiseFloor> measure_noise(const Condition& condition, const std::string& name,
                                        const std::string& system, const Series& series,
                                        const AnalysisOptions& options) {
  if (series.ordinary.empty() || series.control.empty()) return std::nullopt;
  const Samples samples = match(series.ordinary, series.control);
  const auto bootstrap = bootstrap_for(options, condition.text() + "|" + name + "|" + system + "|A/A");
  const stats::Interval ratio = samples.paired
                                    ? stats::median_ratio_paired(samples.first, samples.second, bootstrap)
                                    : stats::median_ratio(samples.first, samples.second, bootstrap);
  if (!std::isfinite(ratio.low) || !std::isfinite(ratio.high)) return std::nullopt;
  NoiseFloor noise;
  noise.condition = condition;
  noise.metric = name;
  noise.system = system;
  noise.runs = std::min(samples.first.size(), samples.second.size());
  noise.ratio = {ratio.value, ratio.low, ratio.high};
  noise.floor = std::max(std::abs(ratio.low - 1), std::abs(ratio.high - 1));
  return noise;
}

/// All pairs of systems in one metric under one condition: Holm's family.
void compare_all(const Condition& condition, const std::string& name, const BySystem& systems,
                 const AnalysisOptions& options, Analysis& analysis) {
  std::vector<Comparison> family;
  std::vector<Samples> samples;
  for (auto a = systems.begin(); a != systems.end(); ++a)
    for (auto b = std::next(a); b != systems.end(); ++b) {
      if (a->second.ordinary.empty() || b->second.ordinary.empty()) continue;
      Comparison head;
      head.condition = condition;
      head.metric = name;
      head.first = a->first;
      head.second = b->first;
      samples.push_back(match(a->second.ordinary, b->second.ordinary));
      family.push_back(compare(samples.back(), std::move(head), options));
    }
  std::vector<double> p;
  for (const Comparison& comparison : family) p.push_back(comparison.p);
  const std::vector<double> corrected = stats::holm(p);
  Yardstick yardstick;
  yardstick.family = family.size();
  if (const NoiseFloor* noise = analysis.noise_floor(condition, name)) yardstick.noise = *noise;
  for (size_t i = 0; i < family.size(); ++i) {
    family[i].p_holm = corrected[i];
    judge(family[i], samples[i], yardstick, options);
    analysis.comparisons.push_back(std::move(family[i]));
  }
}

}  // namespace

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::first:
      return "first";
    case Verdict::second:
      return "second";
    case Verdict::equivalent:
      return "equivalent";
    case Verdict::undecided:
      return "undecided";
  }
  throw InternalError(cat("no name for verdict ", static_cast<int>(verdict)));
}

const Summary* Analysis::summary(const Condition& condition, const std::string& metric,
                                 const std::string& system) const {
  for (const Summary& each : summaries)
    if (each.metric == metric && each.system == system && each.condition == condition) return &each;
  return nullptr;
}

const Comparison* Analysis::comparison(const Condition& condition, const std::string& metric,
                                       const std::string& a, const std::string& b) const {
  for (const Comparison& each : comparisons)
    if (each.metric == metric &&
        ((each.first == a && each.second == b) || (each.first == b && each.second == a)) &&
        each.condition == condition)
      return &each;
  return nullptr;
}

const NoiseFloor* Analysis::noise_floor(const Condition& condition, const std::string& metric) const {
  // A study may control only some of its conditions: then the worst control of the same phase on the same device holds.
  const NoiseFloor* exact = nullptr;
  const NoiseFloor* near = nullptr;
  for (const NoiseFloor& each : noise) {
    if (each.metric != metric || each.condition.phase != condition.phase ||
        each.condition.device != condition.device)
      continue;
    const NoiseFloor*& slot = each.condition == condition ? exact : near;
    if (!slot || each.floor > slot->floor) slot = &each;
  }
  return exact ? exact : near;
}

Analysis analyse(const Results& results, const AnalysisOptions& options) {
  TD_CHECK(options.level > 0 && options.level < 0.5, "analyse: the level must lie between 0 and 0.5; got ",
           options.level, ". Use 0.05.");
  TD_CHECK(options.equivalence > 0 && std::isfinite(options.equivalence),
           "analyse: the share that counts as equal must be positive; got ", options.equivalence,
           ". Use 0.02.");
  Analysis analysis;
  const Sorted sorted = sort_runs(results, analysis.gaps);
  for (const auto& [condition, by_metric] : sorted)
    for (const auto& [name, systems] : by_metric)
      for (const auto& [system, series] : systems)
        if (auto noise = measure_noise(condition, name, system, series, options))
          analysis.noise.push_back(std::move(*noise));
  for (const auto& [condition, by_metric] : sorted)
    for (const auto& [name, systems] : by_metric) {
      for (const auto& [system, series] : systems)
        if (!series.ordinary.empty())
          analysis.summaries.push_back(summarise(condition, name, system, series.ordinary, options));
      compare_all(condition, name, systems, options, analysis);
    }
  return analysis;
}

}  // namespace tandem::lab
