// The clock of a run: how long it has gone, how much of that was training, and how long its end would take.
#pragma once

#include <chrono>
#include <optional>

#include "tandem/train/closing_time.h"

namespace tandem {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class RunClock {
 public:
  /// `begun`: when this process began the run, before its data was opened.
  RunClock(Clock::time_point begun, ClosingTime closing) : begun_(begun), closing_(closing) {}

  double since_begun() const { return seconds_since(begun_); }
  double since_opened() const { return seconds_since(opened_); }  ///< since the data was open
  /// The same, of all processes of the run together.
  double of_run() const { return before_ + since_opened(); }
  void resume(double seconds) { before_ = seconds; }

  /// Training goes on between these two calls. Tests and checkpoints are not part of it.
  void start_training() { training_since_ = Clock::now(); }
  void stop_training();
  void trained(int64_t samples) { samples_ += samples; }
  double training_seconds() const;
  double samples_per_second() const;

  void measured(int64_t samples, Clock::time_point since) {
    closing_.measured(samples, seconds_since(since));
  }
  /// A checkpoint was written.
  void saved(Clock::time_point since);
  /// False where a checkpoint takes long to write and the last one is young, so that a large model does not spend its
  /// time on writing: a kill then costs ten times what a checkpoint takes, at most.
  bool is_worth_saving() const;
  /// How many seconds one more step of this many samples would take, with the end of the run after it.
  double closing_seconds(int64_t step_samples) const;

 private:
  const Clock::time_point begun_, opened_ = Clock::now();
  double before_ = 0;  // of the processes before this one
  std::optional<Clock::time_point> training_since_ = {};
  double training_seconds_ = 0;      // until then
  int64_t samples_ = 0;              // by this process
  double save_seconds_ = 0;          // what the newest checkpoint took
  Clock::time_point saved_at_ = {};  // when it was written
  ClosingTime closing_;
};

}  // namespace tandem
