#include "lab/src/measure/disturbance.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lab/src/measure/gatekeeper.h"
#include "lab/src/measure/honesty.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

/// "others: other processes used 0.98 of the driver's cores …", where seconds of them lie beyond so many cores.
void judge_use(std::vector<std::string>& lines, const std::string& begin, const char* when,
               const std::optional<double>& used_s, double seconds, double most_cores, double coarse_s) {
  if (!used_s || !(seconds > 0) || *used_s <= most_cores * seconds + coarse_s) return;
  lines.push_back(str(begin, shown(*used_s / seconds), " cores ", when, ", and ", shown(most_cores),
                      " is the most that a time can bear"));
}

void judge_calibration(std::vector<std::string>& lines, const char* when,
                       const std::optional<Calibration>& loop, double fastest_s,
                       const DisturbanceLimits& limits) {
  if (!loop) return;
  if (loop->core_share < limits.core_share)
    lines.push_back(str("calibration: a loop ", when, " the run got ", percent(loop->core_share),
                        " of its core, less than ", percent(limits.core_share)));
  else if (loop->seconds > limits.slowdown * fastest_s)
    lines.push_back(str("calibration: a loop ", when, " the run took ", shown(loop->seconds / fastest_s),
                        " times as long as at best, more than ", shown(limits.slowdown)));
}

/// A number with its source, or why there is none.
void put(Run& run, const std::string& name, const std::optional<double>& value, const std::string& source,
         const std::string& why) {
  if (value) {
    run.metrics[name] = *value;
    run.sources[name] = source;
  } else {
    run.unavailable[name] = why;
  }
}

std::optional<double> share(const std::optional<double>& part, double whole) {
  return part && whole > 0 ? std::optional(*part / whole) : std::nullopt;
}

constexpr const char* kNotTimed = "the run ended before its steps were timed";

void put_numbers(Run& run, const Observed& seen) {
  const auto why = [](const Beside& beside, const std::string& reason) {
    return beside.seconds > 0 ? reason : std::string(kNotTimed);
  };
  const std::string of_driver = "/proc/stat less /proc/PID/stat of the driver",
                    of_lab = "/proc/stat less /proc/PID/stat of the lab and its drivers";
  const Beside &timed = seen.timed, &whole = seen.whole;
  put(run, "machine.others_cores", share(timed.others_s, timed.seconds), of_driver,
      why(timed, timed.no_others));
  put(run, "machine.run_others_cores", share(whole.others_s, whole.seconds), of_lab, whole.no_others);
  put(run, "machine.stolen_cores", share(timed.stolen_s, timed.seconds), "/proc/stat",
      why(timed, timed.no_others));
  auto pressure = share(timed.pressure_s, timed.seconds), wait = share(seen.wait_s, timed.seconds);
  if (pressure) *pressure *= 100;
  if (wait) *wait *= 100;
  put(run, "machine.pressure_percent", pressure, "/proc/pressure/cpu", why(timed, timed.no_pressure));
  put(run, "machine.wait_percent", wait, "/proc/PID/task/TID/schedstat",
      why(timed, "the kernel does not count it in /proc/PID/task/TID/schedstat"));
  if (!run.metrics.contains("machine.runnable_others"))  // the monitor's
    run.unavailable.try_emplace("machine.runnable_others", kNotTimed);
  for (const auto& [loop, when] : {std::pair(&seen.before, "before"), std::pair(&seen.after, "after")}) {
    const std::string none = "no loop was run";
    put(run, str("machine.calibration_", when, "_s"), *loop ? std::optional((*loop)->seconds) : std::nullopt,
        "CLOCK_MONOTONIC", none);
    put(run, str("machine.core_share_", when), *loop ? std::optional((*loop)->core_share) : std::nullopt,
        "CLOCK_THREAD_CPUTIME_ID", none);
  }
}

}  // namespace

std::vector<std::string> disturbances(const Observed& seen, const DisturbanceLimits& limits) {
  std::vector<std::string> lines;
  const std::string others = "others: other processes used ", stolen = "stolen: the hypervisor took ";
  const char *in_timed = "while the steps were timed", *in_run = "during the run";
  for (const auto& [beside, when] : {std::pair(&seen.timed, in_timed), std::pair(&seen.whole, in_run)}) {
    const size_t before = lines.size();
    judge_use(lines, others, when, beside->others_s, beside->seconds, limits.others_cores, limits.coarse_s);
    judge_use(lines, stolen, when, beside->stolen_s, beside->seconds, limits.stolen_cores, limits.coarse_s);
    if (lines.size() > before) break;  // the whole run says no more
  }
  judge_calibration(lines, "before", seen.before, seen.fastest_s, limits);
  judge_calibration(lines, "after", seen.after, seen.fastest_s, limits);
  return lines;
}

void settle(Run& run, const Observed& seen, const DisturbanceLimits& limits, bool keep) {
  put_numbers(run, seen);
  DisturbanceLimits held = limits;
  // What reads the disk for a driver is the kernel, whose threads are not the driver's.
  if (storage_of(run.condition) == "disk") held.others_cores = std::numeric_limits<double>::infinity();
  for (const std::string& line : disturbances(seen, held))
    run.disturbed += (run.disturbed.empty() ? "" : "; ") + line;
  if (run.disturbed.empty()) return;
  const std::string rule = run.why.substr(0, run.why.find(':'));
  if (run.status == Status::dishonest && is_of_time(rule)) {
    run.status = Status::disturbed;
    run.why = str(run.disturbed, "; the rule '", rule, "' is not held against a driver then (", run.why, ")");
  } else if (run.status == Status::ok && !keep) {
    run.status = Status::disturbed;
    run.why = run.disturbed;
  }
}

MachineWatch::MachineWatch(std::vector<int> cores_, DisturbanceLimits limits_, bool keep_)
    : cores(std::move(cores_)), surroundings(cores), limits(limits_), keep(keep_) {}

RunWatch::RunWatch(MachineWatch* machine) : machine_(machine) {
  if (!machine_) return;
  seen_.before = calibrate(machine_->cores);
  whole_begun_ = machine_->surroundings.read(::getpid());
}

void RunWatch::close(std::optional<MachineCounters>& begun, pid_t ours, Beside& sum) {
  if (!begun) return;
  sum += between(*begun, machine_->surroundings.read(ours));
  begun.reset();
}

void RunWatch::pause() { close(whole_begun_, ::getpid(), seen_.whole); }

void RunWatch::resume() {
  if (machine_) whole_begun_ = machine_->surroundings.read(::getpid());
}

void RunWatch::begin_timed(pid_t driver) {
  driver_ = driver;
  if (machine_) timed_begun_ = machine_->surroundings.read(driver);
}

void RunWatch::end_timed() { close(timed_begun_, driver_, seen_.timed); }

void RunWatch::add_wait(std::optional<double> seconds) {
  if (!any_wait_)
    seen_.wait_s = seconds;
  else if (seen_.wait_s && seconds)
    *seen_.wait_s += *seconds;
  else
    seen_.wait_s.reset();
  any_wait_ = true;
}

void RunWatch::end(Run& run) {
  if (!machine_) return;
  end_timed();
  pause();
  seen_.after = calibrate(machine_->cores);
  machine_->fastest_s = std::min({machine_->fastest_s, seen_.before->seconds, seen_.after->seconds});
  seen_.fastest_s = machine_->fastest_s;
  settle(run, seen_, machine_->limits, machine_->keep);
}

}  // namespace tandem::lab
