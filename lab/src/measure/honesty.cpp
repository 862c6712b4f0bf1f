#include "lab/src/measure/honesty.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "lab/src/measure/gate.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

/// The gate's tolerances are of one number each, against f64; here both sides round, and an output's sum adds up what they do.
constexpr double kBothRound = 5;

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string text_of(double s) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g s", s);
  return buffer;
}

double mean_step_s(const Timed& timed) {
  return covered_s(timed) / static_cast<double>(std::max<int64_t>(1, timed.count));
}

double median_step_s(const Timed& timed) {
  std::vector<double> steps;
  for (const auto& [begin, end] : timed.steps) steps.push_back(seconds(end - begin));
  if (steps.empty()) return 0;
  std::nth_element(steps.begin(), steps.begin() + static_cast<long>(steps.size() / 2), steps.end());
  return steps[steps.size() / 2];
}

Objection check_order(const Timed& timed) {
  if (timed.region == Region::throughput) {
    if (timed.end_ns <= timed.begin_ns)
      return Contradiction{
          "order", str("a region must end after it began; got ", timed.begin_ns, " to ", timed.end_ns)};
    return {};
  }
  int64_t last = timed.steps.empty() ? 0 : timed.steps.front().first;
  for (size_t i = 0; i < timed.steps.size(); ++i) {
    const auto [begin, end] = timed.steps[i];
    if (end <= begin)
      return Contradiction{"order",
                           str("a step must end after it began; step ", i, " took ", end - begin, " ns")};
    if (begin < last)
      return Contradiction{"order", str("a step must begin after the one before it ended; step ", i,
                                        " began ", last - begin, " ns too early")};
    last = end;
  }
  return {};
}

/// Time in the lab's window that the driver's clock leaves out. Waiting for a core is not the driver's fault.
Objection check_window(const Timed& timed, const Witness& seen, double absolute_s,
                       const HonestyLimits& limits) {
  const double window = seconds(timed.received_ns - timed.sent_ns), covered = covered_s(timed);
  const double allowed = limits.uncovered_share * window + absolute_s + std::max(0.0, seen.delay_s);
  if (window - covered <= allowed) return {};
  return Contradiction{"window",
                       str("the steps must fill the time between request and answer; the driver says ",
                           text_of(covered), " and the lab saw ", text_of(window), ", of which at most ",
                           text_of(allowed), " may be outside the steps")};
}

}  // namespace

bool is_of_time(const std::string& rule) {
  static const std::set<std::string> rules = {"clock", "window", "idle",    "regions",
                                              "work",  "wait",   "decoding"};
  return rules.contains(rule);
}

double covered_s(const Timed& timed) {
  if (timed.region == Region::throughput) return seconds(timed.end_ns - timed.begin_ns);
  double sum = 0;
  for (const auto& [begin, end] : timed.steps) sum += seconds(end - begin);
  return sum;
}

// What a driver says of its own times, held against what the lab has seen from outside: the clock between request and
// answer, and the processor time of the driver's processes. The cheapest and plainest checks come first.
Objection check_region(const Timed& timed, const Witness& seen, Window window, const std::string& phase,
                       const std::string& device, int64_t updates_before, const HonestyLimits& limits) {
  if (timed.count != timed.asked)
    return Contradiction{
        "count", str("as many steps must be timed as were asked for, ", timed.asked, "; got ", timed.count)};
  if (Objection found = check_order(timed)) return found;
  const auto slack = static_cast<int64_t>(limits.clock_slack_s * 1e9);
  if (timed.begin_ns < timed.sent_ns - slack || timed.end_ns > timed.received_ns + slack)
    return Contradiction{
        "clock",
        str("steps must lie between the request and its answer; the first began ",
            text_of(seconds(timed.begin_ns - timed.sent_ns)), " after the request and the last ended ",
            text_of(seconds(timed.received_ns - timed.end_ns)), " before the answer")};
  const int64_t updates = trains(phase) ? timed.count : 0;
  if (timed.updates - updates_before != updates)
    return Contradiction{"updates", str("the optimiser must have made one update a step, ", updates, "; got ",
                                        timed.updates - updates_before)};
  if (trains(phase) && !timed.loss)
    return Contradiction{"loss", "the loss of the last step must be a finite number; got none"};
  if (phase == "infer" && !timed.output_sum)
    return Contradiction{"output", "the sum of the last step's outputs must be a finite number; got none"};
  if (window != Window::warm_up) {
    const double absolute = window == Window::first_step ? limits.uncovered_first_s : limits.uncovered_s;
    if (Objection found = check_window(timed, seen, absolute, limits)) return found;
  }
  // Waiting for a core counts as use: a busy machine is no dishonesty.
  const double claimed = covered_s(timed), used = seen.cpu_s + std::max(0.0, seen.delay_s);
  if (device == "cpu" && claimed >= limits.measurable_s && used < limits.least_cpu_share * claimed)
    return Contradiction{"idle", str("steps on the CPU must use it; the driver says ", text_of(claimed),
                                     " of steps, and its processes used ", text_of(seen.cpu_s))};
  return {};
}

// The two regions do the same work, one with a wait after each step and one without. A step without the wait may be
// faster, but not by more than overlap explains, nor slower by much, nor with much less processor time.
Objection check_regions(const Timed& throughput, const Witness& seen_throughput, const Timed& latency,
                        const Witness& seen_latency, const std::string& device, const HonestyLimits& limits,
                        bool in_bursts) {
  const double fast = mean_step_s(throughput),
               slow = in_bursts ? mean_step_s(latency) : median_step_s(latency);
  const bool cpu = device == "cpu";
  const double least = cpu ? limits.least_throughput : limits.least_throughput_gpu;
  if (fast < least * slow)
    return Contradiction{"regions",
                         str("a step of the throughput region cannot take less than ", least,
                             " of one that is synchronised; got ", text_of(fast), " and ", text_of(slow))};
  const double count = static_cast<double>(throughput.count);
  const double active = covered_s(throughput) - std::max(0.0, seen_throughput.delay_s);
  if (covered_s(throughput) >= limits.measurable_s && active > limits.most_throughput * slow * count)
    return Contradiction{"regions",
                         str("a step of the throughput region cannot take more than ", limits.most_throughput,
                             " times one that is synchronised; got ", text_of(fast), " and ", text_of(slow))};
  // Steps can't have used more than all their cores for as long as they took: the rest was used around them.
  const double used_latency = std::min(seen_latency.cpu_s, limits.cores * covered_s(latency));
  const double work_throughput = seen_throughput.cpu_s / count;
  const double work_latency = used_latency / static_cast<double>(latency.count);
  if (cpu && used_latency >= limits.measurable_s && seen_throughput.cpu_s >= 0 &&
      work_latency * count >= limits.measurable_s && work_throughput < limits.least_work * work_latency)
    return Contradiction{
        "work", str("a step must be the same work in both regions; its processes used ",
                    text_of(work_throughput), " of processor time a step of the throughput region and ",
                    text_of(work_latency), " a synchronised one")};
  return {};
}

Objection check_first_step(const Timed& timed, const std::optional<double>& loss,
                           const std::optional<double>& output_sum, int64_t numbers,
                           const std::string& precision) {
  const Tolerance allowed = tolerance(precision);
  constexpr double kMost = 0.3;
  if (loss && timed.loss &&
      std::abs(*timed.loss - *loss) >
          std::min(kMost, kBothRound * allowed.loss) * std::max(1e-3, std::abs(*loss)))
    return Contradiction{"network",
                         str("the network that is timed must be the one of the gate; its first loss is ",
                             *timed.loss, ", and the reference's ", *loss)};
  if (output_sum && timed.output_sum &&
      std::abs(*timed.output_sum - *output_sum) >
          kBothRound * allowed.outputs * std::max(static_cast<double>(numbers), std::abs(*output_sum)))
    return Contradiction{
        "network", str("the network that is timed must be the one of the gate; the outputs of its first "
                       "batch add up to ",
                       *timed.output_sum, ", and the reference's to ", *output_sum)};
  return {};
}

ResultsWatch::ResultsWatch(std::string phase, int64_t turns, std::string precision)
    : phase_(std::move(phase)), precision_(std::move(precision)), turns_(std::max<int64_t>(1, turns)) {}

void ResultsWatch::expect(double sum, int64_t numbers) {
  reference_ = sum;
  slack_ = kBothRound * tolerance(precision_).outputs * static_cast<double>(numbers);
}

Objection ResultsWatch::add(const Timed& timed) {
  if (phase_ == "load") return {};  // check_samples looks at its batches
  if (trains(phase_)) {
    if (timed.loss) losses_.push_back(*timed.loss);
    const bool stuck = losses_.size() >= 3 && std::all_of(losses_.begin(), losses_.end(), [&](double loss) {
                         return loss == losses_.front();
                       });
    if (stuck)
      return Contradiction{"loss", str("the loss must move while the network is trained; it was ",
                                       losses_.front(), " at the end of ", losses_.size(), " regions")};
    return {};
  }
  // After whole rounds of the batches the last input is the same one, whichever way the driver counts on.
  if (!timed.output_sum || timed.asked % turns_ != 0) return {};
  const double got = *timed.output_sum;
  const double share = precision_ == "f32" || precision_ == "f64" ? 1e-3 : 5e-2;
  const auto is_near = [&](double other, double slack) {
    return std::abs(got - other) <= std::max(slack, share * std::max({1.0, std::abs(other), std::abs(got)}));
  };
  if (reference_ && !is_near(*reference_, slack_))
    return Contradiction{
        "output", str("the outputs of the last batch must add up to what the reference's do, ", *reference_,
                      "; got ", got)};
  if (!sum_) sum_ = got;
  if (is_near(*sum_, 0)) return {};
  return Contradiction{"output",
                       str("equal inputs must give equal sums of outputs; got ", *sum_, " and then ", got)};
}

namespace {

/// Metrics that a driver tells: those of the workload and no others, each within its range; `where`: "in epoch 3".
Objection check_metrics(const std::map<std::string, double>& told, const std::vector<std::string>& metrics,
                        const std::string& where) {
  for (const auto& [name, value] : told) {
    if (std::find(metrics.begin(), metrics.end(), name) == metrics.end())
      return Contradiction{"metrics", str("only the workload's metrics may be told; got ",
                                          io::one_line(name, 60), " ", where)};
    if (value < 0 || (name == "accuracy" && value > 1))
      return Contradiction{
          name, str("an accuracy must be within 0 and 1, and any other metric not negative; got ", value,
                    " as ", name, " ", where)};
  }
  return {};
}

/// Further tests: all of them with all metrics, or none.
Objection check_tests(const Fitted& fit, const std::vector<std::string>& metrics,
                      const std::vector<std::string>& parts) {
  if (fit.tests.empty()) return {};
  for (const auto& [part, told] : fit.tests) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      return Contradiction{"tests",
                           str("only parts of the data may be tested; got ", io::one_line(part, 60))};
    if (Objection found = check_metrics(told, metrics, "of " + part)) return found;
  }
  for (const std::string& part : parts)
    for (const std::string& name : metrics)
      if (!fit.tests.contains(part) || !fit.tests.at(part).contains(name))
        return Contradiction{"tests",
                             str("every further part must be tested, or none; got no ", name, " of ", part)};
  return {};
}

}  // namespace

// As check_region, for whole epochs: in order, on the lab's clock, as many as asked for or stopped by the cap,
// filling the window; and the confusion matrix must say what the last accuracy says.
Objection check_fit(const Fitted& fit, const std::vector<std::string>& metrics, int64_t epochs, double cap_s,
                    int64_t tests, const Witness& seen, const HonestyLimits& limits,
                    const std::vector<std::string>& parts) {
  const auto slack = static_cast<int64_t>(limits.clock_slack_s * 1e9);
  int64_t last = fit.sent_ns - slack;
  double covered = 0;
  for (size_t i = 0; i < fit.epochs.size(); ++i) {
    const FitEpoch& e = fit.epochs[i];
    if (e.epoch != static_cast<int64_t>(i) + 1)
      return Contradiction{"count", str("epochs must come in order; got epoch ", e.epoch, " after ", i)};
    if (e.begin_ns < last || e.train_end_ns <= e.begin_ns || e.end_ns < e.train_end_ns)
      return Contradiction{
          "order", str("the times of epoch ", e.epoch, " must come one after the other; got ", e.begin_ns,
                       ", ", e.train_end_ns, ", ", e.end_ns, " after ", last)};
    if (e.end_ns > e.received_ns + slack)
      return Contradiction{"clock", str("epoch ", e.epoch, " must have ended before it is reported; it ends ",
                                        text_of(seconds(e.end_ns - e.received_ns)), " later")};
    if (tests > 0)
      for (const std::string& name : metrics)
        if (!e.test_metrics.contains(name))
          return Contradiction{
              "metrics", str("every metric of the workload must be measured on the test; epoch ", e.epoch,
                             " has no ", name)};
    for (const auto* all : {&e.metrics, &e.test_metrics})
      if (Objection found = check_metrics(*all, metrics, str("in epoch ", e.epoch))) return found;
    last = e.end_ns;
    covered += seconds(e.end_ns - e.begin_ns);
  }
  const auto count = static_cast<int64_t>(fit.epochs.size());
  if (count == 0 || (!fit.capped && count != epochs) || count > epochs)
    return Contradiction{"count",
                         str(epochs, " epochs were asked for; got ", count, fit.capped ? ", capped" : "")};
  if (fit.capped && covered < 0.95 * cap_s)
    return Contradiction{"cap", str("training may stop early only after ", text_of(cap_s),
                                    "; it stopped after ", text_of(covered))};
  if (Objection found = check_tests(fit, metrics, parts)) return found;
  const double window = seconds(fit.received_ns - fit.sent_ns);
  // Further tests come after the last epoch, each about as long as that one's.
  const double test_s = seconds(fit.epochs.back().end_ns - fit.epochs.back().train_end_ns);
  const double allowed = limits.uncovered_share * window + limits.uncovered_first_s +
                         std::max(0.0, seen.delay_s) +
                         static_cast<double>(fit.tests.size()) * (2 * test_s + 0.5);
  if (window - covered > allowed)
    return Contradiction{"window",
                         str("the epochs must fill the time between request and answer; the driver says ",
                             text_of(covered), " and the lab saw ", text_of(window))};
  const double used = seen.cpu_s + std::max(0.0, seen.delay_s);
  if (covered >= limits.measurable_s && used < limits.least_cpu_share * covered)
    return Contradiction{"idle", str("epochs on the CPU must use it; the driver says ", text_of(covered),
                                     " of epochs, and its processes used ", text_of(seen.cpu_s))};
  if (tests > 0 && !fit.confusion.empty()) {
    int64_t all = 0, right = 0;
    for (size_t i = 0; i < fit.confusion.size(); ++i)
      for (size_t j = 0; j < fit.confusion[i].size(); ++j) {
        all += fit.confusion[i][j];
        if (i == j) right += fit.confusion[i][j];
      }
    if (all != tests)
      return Contradiction{"confusion",
                           str("the confusion matrix must count every test sample, ", tests, "; got ", all)};
    const auto& last = fit.epochs.back().test_metrics;
    const double said = last.contains("accuracy") ? last.at("accuracy") : -1,
                 counted = static_cast<double>(right) / static_cast<double>(all);
    if (std::abs(said - counted) > 1e-4)
      return Contradiction{"confusion", str("the confusion matrix must agree with the last test accuracy, ",
                                            said, "; it gives ", counted)};
  }
  return {};
}

}  // namespace tandem::lab
