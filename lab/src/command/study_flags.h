// What `run` and `advise` share: the flags of a study, and taking it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/src/command/commands.h"
#include "lab/src/measure/runner.h"

namespace tandem::lab {

struct StudyFlags {
  std::string device, budget, out;
  std::string drivers;  // a file with further ones; of `run` alone
  bool quick = false, json = false;
  bool busy = false;     // disturbed runs count as measured
  bool changed = false;  // programs may be others than those a study was begun with
  std::optional<int64_t> runs, threads;
  uint64_t seed = 1;
  double interval = 0.1;

  void add(CLI::App& command);
  /// Throws UsageError. Without --out: a new folder below runs/, named after the study.
  RunnerOptions options(const std::string& name) const;
};

/// Takes the study's runs, with progress on stderr (or stdout, as JSON). Throws Interrupted, with the way to go on.
/// `arguments`: the whole command line.
StudyOutcome take(const Plan& plan, const StudyFlags& flags, RunnerOptions options,
                  const std::vector<std::string>& arguments);

}  // namespace tandem::lab
