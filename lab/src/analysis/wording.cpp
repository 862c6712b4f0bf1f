// Verdicts in plain words.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/src/analysis/compare.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

std::string printed(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string printed(int digits, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// As many decimals as tell the ratio from 1: 1.34, 1.012, 12.3, 140.
int decimals(double ratio) {
  if (std::abs(ratio - 1) < 0.1) return 3;
  return ratio < 10 ? 2 : ratio < 100 ? 1 : 0;
}

std::string percent(double share) {
  const double value = 100 * share;
  if (value >= 9.95) return printed("%.0f", value) + " %";
  // Two digits, without a zero at the end: 2 %, 1.4 %, 0.31 %.
  return printed("%.2g", value) + " %";
}

std::string probability(double p) {
  if (p >= 0.1) return printed("%.2f", p);
  if (p >= 0.001) return printed("%.2g", p * (1 + 1e-9));  // 0.0625 is told as 0.063
  return printed("%.1e", p);
}

/// 0.00123 s, 403 MiB.
std::string quantity(double value, const std::string& unit) {
  const std::string number = std::abs(value) >= 1000 ? printed("%.0f", value) : printed("%.4g", value);
  return unit.empty() ? number : number + " " + unit;
}

/// The ratio as it is told: 1 or more, with its interval the same way round.
Estimate told(const Estimate& ratio) {
  if (ratio.value >= 1) return ratio;
  return {1 / ratio.value, 1 / ratio.high, 1 / ratio.low};
}

std::string interval_text(const Estimate& ratio, size_t runs) {
  if (runs == 1) return "one run";
  if (!std::isfinite(ratio.low) || !std::isfinite(ratio.high)) return "no interval";
  const int digits = decimals(ratio.value);
  return "95 % interval " + printed(digits, ratio.low) + " to " + printed(digits, ratio.high);
}

std::string p_text(const Comparison& comparison) {
  std::string text = "p = " + probability(comparison.p_holm) + " after Holm";
  if (comparison.at_floor) text += str(", the smallest that ", comparison.runs, " runs can give");
  return text;
}

std::string noise_text(const Comparison& comparison, const Yardstick& yardstick) {
  if (!yardstick.noise) return "no noise floor was measured";
  const std::string of = yardstick.noise->condition == comparison.condition
                             ? ""
                             : ", taken from " + yardstick.noise->condition.text() + ",";
  if (!std::isfinite(yardstick.noise->floor)) return "the noise floor" + of + " has no bound";
  return "the noise floor" + of + " is " + percent(yardstick.noise->floor);
}

std::string left_out_text(const Comparison& c) {
  if (c.left_out == 0) return "";
  return str("; ", c.left_out, c.left_out == 1 ? " run was" : " runs were",
             " left out, which other work on the machine disturbed");
}

/// "faster to train": how one says that a system has less of this, or more of it; "" where there is no such word.
std::string faster(const std::string& name, const std::string& phase) {
  if (name == "step.latency_s" || name == "step.throughput_s" || name == "step.call_s" ||
      name == "samples_per_s")
    return phase == "infer"  ? "faster in inference"
           : phase == "load" ? "faster to load samples"
                             : "faster to train";
  if (name == "start_s") return "faster to start";
  if (name == "prepare_s") return "faster to build the network";
  if (name == "first_step_s") return "faster in the first step";
  if (name == "fit.total_s") return "faster to train";
  if (name == "fit.first_epoch_s") return "faster in the first epoch";
  if (name == "fit.epoch_s") return "faster in the later epochs";
  if (name == "fit.test_s") return "faster to test";
  const Metric known = metric(name);
  if (name.rfind("fit.time_to_", 0) == 0)
    return "faster to reach" + known.label.substr(std::string("time to").size());
  return "";
}

std::string decided_text(const Comparison& c, const Grounds& grounds, const std::string& noise,
                         const AnalysisOptions& options) {
  const Metric read = metric(c.metric);
  const bool first_wins = c.verdict == Verdict::first;
  const std::string& winner = first_wins ? c.first : c.second;
  const std::string& loser = first_wins ? c.second : c.first;
  std::string text;
  if (!std::isfinite(c.ratio.low) || !std::isfinite(c.ratio.high) || c.ratio.value <= 0) {
    // One of them is at zero: only the difference can be told.
    const char* side = read.better == Metric::Better::more ? "higher" : "lower";
    const double sign = c.shift.value < 0 ? -1 : 1;
    const double low = std::min(sign * c.shift.low, sign * c.shift.high);
    const double high = std::max(sign * c.shift.low, sign * c.shift.high);
    return str(winner, " has a ", side, " ", read.label, " than ", loser, " here, by ",
               quantity(std::abs(c.shift.value), read.unit), " (95 % interval ", quantity(low, ""), " to ",
               quantity(high, read.unit), ", ", p_text(c), "); ", noise, ".");
  }
  const Estimate ratio = told(c.ratio);
  const std::string times = printed(decimals(ratio.value), ratio.value) + "×";
  const std::string phrase = faster(c.metric, c.condition.phase);
  if (!phrase.empty()) {
    text = str(winner, " is ", times, " ", phrase, " than ", loser, " here (", interval_text(ratio, c.runs),
               ", ", p_text(c), ")");
  } else {
    const char* side = read.better == Metric::Better::more ? "higher" : "lower";
    text = str(winner, " has a ", times, " ", side, " ", read.label, " than ", loser,
               " here: ", quantity(first_wins ? grounds.median_first : grounds.median_second, read.unit),
               " against ", quantity(first_wins ? grounds.median_second : grounds.median_first, read.unit),
               " (", interval_text(ratio, c.runs), ", ", p_text(c), ")");
  }
  if (ratio.high <= 1 + options.equivalence)
    text += str("; that is real, but less than the ", percent(options.equivalence), " that count as equal");
  return text + "; " + noise + ".";
}

}  // namespace

std::string constant_text(const Comparison& c, const Grounds& grounds, const Yardstick& yardstick) {
  const Metric read = metric(c.metric);
  const std::string first = quantity(grounds.median_first, read.unit),
                    second = quantity(grounds.median_second, read.unit),
                    each = c.runs == 1 ? "counted once" : "the same in every run";
  if (c.verdict == Verdict::equivalent)
    return str(c.first, " and ", c.second, " are equal in ", read.label, " here: ", first, ", ", each, ".");
  const bool has_ratio = std::isfinite(c.ratio.value) && c.ratio.value > 0;
  const double times = has_ratio ? told(c.ratio).value : 0;
  const std::string both =
      str(first, " with ", c.first, ", ", second, " with ", c.second,
          has_ratio ? ", a ratio of " + printed(decimals(times), times) : std::string(), "; ", each);
  if (c.verdict != Verdict::undecided) return str("In ", read.label, " here: ", both, ".");
  return str("Undecided between ", c.first, " and ", c.second, " in ", read.label, " here: ", both,
             c.can_decide ? ", but the difference is not beyond the noise; " + noise_text(c, yardstick)
                          : str(", but ", c.runs, " runs are too few"),
             ".");
}

std::string disturbed_text(const Comparison& c, const Grounds& grounds, const Yardstick& yardstick) {
  const Metric read = metric(c.metric);
  std::string controls;
  for (const std::string& system : yardstick.lost_controls)
    controls += (controls.empty() ? "the control runs of " : " and of ") + system;
  const std::string what = c.disturbed > 0 ? str(c.disturbed, " of ", 2 * c.runs, " runs") : controls;
  return str("Not decided between ", c.first, " and ", c.second, " in ", read.label,
             " here: other work on the machine disturbed ", what, " (medians ",
             quantity(grounds.median_first, read.unit), " and ", quantity(grounds.median_second, read.unit),
             ").");
}

std::string verdict_text(const Comparison& c, const Grounds& grounds, const Yardstick& yardstick,
                         const AnalysisOptions& options) {
  const std::string noise = noise_text(c, yardstick) + left_out_text(c);
  if (c.verdict == Verdict::first || c.verdict == Verdict::second)
    return decided_text(c, grounds, noise, options);
  const Metric read = metric(c.metric);
  const std::string ratio =
      std::isfinite(c.ratio.value)
          ? str("the ratio of ", c.second, " to ", c.first, " is ",
                printed(decimals(c.ratio.value), c.ratio.value), ", ", interval_text(c.ratio, c.runs))
          : str("medians ", quantity(grounds.median_first, read.unit), " and ",
                quantity(grounds.median_second, read.unit));
  if (c.verdict == Verdict::equivalent)
    return str(c.first, " and ", c.second, " are equal in ", read.label, " here, within ",
               percent(options.equivalence), " (", ratio, ", p = ", probability(grounds.equivalence_p),
               " by TOST); ", noise, ".");
  const std::string begin =
      str("Undecided between ", c.first, " and ", c.second, " in ", read.label, " here: ");
  if (!c.can_decide)
    return str(begin, c.runs, c.runs == 1 ? " run is" : " runs are",
               " too few, for p after Holm cannot fall below ", probability(grounds.smallest_p_holm), "; ",
               grounds.least_runs, " could decide (", ratio, ")", left_out_text(c), ".");
  if (c.p_holm < options.level)
    return str(begin, "they differ (", ratio, ", ", p_text(c), "), but not by more than the noise; ", noise,
               ".");
  if (c.noise && *c.noise > options.equivalence && grounds.equivalence_p < options.level)
    return str(begin, "no difference is shown (", ratio, ", ", p_text(c),
               "), and the noise is wider than the ", percent(options.equivalence), " that count as equal; ",
               noise, ".");
  return str(begin, "neither a difference nor equality within ", percent(options.equivalence), " is shown (",
             ratio, ", ", p_text(c), "); ", noise, ".");
}

}  // namespace tandem::lab
