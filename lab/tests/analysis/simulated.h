// Simulated studies: runs whose truth is known.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "lab/src/record/record.h"
#include "lab/src/stats/distributions.h"
#include "lab/src/stats/random.h"

namespace tandem::lab {

inline double normal_draw(stats::Random& random) {
  return stats::normal_quantile(random.uniform() + 0x1p-54);
}

inline Condition lenet_training() {
  Condition condition;
  condition.workload = "lenet";
  condition.phase = "train";
  condition.batch = 100;
  return condition;
}

inline Run simulated_run(const std::string& system, int64_t block, const std::string& metric, double value) {
  Run run;
  run.part = "training_time";
  run.system = system;
  run.condition = lenet_training();
  run.block = block;
  run.metrics[metric] = value;
  return run;
}

/// Systems a, b, … with true medians `times`; runs of one block share what the machine does (2 %), and each run adds its
/// own noise. With `control`, the first system has an A/A partner.
inline Results simulated_study(const std::vector<double>& times, int blocks, double noise,
                               stats::Random& random, bool control = true,
                               const std::string& metric = "step.latency_s") {
  Results results;
  for (int block = 0; block < blocks; ++block) {
    const double machine = 0.02 * normal_draw(random);
    const auto value = [&](double time) { return time * std::exp(machine + noise * normal_draw(random)); };
    for (size_t i = 0; i < times.size(); ++i)
      results.runs.push_back(
          simulated_run(std::string(1, static_cast<char>('a' + i)), block, metric, value(times[i])));
    if (!control) continue;
    results.runs.push_back(simulated_run("a", block, metric, value(times[0])));
    results.runs.back().control = "A/A";
  }
  return results;
}

}  // namespace tandem::lab
