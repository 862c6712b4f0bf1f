// How long a run that is told to end still takes: a step, the tests that are due, the checkpoint. For the time budget.
#pragma once

#include <cstdint>

#include "tandem/core/standard.h"

namespace tandem {

class ClosingTime {
 public:
  /// `epoch_samples`: of what is measured at the end of an epoch; `final_samples`: of what is measured besides when the run
  /// ends.
  ClosingTime(int64_t epoch_samples, int64_t final_samples) : samples_(epoch_samples + final_samples) {}

  /// So many samples were measured in so many seconds; a checkpoint was written.
  void measured(int64_t samples, double seconds);
  void saved(double seconds) { save_seconds_ = seconds; }

  /// What one more step, and an end after it, will take, where training has a step in `step_seconds` and a sample in
  /// `sample_seconds`. By the latest measurement; before there is one, a test is taken to need half of what training needs
  /// for as many samples.
  double seconds(double step_seconds, double sample_seconds) const;

 private:
  int64_t samples_;
  double per_sample_ = -1, save_seconds_ = 0;
};

}  // namespace tandem
