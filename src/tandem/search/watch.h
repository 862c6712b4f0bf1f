// The callback by which a search watches the run of a trial.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "tandem/core/error.h"
#include "tandem/train/callbacks.h"

namespace tandem::search {

/// Interrupts the run under way once the search must end, and refuses a trial that is too slow for the budget. It changes
/// nothing of what the run computes.
class Watch final : public Callback {
 public:
  /// `most_seconds`: of an epoch; unset: any.
  Watch(std::function<bool()> is_over, std::atomic<bool>& stop, std::optional<double> most_seconds)
      : is_over_(std::move(is_over)), stop_(stop), most_seconds_(most_seconds) {}
  std::string name() const override { return "search"; }
  void on_start(Training&) override { look(); }
  void on_step(Training& training) override {
    look();
    if (!most_seconds_) return;
    const Clock::time_point now = Clock::now();
    if (steps_++ == 0) first_ = now;  // compiling is over
    const double passed = std::chrono::duration<double>(now - first_).count();
    if (steps_ < kTimedSteps || passed < kTimedSeconds) return;
    const double epoch =
        passed / static_cast<double>(steps_ - 1) * static_cast<double>(training.steps_per_epoch());
    TD_CHECK(epoch <= *most_seconds_, "search: an epoch must take at most a twentieth of the budget, ",
             std::ceil(*most_seconds_), " s; this trial takes about ", std::ceil(epoch),
             " s. Give a larger budget.");
    most_seconds_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kTimedSteps = 10;
  static constexpr double kTimedSeconds = 1;
  void look() {
    if (is_over_()) stop_ = true;
  }
  std::function<bool()> is_over_;
  std::atomic<bool>& stop_;
  std::optional<double> most_seconds_;
  Clock::time_point first_;
  int64_t steps_ = 0;
};

}  // namespace tandem::search
