// What a window's readings become: metrics with their sources, reasons where there are none, and curves.
#include <algorithm>
#include <cstdio>

#include "lab/src/monitor/sampler.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr size_t kCorePoints = 64 * kTracePoints;  // of all cores' curves together
constexpr double kLateChild = 0.5;     // seconds after which a new child is found late enough to be told
constexpr double kTickSeconds = 0.01;  // the clock of /proc/PID/stat

/// NVML: "sample period may be between 1 second and 1/6 second, depending on the product".
constexpr double kUtilisationPeriod = 1.0 / 3;

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void put(MonitorReport& report, const std::string& name, double value, const std::string& source) {
  report.metrics[name] = value;
  report.sources[name] = source;
}

/// Mean and peak, or the mean alone where there is no name for the peak.
void put_series(MonitorReport& report, const Series& series, const std::string& source,
                const std::string& why, const std::string& mean_name, const std::string& peak_name = "") {
  if (series.empty()) {
    report.unavailable[mean_name] = why;
    if (!peak_name.empty()) report.unavailable[peak_name] = why;
    return;
  }
  put(report, mean_name, series.mean(), source);
  if (!peak_name.empty()) put(report, peak_name, series.peak(), source);
}

void put_trace(MonitorReport& report, const Series& series, const std::string& metric,
               const std::string& unit, const std::string& source, size_t limit = kTracePoints) {
  if (!series.empty()) report.traces.push_back(series.trace(metric, unit, source, limit));
}

std::string too_short(double seconds) {
  return str("the window of ", decimals(1e3 * seconds, 1),
             " ms is shorter than the ticks in which the kernel counts");
}

std::string stood_still(double seconds) {
  return str("the counter did not move within the window of ", decimals(1e3 * seconds, 1), " ms");
}

std::string or_else(const std::string& text, const std::string& otherwise) {
  return text.empty() ? otherwise : text;
}

}  // namespace

MonitorReport Sampler::end() {
  MonitorReport report;
  const double now = now_s();
  const double spent = thread_cpu_s() - window_.cpu_begin;
  std::vector<int64_t> readings;
  for (const Pace& pace : paces_) readings.push_back(pace.readings);
  for (Pace& pace : paces_) run(pace);
  for (size_t i = 0; i < paces_.size(); ++i) paces_[i].readings = readings[i];

  report.seconds = now - window_.begin;
  report_processor(report, report.seconds);
  report_tree(report);
  report_sensors(report);
  report_gpu(report);
  report_paces(report, report.seconds);
  if (report.seconds > 0)
    put(report, "monitor.percent", 100 * spent / report.seconds, "CLOCK_THREAD_CPUTIME_ID");
  else
    report.unavailable["monitor.percent"] = "the window has no length";
  return report;
}

void Sampler::report_processor(MonitorReport& report, double seconds) const {
  const std::string& source = stat_.path();
  const CoreSums cores = window_.cores.all();
  const std::string why = !stat_.is_open()       ? why_unreadable(source, stat_.error())
                          : times_.cores.empty() ? str("'", source, "' has no line of a core")
                                                 : too_short(seconds);
  if (const auto mean = mean_percent(cores)) {
    put(report, "cpu.percent", *mean, source);
    double most = 0;
    for (const auto& [core, sum] : cores) most = std::max(most, sum.percent());
    put(report, "cpu.core_max_percent", most, source);
  } else {
    report.unavailable["cpu.percent"] = report.unavailable["cpu.core_max_percent"] = why;
  }
  put_trace(report, window_.cpu_percent, "cpu.percent", "%", source);
  const size_t limit =
      std::clamp<size_t>(kCorePoints / std::max<size_t>(window_.core_percent.size(), 1), 30, kTracePoints);
  for (const auto& [core, series] : window_.core_percent)
    put_trace(report, series, str("cpu.core", core, "_percent"), "%", source, limit);

  int64_t stolen = 0, total = 0;
  for (const auto& [core, sum] : cores) stolen += sum.steal, total += sum.total;
  if (stolen * 100 > total)
    report.notes.push_back(str("the hypervisor took ",
                               decimals(100.0 * static_cast<double>(stolen) / static_cast<double>(total), 1),
                               " % of the processor's time for others (steal)"));
}

void Sampler::report_tree(MonitorReport& report) const {
  const std::string folder = options_.proc + "/PID/";
  const std::string none = tree_ ? or_else(tree_->why(), "no reading") : "no process is watched";
  const std::string no_pss = tree_ ? or_else(window_.pss_why, none.c_str()) : none;
  put_series(report, window_.rss, folder + "stat", none, "rss.mean_mib", "rss.peak_mib");
  put_series(report, window_.pss, folder + "smaps_rollup", no_pss, "pss.mean_mib", "pss.peak_mib");
  put_series(report, window_.runnable_others, options_.proc + "/stat less " + folder + "task/TID/stat",
             or_else(window_.runnable_why, none), "machine.runnable_others");
  put_trace(report, window_.rss, "rss", "MiB", folder + "stat");
  put_trace(report, window_.pss, "pss", "MiB", folder + "smaps_rollup");

  const Counter& cpu = window_.tree_cpu;
  if (cpu.first && cpu.seconds() >= 2 * kTickSeconds) {
    put(report, "cpu.tree_percent", 100 * cpu.grown() / cpu.seconds(), folder + "stat");
    Trace trace = cpu.rate.trace("cpu.tree_percent", "%", folder + "stat");
    for (double& value : trace.values) value *= 100;
    if (!trace.values.empty()) report.traces.push_back(std::move(trace));
  } else {
    report.unavailable["cpu.tree_percent"] = !cpu.first ? none : too_short(cpu.seconds());
  }
  if (tree_ && window_.root_ended_at)
    report.notes.push_back(str("process ", options_.pid, " ended ", decimals(*window_.root_ended_at, 2),
                               " s after the window began: its numbers cover the time until then"));
}

void Sampler::report_sensors(MonitorReport& report) const {
  put_series(report, window_.cpu_temperature, cpu_temperature_.source(),
             or_else(cpu_temperature_.why(), "the sensor did not answer"), "cpu.temperature_c");
  put_trace(report, window_.cpu_temperature, "cpu.temperature_c", "°C", cpu_temperature_.source());
  const Counter& energy = window_.cpu_energy;
  if (energy.first && cpu_energy_.why().empty() && energy.grown() > 0) {
    put(report, "cpu.energy_j", energy.grown(), cpu_energy_.source());
    put_trace(report, energy.rate, "cpu.power_w", "W", cpu_energy_.source());
  } else {
    report.unavailable["cpu.energy_j"] = or_else(cpu_energy_.why(), stood_still(report.seconds));
  }
}

void Sampler::report_gpu(MonitorReport& report) const {
  const Window& w = window_;
  const auto why = [&](const GpuSeries& one) { return gpu_ ? one.why : gpu_why_; };
  const auto both = [&](const GpuSeries& one, const std::string& metric, const std::string& unit) {
    put_series(report, one.series, one.source, why(one), metric);
    put_trace(report, one.series, metric, unit, one.source);
  };
  if (gpu_ && report.seconds < kUtilisationPeriod)
    report.unavailable["gpu.percent"] =
        str("the window of ", decimals(1e3 * report.seconds, 1),
            " ms is shorter than the time over which the driver takes the mean");
  else
    both(w.gpu_percent, "gpu.percent", "%");
  both(w.gpu_temperature, "gpu.temperature_c", "°C");
  both(w.gpu_power, "gpu.power_w", "W");
  put_series(report, w.gpu_memory.series, w.gpu_memory.source, why(w.gpu_memory), "gpu.memory_mean_mib",
             "gpu.memory_peak_mib");
  put_trace(report, w.gpu_memory.series, "gpu.memory", "MiB", w.gpu_memory.source);
  const std::string tree_why = gpu_ && !tree_ ? "no process is watched" : why(w.gpu_tree_memory);
  put_series(report, w.gpu_tree_memory.series, w.gpu_tree_memory.source, tree_why, "gpu.tree_memory_mean_mib",
             "gpu.tree_memory_peak_mib");
  put_trace(report, w.gpu_tree_memory.series, "gpu.tree_memory", "MiB", w.gpu_tree_memory.source);

  const Counter& energy = w.gpu_energy;
  const Series& power = w.gpu_power.series;
  if (energy.first && energy.grown() > 0)
    put(report, "gpu.energy_j", energy.grown(), "nvmlDeviceGetTotalEnergyConsumption");
  else if (gpu_ && !energy.first && power.readings() >= 2)
    put(report, "gpu.energy_j", power.mean() * report.seconds, "nvmlDeviceGetPowerUsage, summed over time");
  else
    report.unavailable["gpu.energy_j"] = !gpu_                 ? gpu_why_
                                         : !energy.first       ? w.gpu_energy_why
                                         : energy.grown() == 0 ? stood_still(report.seconds)
                                                               : "the GPU's counter of energy went backwards";
  if (!w.throttling.empty()) {
    std::string names;
    for (const std::string& name : w.throttling) names += (names.empty() ? "" : ", ") + name;
    report.notes.push_back("the GPU's clocks were held down: " + names);
  }
}

void Sampler::report_paces(MonitorReport& report, double seconds) const {
  for (const Pace& pace : paces_) {
    // A window that holds a few readings only says nothing about how often they are made.
    const double actual = seconds / static_cast<double>(pace.readings + 1);
    if (actual < 1.5 * pace.wanted_s || seconds < 3 * pace.wanted_s) continue;
    if (pace.read == &Sampler::read_children && actual < kLateChild) continue;
    report.notes.push_back(str(pace.what, ": read every ", decimals(actual, 2), " s instead of every ",
                               decimals(pace.wanted_s, 2), " s, because one reading takes ",
                               decimals(1e3 * pace.cost_s.value_or(0), 2), " ms of processor time"));
  }
}

}  // namespace tandem::lab
