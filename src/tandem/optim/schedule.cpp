// Learning-rate schedules.
#include "tandem/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tandem/core/error.h"
#include "tandem/core/trace.h"

namespace tandem::optim {

namespace {

void check_step(const char* name, int64_t step) {
  TD_CHECK(step >= 0, name, ": the step must be at least 0; got ", step, ".");
}

void check_length(const char* name, const char* what, int64_t length) {
  TD_CHECK(length >= 1, name, ": ", what, " must be at least 1; got ", length, ".");
}

/// From `from` to `to` as share goes from 0 to 1.
double anneal(double from, double to, double share, bool linear) {
  if (linear) return from + (to - from) * share;
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace

double step_decay(double lr, int64_t step, int64_t every, double factor) {
  check_step("step_decay", step);
  check_length("step_decay", "every", every);
  return lr * std::pow(factor, static_cast<double>(step / every));
}

double exponential_decay(double lr, int64_t step, double factor) {
  check_step("exponential_decay", step);
  return lr * std::pow(factor, static_cast<double>(step));
}

double cosine(double lr, int64_t step, int64_t total, double least) {
  check_step("cosine", step);
  check_length("cosine", "total", total);
  return anneal(lr, least, static_cast<double>(step) / static_cast<double>(total), false);
}

double warm_up(double lr, int64_t step, int64_t steps, double start) {
  check_step("warm_up", step);
  check_length("warm_up", "steps", steps);
  return lr * anneal(start, 1, static_cast<double>(std::min(step, steps)) / static_cast<double>(steps), true);
}

double one_cycle(double highest, int64_t step, int64_t total, const OneCycleOptions& o) {
  check_step("one_cycle", step);
  TD_CHECK(step < total, "one_cycle: the step must be below the total of ", total, "; got ", step, ".");
  TD_CHECK(o.rise >= 0 && o.rise <= (o.three_phases ? 0.5 : 1.0),
           "one_cycle: rise must be between 0 and 1 (0.5 for three phases); got ", o.rise, ".");
  const double first = highest / o.divisor, last = first / o.final_divisor;
  const double at = static_cast<double>(step), all = static_cast<double>(total);
  // A phase ends on a step that may lie between two whole ones, as in PyTorch.
  struct Phase {
    double end, from, to;
  };
  const double top = o.rise * all - 1;
  const Phase two[] = {{top, first, highest}, {all - 1, highest, last}};
  const Phase three[] = {
      {top, first, highest}, {2 * o.rise * all - 2, highest, first}, {all - 1, first, last}};
  const Phase* phase = o.three_phases ? three : two;
  double begin = 0;
  while (at > phase->end && phase->end < all - 1) begin = phase++->end;
  const double length = phase->end - begin;
  return anneal(phase->from, phase->to, length == 0 ? 1.0 : (at - begin) / length, o.linear);
}

Plateau::Plateau(double lr, const PlateauOptions& options) : options_(options) {
  TD_CHECK(options.factor >= 0 && options.factor < 1, "plateau: factor must be at least 0 and below 1; got ",
           options.factor, ".");
  TD_CHECK(options.patience >= 0 && options.cooldown >= 0,
           "plateau: patience and cooldown must be at least 0; got ", options.patience, " and ",
           options.cooldown, ".");
  const double infinity = std::numeric_limits<double>::infinity();
  state_ = {.lr = lr, .best = options.higher_is_better ? -infinity : infinity};
}

bool Plateau::is_better(double value) const {
  const double way = options_.higher_is_better ? 1 : -1;  // in which the measure must go
  const double mark = options_.relative ? state_.best * (1 + way * options_.threshold)
                                        : state_.best + way * options_.threshold;
  return options_.higher_is_better ? value > mark : value < mark;
}

double Plateau::measure(double value) {
  refuse_while_tracing("Plateau::measure", "it would count only while the callable is traced",
                       "Measure between calls, and give the rate to set_lr().");
  if (is_better(value)) {
    state_.best = value;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooling > 0) {
    --state_.cooling;
    state_.bad = 0;
  }
  if (state_.bad > options_.patience) {
    const double cut = std::max(state_.lr * options_.factor, options_.least);
    if (state_.lr - cut > options_.epsilon) state_.lr = cut;
    state_.cooling = options_.cooldown;
    state_.bad = 0;
  }
  return state_.lr;
}

}  // namespace tandem::optim
