#include "tandem/train/loop/run_clock.h"

namespace tandem {

void RunClock::stop_training() {
  training_seconds_ = training_seconds();
  training_since_.reset();
}

double RunClock::training_seconds() const {
  return training_seconds_ + (training_since_ ? seconds_since(*training_since_) : 0);
}

double RunClock::samples_per_second() const {
  const double seconds = training_seconds();
  return seconds > 0 ? static_cast<double>(samples_) / seconds : 0;
}

void RunClock::saved(Clock::time_point since) {
  saved_at_ = Clock::now();
  save_seconds_ = seconds_since(since);
  closing_.saved(save_seconds_);
  if (training_since_) *training_since_ += saved_at_ - since;  // writing is no training
}

bool RunClock::is_worth_saving() const {
  constexpr double kLong = 0.5, kMostShare = 0.1;
  return save_seconds_ < kLong || seconds_since(saved_at_) * kMostShare >= save_seconds_;
}

double RunClock::closing_seconds(int64_t step_samples) const {
  const double rate = samples_per_second(), sample = rate > 0 ? 1 / rate : 0;
  return closing_.seconds(sample * static_cast<double>(step_samples), sample);
}

}  // namespace tandem
