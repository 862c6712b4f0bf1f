// What a run measures, and on which parts of its data.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tandem/train/loop/learner.h"
#include "tandem/train/loop/run_clock.h"

namespace tandem {

class Measurement {
 public:
  /// The sets may be null. All must outlive it.
  Measurement(Learner& learner, RunClock& clock, const FitOptions& options, const data::Dataset* valid,
              const data::Dataset* test);

  /// Training::metrics and measured_part (train/callbacks.h).
  const std::vector<MetricInfo>& infos() const { return infos_; }
  const char* part() const { return valid_ ? "valid" : test_ ? "test" : "train"; }

  // Each adds what it measures to `values`, and is false where the run was told to stop meanwhile.
  /// The part that epochs are judged by.
  bool judge(std::vector<Metric>& values) { return measure(part(), valid_ ? valid_ : test_, values); }
  /// What is measured besides when the run ends: the test set, where another part judges the epochs.
  bool test(std::vector<Metric>& values) { return !valid_ || measure("test", test_, values); }

 private:
  bool measure(const char* part, const data::Dataset* set, std::vector<Metric>& values);

  Learner& learner_;
  RunClock& clock_;
  const std::atomic<bool>* const stop_;
  const data::Dataset *const valid_, *const test_;
  Evaluation evaluation_;
  std::vector<MetricInfo> infos_;
};

}  // namespace tandem
