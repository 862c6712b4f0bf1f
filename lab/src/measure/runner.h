// Runs a study: block after block, every cell once per block in random order, each run in a fresh process, each record on disk
// before the next run begins. A study that was stopped goes on where it stopped.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "lab/src/measure/disturbance.h"
#include "lab/src/measure/gatekeeper.h"
#include "lab/src/measure/honesty.h"
#include "lab/src/measure/progress.h"
#include "lab/src/study/study.h"

namespace tandem::lab {

struct RunnerOptions {
  std::string folder;
  uint64_t seed = 1;
  double interval_s = 0.1;  // of the monitors
  /// No run begins that cannot end within it, but one. Where it has no room for a block, whole comparisons come first.
  std::optional<double> budget_s;
  double cool_down_s = 60;  // at most so long a wait for the start temperature before a run
  Bench bench;
  HonestyLimits limits = {};
  DisturbanceLimits disturbance = {};
  bool keep_disturbed =
      false;  // they count as measured, though nothing is decided by them; else they are repeated
  std::function<void(const std::string& folder)> on_start =
      {};  // before the first run of this call: writes the provenance
};

struct StudyOutcome {
  int64_t taken = 0, failed = 0;  // runs of this call, and those of them that are not ok
  bool stopped = false;           // by the user
  bool over_budget = false;       // blocks are left that the budget has no time for
  int64_t blocks_left = 0;
  int64_t disturbed =
      0;  // runs of this call beside which other work went beyond the limits, repeats and kept ones included
  int64_t left_out = 0;  // of these, runs that no repeat replaced
};

StudyOutcome run_study(const Plan& plan, const RunnerOptions& options, Progress& progress);

/// study.json of a plan: what must not change when a study goes on.
Json study_record(const Plan& plan, const RunnerOptions& options);
/// The first place where two such records differ, in words; "" where they agree.
std::string difference(const Json& there, const Json& wanted);

}  // namespace tandem::lab
