// Sorts a study's runs by condition, metric and system, and summarises and compares them there.
#include "lab/src/analysis/analysis.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "lab/src/analysis/compare.h"
#include "lab/src/analysis/statistics.h"
#include "lab/src/stats/correction.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/normality.h"
#include "lab/src/stats/random.h"
#include "lab/src/stats/sample.h"
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

void count_disturbed(const Results& results, Disturbances& counts) {
  for (const Run& run : results.runs) {
    ++counts.runs;
    const auto is_recorded = [](const auto& named) {
      const auto at = named.lower_bound("machine.");
      return at != named.end() && is_of_machine(at->first);
    };
    counts.recorded += is_recorded(run.metrics) || is_recorded(run.unavailable);
    if (run.disturbed.empty()) continue;
    ++counts.disturbed;
    counts.kept += run.status == Status::ok;
    if (counts.example.empty()) counts.example = run.disturbed;
  }
}

/// Fills the gaps, the epochs and what was left out.
Sorted sort_runs(const Results& results, Analysis& analysis) {
  std::vector<Gap>& gaps = analysis.gaps;
  std::map<RunKey, const Run*> latest;
  for (const Run& run : results.runs) {
    const Run*& slot = latest[{run.condition, run.system, run.control, run.part, run.block}];
    // A run that failed and was taken once more is no gap, and a late failure does not undo a measurement.
    if (!slot || run.status == Status::ok || slot->status != Status::ok) slot = &run;
  }
  Sorted sorted;
  std::map<std::tuple<Condition, std::string, Status, std::string>, size_t> places;
  for (const auto& [key, run] : latest) {
    if (run->status == Status::disturbed) {
      ++analysis.disturbances.left_out;
      if (run->control.empty()) ++analysis.left_out[run->condition][run->system];
    }
    if (!run->control.empty() && !run->disturbed.empty())
      analysis.disturbed_controls[run->condition].insert(run->system);
    if (run->status != Status::ok) {
      add_gap(gaps, places, {run->condition, run->system, run->status, run->why, run->last_words, 1}, "");
      continue;
    }
    const auto epochs = static_cast<int64_t>(run->epochs.size());
    if (epochs > 0 && run->control.empty()) analysis.epochs[run->condition][run->system].insert(epochs);
    for (const auto& [name, value] : run->metrics) {
      if (is_of_machine(name)) continue;
      if (!std::isfinite(value)) {
        add_gap(gaps, places,
                {run->condition, run->system, Status::failed, name + " was not a finite number", "", 1},
                name);
        continue;
      }
      Series& series = sorted[run->condition][name][run->system];
      (run->control.empty() ? series.ordinary : series.control)
          .push_back({run->block, run->part, value, epochs, !run->disturbed.empty()});
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
      summary.values, bootstrap_for(options, condition.text() + "|" + resampled_as(name) + "|" + system));
  summary.median = {median.value, median.low, median.high};
  for (const Statistic& statistic : statistics())
    if (const auto value = statistic.of(summary.values)) summary.statistics[statistic.name] = *value;
  return summary;
}

std::vector<Observation> undisturbed(const std::vector<Observation>& runs) {
  std::vector<Observation> kept;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(kept),
               [](const Observation& run) { return !run.disturbed; });
  return kept;
}

/// Of the pairs that no other work disturbed: a neighbour's noise is not the machine's.
std::optional<NoiseFloor> measure_noise(const Condition& condition, const std::string& name,
                                        const std::string& system, const Series& series,
                                        const AnalysisOptions& options) {
  const std::vector<Observation> ordinary = undisturbed(series.ordinary),
                                 control = undisturbed(series.control);
  if (ordinary.empty() || control.empty()) return std::nullopt;
  const Samples samples = match(ordinary, control);
  if (depends_on_epochs(name) && !samples.same_epochs) return std::nullopt;
  const auto bootstrap =
      bootstrap_for(options, condition.text() + "|" + resampled_as(name) + "|" + system + "|A/A");
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
  noise.floor = ratio.low > 0 ? std::max(1 / ratio.low, ratio.high) - 1 : INFINITY;
  return noise;
}

/// Comparisons that share Holm's correction, and what each is judged by.
struct Family {
  std::vector<Comparison> comparisons;
  std::vector<Samples> samples;
  std::vector<Yardstick> yardsticks;

  /// False, and nothing added, where the metric asks for equally many epochs and they are not.
  bool add(const Series& a, const Series& b, Comparison head, Yardstick yardstick,
           const AnalysisOptions& options) {
    Samples matched = match(a.ordinary, b.ordinary);
    if (depends_on_epochs(head.metric) && !matched.same_epochs) return false;
    comparisons.push_back(compare(matched, std::move(head), options));
    samples.push_back(std::move(matched));
    yardsticks.push_back(std::move(yardstick));
    return true;
  }
  void judge_all(const AnalysisOptions& options) {
    std::vector<double> p;
    for (const Comparison& comparison : comparisons)
      if (!comparison.constant) p.push_back(comparison.p);
    const std::vector<double> corrected = stats::holm(p);
    auto next = corrected.begin();
    for (size_t i = 0; i < comparisons.size(); ++i) {
      if (!comparisons[i].constant) comparisons[i].p_holm = *next++;
      yardsticks[i].family = p.size();
      judge(comparisons[i], samples[i], yardsticks[i], options);
    }
  }
};

std::string epochs_of(const Series& series) {
  std::set<int64_t> epochs;
  for (const Observation& run : series.ordinary) epochs.insert(run.epochs);
  return epochs_text(epochs);
}

Uncompared without_comparison(const Comparison& head, const Series& a, const Series& b, bool of_switch) {
  return {head.condition, head.metric, head.first, head.second, epochs_of(a), epochs_of(b), of_switch};
}

std::optional<NoiseFloor> copied(const NoiseFloor* floor) {
  return floor ? std::optional(*floor) : std::nullopt;
}

/// All pairs of systems in one metric under one condition.
void compare_all(const Condition& condition, const std::string& name, const BySystem& systems,
                 const AnalysisOptions& options, Analysis& analysis) {
  const auto here = analysis.left_out.find(condition);
  const auto left_out = [&](const std::string& system) -> size_t {
    if (here == analysis.left_out.end()) return 0;
    const auto found = here->second.find(system);
    return found == here->second.end() ? 0 : found->second;
  };
  Family family;
  for (auto a = systems.begin(); a != systems.end(); ++a)
    for (auto b = std::next(a); b != systems.end(); ++b) {
      if (a->second.ordinary.empty() || b->second.ordinary.empty()) continue;
      Comparison head;
      head.condition = condition;
      head.metric = name;
      head.first = a->first;
      head.second = b->first;
      head.left_out = left_out(a->first) + left_out(b->first);
      Yardstick yardstick{.noise = copied(analysis.noise_floor(condition, name, a->first, b->first))};
      for (const std::string& system : {a->first, b->first})
        if (analysis.lost_control(condition, name, system)) yardstick.lost_controls.push_back(system);
      if (!family.add(a->second, b->second, head, std::move(yardstick), options))
        analysis.uncompared.push_back(without_comparison(head, a->second, b->second, false));
    }
  family.judge_all(options);
  std::move(family.comparisons.begin(), family.comparisons.end(), std::back_inserter(analysis.comparisons));
}

Condition without_switches(Condition condition) {
  condition.switches.clear();
  return condition;
}

/// The one switch that is set in one way here and in another, or not at all, there; "" where it is not one.
std::string turned_switch(const Condition& a, const Condition& b) {
  std::set<std::string> differing;
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [name, value] : from->switches) {
      const auto other = to->switches.find(name);
      if (other == to->switches.end() || other->second != value) differing.insert(name);
    }
  return differing.size() == 1 ? *differing.begin() : "";
}

std::string with_switches(const std::string& system, const Condition& condition) {
  std::string text;
  for (const auto& [name, value] : condition.switches)
    text += (text.empty() ? " with " : ", ") + name + "=" + value;
  return system + (text.empty() ? " by default" : text);
}

/// Every switch that was turned, by system and metric, among conditions that are the same otherwise.
void compare_switches(const Sorted& sorted, const AnalysisOptions& options, Analysis& analysis) {
  using Place = std::pair<const Condition*, const Series*>;
  std::map<Condition, std::map<std::string, std::map<std::string, std::vector<Place>>, MetricOrder>> alike;
  for (const auto& [condition, by_metric] : sorted)
    for (const auto& [name, systems] : by_metric)
      if (metric(name).better != Metric::Better::neither)
        for (const auto& [system, series] : systems)
          if (!series.ordinary.empty())
            alike[without_switches(condition)][name][system].emplace_back(&condition, &series);
  for (const auto& [base, by_metric] : alike)
    for (const auto& [name, systems] : by_metric)
      for (const auto& [system, places] : systems) {
        std::map<std::string, std::pair<Family, std::vector<Effect>>> by_switch;
        for (size_t i = 0; i < places.size(); ++i)
          for (size_t j = i + 1; j < places.size(); ++j) {
            const Condition &first = *places[i].first, &second = *places[j].first;
            const std::string turned = turned_switch(first, second);
            if (turned.empty()) continue;
            Comparison head;
            head.condition = base;
            head.metric = name;
            head.first = with_switches(system, first);
            head.second = with_switches(system, second);
            const NoiseFloor *one = analysis.noise_floor(first, name, system, system),
                             *other = analysis.noise_floor(second, name, system, system);
            auto floor = copied(other && (!one || other->floor > one->floor) ? other : one);
            if (floor && (floor->condition == first || floor->condition == second)) floor->condition = base;
            Yardstick yardstick{.noise = std::move(floor)};
            for (const auto& [condition, text] :
                 {std::pair(&first, &head.first), std::pair(&second, &head.second)})
              if (analysis.lost_control(*condition, name, system)) yardstick.lost_controls.push_back(*text);
            auto& [family, effects] = by_switch[turned];
            if (family.add(*places[i].second, *places[j].second, head, std::move(yardstick), options))
              effects.push_back({system, first, second, {}});
            else
              analysis.uncompared.push_back(
                  without_comparison(head, *places[i].second, *places[j].second, true));
          }
        for (auto& [turned, row] : by_switch) {
          auto& [family, effects] = row;
          family.judge_all(options);
          for (size_t i = 0; i < effects.size(); ++i) {
            effects[i].comparison = std::move(family.comparisons[i]);
            analysis.effects.push_back(std::move(effects[i]));
          }
        }
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
  throw InternalError(str("no name for verdict ", static_cast<int>(verdict)));
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

bool Analysis::lost_control(const Condition& condition, const std::string& metric,
                            const std::string& system) const {
  const auto here = disturbed_controls.find(condition);
  if (here == disturbed_controls.end() || !here->second.contains(system)) return false;
  return std::none_of(noise.begin(), noise.end(), [&](const NoiseFloor& each) {
    return each.metric == metric && each.system == system && each.condition == condition;
  });
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

const NoiseFloor* Analysis::noise_floor(const Condition& condition, const std::string& metric,
                                        const std::string& a, const std::string& b) const {
  const NoiseFloor* worst = nullptr;
  bool all = true;
  for (const std::string* system : {&a, &b}) {
    const auto own = std::find_if(noise.begin(), noise.end(), [&](const NoiseFloor& each) {
      return each.metric == metric && each.system == *system && each.condition == condition;
    });
    if (own == noise.end())
      all = false;
    else if (!worst || own->floor > worst->floor)
      worst = &*own;
  }
  if (all) return worst;
  const NoiseFloor* any = noise_floor(condition, metric);
  return any && (!worst || any->floor > worst->floor) ? any : worst;
}

bool Analysis::are_uncompared(const Condition& condition, const std::string& metric, const std::string& a,
                              const std::string& b) const {
  return std::any_of(uncompared.begin(), uncompared.end(), [&](const Uncompared& each) {
    return each.metric == metric && each.condition == condition &&
           ((each.first == a && each.second == b) || (each.first == b && each.second == a));
  });
}

std::string Analysis::epochs_text(const Condition& condition, const std::string& system) const {
  const auto here = epochs.find(condition);
  if (here == epochs.end()) return "";
  const auto found = here->second.find(system);
  return found == here->second.end() ? "" : lab::epochs_text(found->second);
}

namespace {

std::string data_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
  return text.empty() ? "–" : text;
}

}  // namespace

std::string Analysis::data_text(const Condition& condition) const {
  const auto found = data.find(condition);
  return data_names(found == data.end() ? std::set<std::string>{} : found->second);
}

std::string Analysis::data_text(const Effect& effect) const {
  std::set<std::string> names;
  for (const Condition& condition : {effect.first, effect.second})
    if (const auto found = data.find(condition); found != data.end())
      names.insert(found->second.begin(), found->second.end());
  return data_names(names);
}

bool Analysis::on_real_data(const Condition& condition) const {
  const auto found = data.find(condition);
  return found != data.end() && std::all_of(found->second.begin(), found->second.end(), is_real_data);
}

Analysis analyse(const Results& results, const AnalysisOptions& options) {
  TD_CHECK(options.level > 0 && options.level < 0.5, "analyse: the level must lie between 0 and 0.5; got ",
           options.level, ". Use 0.05.");
  TD_CHECK(options.equivalence > 0 && std::isfinite(options.equivalence),
           "analyse: the share that counts as equal must be positive; got ", options.equivalence,
           ". Use 0.02.");
  Analysis analysis;
  for (const Run& run : results.runs)
    if (!run.data.empty()) analysis.data[run.condition].insert(run.data);
  count_disturbed(results, analysis.disturbances);
  const Sorted sorted = sort_runs(results, analysis);
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
  compare_switches(sorted, options, analysis);
  return analysis;
}

}  // namespace tandem::lab
