// Learning-rate schedules: plain functions of the step (0 is the first), to be given to Optimizer::set_lr. They have
// the values of PyTorch's schedulers. warm_up goes with any other: warm_up(cosine(lr, step, total), step, 100).
#pragma once

#include <cstdint>

#include "tandem/core/standard.h"

namespace tandem::optim {

/// lr · factor^⌊step / every⌋ (StepLR).
double step_decay(double lr, int64_t step, int64_t every, double factor = 0.1);

/// lr · factor^step (ExponentialLR).
double exponential_decay(double lr, int64_t step, double factor);

/// Half a cosine from lr at step 0 to `least` at step `total`, and back again beyond (CosineAnnealingLR).
double cosine(double lr, int64_t step, int64_t total, double least = 0);

/// A straight line from lr · start at step 0 to lr at step `steps`, then lr (LinearLR).
double warm_up(double lr, int64_t step, int64_t steps, double start = 1.0 / 3);

struct OneCycleOptions {
  double rise = 0.3;           ///< share of the steps in which the rate rises
  double divisor = 25;         ///< the first rate is highest / divisor
  double final_divisor = 1e4;  ///< the last rate is the first / final_divisor
  bool linear = false;         ///< straight lines instead of half cosines
  bool three_phases = false;   ///< down to the first rate as fast as up, then to the last
};
/// From highest / divisor up to highest and down to the last rate at step total - 1 (OneCycleLR).
double one_cycle(double highest, int64_t step, int64_t total, const OneCycleOptions& options = {});

struct PlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;    ///< measurements without progress that are let pass
  int64_t cooldown = 0;     ///< measurements after a cut that are not counted
  double threshold = 1e-4;  ///< progress is more than this
  bool relative = true;     ///< … times the best, else by itself
  bool higher_is_better = false;
  double least = 0;       ///< rate
  double epsilon = 1e-8;  ///< a cut smaller than this is not made
};

/// Cuts the rate where a measure (a test loss, mostly) no longer gets better (ReduceLROnPlateau).
class Plateau {
 public:
  /// What a checkpoint must hold.
  struct State {
    double lr = 0;
    double best = 0;  // infinitely bad before the first measurement
    int64_t bad = 0, cooling = 0;
  };

  explicit Plateau(double lr, const PlateauOptions& options = {});
  /// Takes a measurement and returns the rate from here on.
  double measure(double value);
  double lr() const { return state_.lr; }
  const State& state() const { return state_; }
  void load_state(const State& state) { state_ = state; }

 private:
  bool is_better(double value) const;

  PlateauOptions options_;
  State state_;
};

}  // namespace tandem::optim
