#include "lab/src/measure/energy.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tandem::lab {
namespace {

/// The part of a curve's area that lies before `until`, as a share of the whole. A curve holds rates: each value counts from
/// its time to the next one's.
double share_until(const Trace& trace, double until) {
  double whole = 0, part = 0;
  for (size_t i = 0; i + 1 < trace.seconds.size(); ++i) {
    const double begin = trace.seconds[i], length = trace.seconds[i + 1] - begin;
    const double mean = (trace.values[i] + trace.values[i + 1]) / 2;
    whole += mean * length;
    part += mean * std::clamp(until - begin, 0.0, length);
  }
  return whole > 0 ? part / whole : NAN;
}

std::optional<double> energy_of(const Run& run, const std::string& source, double until) {
  const auto energy = run.metrics.find(source + ".energy_j");
  if (energy == run.metrics.end()) return std::nullopt;
  for (const Trace& trace : run.traces)
    if (trace.metric == source + ".power_w" && trace.seconds.size() >= 2 &&
        trace.seconds.size() == trace.values.size())
      if (const double share = share_until(trace, until); std::isfinite(share)) return share * energy->second;
  return std::nullopt;
}

}  // namespace

std::optional<int> gpu_of(const std::string& device) {
  if (device.rfind("cuda", 0) != 0) return std::nullopt;
  return device.size() > 5 ? std::atoi(device.c_str() + 5) : 0;
}

void add_report(Run& run, const MonitorReport& report) {
  run.metrics.insert(report.metrics.begin(), report.metrics.end());
  run.unavailable.insert(report.unavailable.begin(), report.unavailable.end());
  run.sources.insert(report.sources.begin(), report.sources.end());
  run.notes.insert(run.notes.end(), report.notes.begin(), report.notes.end());
  run.traces.insert(run.traces.end(), report.traces.begin(), report.traces.end());
}

std::optional<double> energy_until(const Run& run, double seconds) {
  const bool gpu = gpu_of(run.condition.device).has_value();
  const std::optional<double> needed = energy_of(run, gpu ? "gpu" : "cpu", seconds);
  if (!needed || !gpu) return needed;
  return *needed + energy_of(run, "cpu", seconds).value_or(0);
}

void add_energy_per_step(Run& run, int64_t steps) {
  const std::string needed = gpu_of(run.condition.device) ? "gpu.energy_j" : "cpu.energy_j";
  const auto at = run.metrics.find(needed);
  if (at == run.metrics.end()) {
    const auto why = run.unavailable.find(needed);
    run.unavailable["step.energy_j"] =
        why != run.unavailable.end() ? why->second : "no energy counter can be read";
    return;
  }
  double joules = at->second;
  if (const auto cpu = run.metrics.find("cpu.energy_j"); needed != "cpu.energy_j" && cpu != run.metrics.end())
    joules += cpu->second;
  run.metrics["step.energy_j"] = joules / static_cast<double>(steps);
}

}  // namespace tandem::lab
