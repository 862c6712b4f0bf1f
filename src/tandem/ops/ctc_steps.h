// One place of the labels of one sample at one step, forward and backward, for CPU and CUDA kernels of ctc_loss.
#pragma once

#include "tandem/ops/ctc.h"
#include "tandem/ops/elementary_functions.h"

namespace tandem {

/// One sample, as kernels see it.
struct CtcSample {
  const int64_t* targets;
  int64_t labels, steps, blank;
  /// Places: a label and a blank in turn, with blanks at both ends.
  TD_HD int64_t places() const { return 2 * labels + 1; }
  TD_HD int64_t label(int64_t place) const { return place % 2 ? targets[place / 2] : blank; }
  /// Whether the blank before a place may be left out: between two labels that differ.
  TD_HD bool may_skip(int64_t place) const {
    return place % 2 && place >= 2 && targets[place / 2] != targets[place / 2 - 1];
  }
  TD_HD bool is_valid(int64_t classes, int64_t most_steps, int64_t most_labels) const {
    if (labels < 0 || labels > most_labels || steps < 0 || steps > most_steps) return false;
    for (int64_t k = 0; k < labels; ++k)
      if (targets[k] < 0 || targets[k] >= classes) return false;
    return true;
  }
};

/// The logarithm of a probability of 0: finite, so that differences of two are none to worry about.
inline constexpr double kCtcNever = -1e30;

/// log(exp(a) + exp(b) + exp(c)).
template <class C>
TD_FN C log_sum(C a, C b, C c) {
  C top = a > b ? a : b;
  top = top > c ? top : c;
  const C sum = top + log_(exp_(a - top) + exp_(b - top) + exp_(c - top));
  return top - top == C(0) ? sum : a + b + c;  // minus infinity and NaN stay
}

/// Having come to place k at step t with its label said: from `before`, the same for step t - 1 (null: t is the first).
template <class C>
TD_FN C ctc_arrive(const CtcSample& s, int64_t t, int64_t k, const C* before, const C* x) {
  const C never = static_cast<C>(kCtcNever);
  C come = t == 0 && k <= 1 ? C(0) : never;
  if (t > 0) come = log_sum(before[k], k >= 1 ? before[k - 1] : never, s.may_skip(k) ? before[k - 2] : never);
  return come + x[s.label(k)];
}
/// All that follows place k: from `after`, the same for the step after, whose log-probabilities are x (null: k is of the last step).
template <class C>
TD_FN C ctc_leave(const CtcSample& s, int64_t k, const C* after, const C* x) {
  const C never = static_cast<C>(kCtcNever);
  const int64_t last = s.places() - 1;
  if (!x) return k + 1 >= last ? C(0) : never;
  const auto then = [&](int64_t place) { return after[place] + x[s.label(place)]; };
  return log_sum(then(k), k + 1 <= last ? then(k + 1) : never,
                 k + 2 <= last && s.may_skip(k + 2) ? then(k + 2) : never);
}
/// The loss, from the last step's arrivals (null: there are no steps).
template <class C>
TD_FN C ctc_total(const CtcSample& s, const C* last) {
  const C never = static_cast<C>(kCtcNever), most = never / C(2);
  C sum = s.labels == 0 ? C(0) : never;
  if (last) sum = log_sum(last[s.places() - 1], s.labels > 0 ? last[s.places() - 2] : never, never);
  return sum < most ? C(1) / C(0) : -sum;
}

}  // namespace tandem
