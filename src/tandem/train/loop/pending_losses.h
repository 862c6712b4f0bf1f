// The losses of steps, which stay on the device until many of them are read at once.
#pragma once

#include <chrono>
#include <vector>

#include "tandem/train/checkpoint.h"
#include "tandem/train/step.h"

namespace tandem {

class PendingLosses {
 public:
  /// `scaler` may be null. Both must outlive it.
  PendingLosses(const FitOptions& options, const optim::LossScaler* scaler)
      : options_(options), scaler_(scaler) {}

  void add(const TrainingStep::Loss& loss, int64_t step, int64_t samples) {
    rows_.push_back({loss, step, samples});
  }
  /// Whether there are many, or the last reading was a while ago. When losses are read changes no result.
  bool are_due() const;
  /// Reads them and adds them to the epoch's loss in the order of the steps. A loss that is no number ends the run here,
  /// before any checkpoint could hold what it did to the weights.
  void read(RunState& state);
  double last() const { return last_; }  ///< of those that were read

 private:
  struct Row {
    TrainingStep::Loss loss;
    int64_t step, samples;
  };
  const FitOptions& options_;
  const optim::LossScaler* const scaler_;
  std::vector<Row> rows_;
  double last_ = 0;
  std::chrono::steady_clock::time_point read_at_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
