// Reading /proc/stat, /proc/pressure/cpu and our own process tree.
#include "lab/src/monitor/surroundings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lab/src/monitor/kept_file.h"
#include "lab/src/monitor/process_tree.h"
#include "lab/src/monitor/processor_times.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// "0,4" or "0-1,8".
std::vector<int> cores_of_list(std::string_view text) {
  std::vector<int> cores;
  while (const auto first = take_number(text)) {
    int64_t last = *first;
    if (text.starts_with("-")) {
      text.remove_prefix(1);
      last = take_number(text).value_or(last);
    }
    for (int64_t core = *first; core <= last && core - *first < 4096; ++core)
      cores.push_back(static_cast<int>(core));
    if (text.starts_with(",")) text.remove_prefix(1);
  }
  return cores;
}

/// The line "some avg10=… total=N", N in microseconds.
std::optional<double> some_pressure_s(const std::string& text) {
  const size_t line = text.find("some ");
  const size_t at = line == std::string::npos ? line : text.find("total=", line);
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(text).substr(at + 6);
  const auto total = take_number(rest);
  return total ? std::optional(static_cast<double>(*total) / 1e6) : std::nullopt;
}

void add(std::optional<double>& sum, const std::optional<double>& more) {
  if (sum && more)
    *sum += *more;
  else
    sum.reset();
}

/// Counters may seem to go back by a tick: that is nothing.
std::optional<double> grown(const std::optional<double>& before, const std::optional<double>& after) {
  if (!before || !after) return std::nullopt;
  return std::max(0.0, *after - *before);
}

}  // namespace

Beside& Beside::operator+=(const Beside& more) {
  if (seconds == 0) return *this = more;
  seconds += more.seconds;
  add(others_s, more.others_s);
  add(stolen_s, more.stolen_s);
  add(pressure_s, more.pressure_s);
  if (no_others.empty()) no_others = more.no_others;
  if (no_pressure.empty()) no_pressure = more.no_pressure;
  return *this;
}

Surroundings::Surroundings(std::vector<int> cores, std::string proc, const std::string& sys)
    : cores_(std::move(cores)), proc_(std::move(proc)) {
  for (const int core : std::vector<int>(cores_))
    for (const int sibling : cores_of_list(
             read_small(str(sys, "/devices/system/cpu/cpu", core, "/topology/thread_siblings_list"))))
      if (std::find(cores_.begin(), cores_.end(), sibling) == cores_.end()) cores_.push_back(sibling);
}

MachineCounters Surroundings::read(pid_t root) const {
  MachineCounters out;
  const std::string stat = proc_ + "/stat", pressure = proc_ + "/pressure/cpu";
  ReadBuffer buffer;
  const KeptFile kept(stat);
  ProcessorTimes times;
  int error = kept.error();
  if (const auto text = kept.is_open() ? kept.read(buffer, &error) : std::nullopt)
    parse_processor_times(*text, times);
  out.at_s = now_s();
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  double active = 0, stolen = 0;
  bool any = false;
  for (const CoreTimes& core : times.cores) {
    if (!cores_.empty() && std::find(cores_.begin(), cores_.end(), core.core) == cores_.end()) continue;
    any = true;
    active += static_cast<double>(core.active) / ticks;
    stolen += static_cast<double>(core.steal) / ticks;
  }
  if (any) {
    out.active_s = active, out.stolen_s = stolen;
    ProcessTree tree(proc_, root);
    if (const auto ours = tree.read())
      out.ours_s = ours->cpu_s;
    else
      out.no_others = tree.why();
  } else {
    out.no_others =
        error ? why_unreadable(stat, error) : str("'", stat, "' does not name the driver's cores");
  }
  const KeptFile waiting(pressure);
  error = waiting.error();
  const auto text = waiting.is_open() ? waiting.read(buffer, &error) : std::nullopt;
  if (text) out.pressure_s = some_pressure_s(std::string(*text));
  if (!out.pressure_s)
    out.no_pressure = error ? why_unreadable(pressure, error) : str("'", pressure, "' has no line of 'some'");
  return out;
}

Beside between(const MachineCounters& before, const MachineCounters& after) {
  Beside out;
  out.seconds = after.at_s - before.at_s;
  const auto active = grown(before.active_s, after.active_s), ours = grown(before.ours_s, after.ours_s);
  if (active && ours) out.others_s = std::max(0.0, *active - *ours);
  out.stolen_s = grown(before.stolen_s, after.stolen_s);
  out.pressure_s = grown(before.pressure_s, after.pressure_s);
  out.no_others = before.no_others.empty() ? after.no_others : before.no_others;
  out.no_pressure = before.no_pressure.empty() ? after.no_pressure : before.no_pressure;
  return out;
}

}  // namespace tandem::lab
