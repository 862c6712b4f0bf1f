// Ranking of a sweep. Candidates have different conditions (batch, precision), so their costs a sample are compared by
// resampling each one's runs; those that cannot be told from the best one are ties, and where runs are few nothing is said of them.
#include "lab/src/claims/advise.h"

#include <algorithm>
#include <cmath>

#include "lab/src/claims/checks.h"
#include "lab/src/claims/why.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/rank_tests.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// Two candidates within this share of each other are ties also where no control was measured.
constexpr double kLeastNoise = 0.02;

struct Cost {
  std::string metric, name, unit;
  bool a_sample = true;  // divided by the batch
  double scale = 1;
};

Cost cost_of(Goal goal, bool gpu) {
  switch (goal) {
    case Goal::time:
      return {"step.throughput_s", "time a sample", "µs", true, 1e6};
    case Goal::energy:
      return {"step.energy_j", "energy a sample", "mJ", true, 1e3};
    case Goal::memory:
      break;
  }
  return {gpu ? "gpu.memory_peak_mib" : "rss.peak_mib", "peak memory", "MiB", false, 1};
}

struct Measured {
  Candidate candidate;
  std::vector<double> costs;
  Sample by_block;
};

Estimate as_estimate(const stats::Interval& interval) {
  return {interval.value, interval.low, interval.high};
}

/// A candidate's cost beside the best one's: by pairs where both ran under one condition, else sample against sample.
void compare_with_best(const Measured& best, Measured& other, double noise) {
  const bool same = best.candidate.condition == other.candidate.condition;
  const auto [a, b] = paired(best.by_block, other.by_block);
  const bool by_pairs = same && a.size() >= kFewestRuns;
  const stats::Interval ratio =
      by_pairs ? stats::median_ratio_paired(a, b) : stats::median_ratio(best.costs, other.costs);
  other.candidate.ratio = as_estimate(ratio);
  const bool few = best.costs.size() < kFewestRuns || other.costs.size() < kFewestRuns;
  double p = 1;
  if (by_pairs)
    p = a == b ? 1 : stats::wilcoxon(a, b).p;
  else if (!few)
    p = stats::mann_whitney(best.costs, other.costs).p;
  other.candidate.few = few;
  other.candidate.tie = !few && (p >= kLevel || ratio.value <= 1 + noise || !(ratio.low > 1));
}

std::string describe_gap(const Gap& gap) {
  return gap.system + ", " + gap.condition.text() + ": " + to_string(gap.status) +
         (gap.why.empty() ? "" : ", " + gap.why);
}

}  // namespace

Advice advise(const Results& results, const Analysis& analysis, Goal goal, const std::string& phase) {
  Advice advice;
  advice.goal = goal;
  advice.phase = phase;
  const Evidence evidence(results, analysis);
  for (const Run& run : results.runs) {
    if (run.condition.track != "equal" || (!advice.phase.empty() && run.condition.phase != advice.phase))
      continue;
    advice.model = run.condition.workload;
    advice.device = run.condition.device;
    advice.phase = run.condition.phase;
    break;
  }
  if (advice.model.empty()) {
    advice.reason =
        "the folder holds no run of the equal track" + (phase.empty() ? "" : " in phase " + phase);
    return advice;
  }
  const Cost cost = cost_of(goal, advice.device != "cpu");
  advice.cost_name = cost.name;
  advice.unit = cost.unit;
  advice.noise = kLeastNoise;

  Where where;
  where.workload = {advice.model};
  where.phase = advice.phase;
  where.any_switches = true;
  std::vector<Measured> all;
  std::string why;
  for (const Condition& condition : evidence.conditions(where, true)) {
    if (condition.device != advice.device) continue;
    advice.noise = std::max(advice.noise, evidence.noise(condition, cost.metric));
    std::vector<std::string> systems;
    for (const Run* run : evidence.runs(condition, "")) {
      if (std::find(systems.begin(), systems.end(), run->system) == systems.end())
        systems.push_back(run->system);
    }
    for (const std::string& system : systems) {
      Measured measured;
      measured.candidate.system = system;
      measured.candidate.condition = condition;
      measured.by_block = evidence.sample(condition, system, cost.metric);
      if (measured.by_block.empty()) {
        why = evidence.why_empty(condition, system, cost.metric);
        continue;
      }
      const double factor =
          cost.scale / (cost.a_sample ? static_cast<double>(std::max<int64_t>(1, condition.batch)) : 1.0);
      for (auto& [block, value] : measured.by_block) value *= factor;
      measured.costs = values_of(measured.by_block);
      measured.candidate.runs = measured.costs.size();
      measured.candidate.cost = as_estimate(stats::median_interval(measured.costs));
      all.push_back(std::move(measured));
    }
  }
  for (const Gap& gap : analysis.gaps) {
    const bool here = gap.condition.workload == advice.model && gap.condition.phase == advice.phase;
    if (here && gap.condition.track == "equal") advice.gaps.push_back(describe_gap(gap));
  }
  if (all.empty()) {
    advice.reason = "no run has " + cost.metric + (why.empty() ? "" : ": " + why);
    return advice;
  }
  std::stable_sort(all.begin(), all.end(), [](const Measured& a, const Measured& b) {
    return a.candidate.cost.value < b.candidate.cost.value;
  });
  all.front().candidate.ratio = {1, 1, 1};
  all.front().candidate.few = all.front().candidate.runs < kFewestRuns;
  for (size_t i = 1; i < all.size(); ++i) {
    compare_with_best(all.front(), all[i], advice.noise);
    all[i].candidate.why = reasons(evidence, all.front().candidate, all[i].candidate);
  }
  for (Measured& measured : all) advice.candidates.push_back(std::move(measured.candidate));
  return advice;
}

}  // namespace tandem::lab
