// What the monitor reads and when, without the thread: the sources, a window's sums and curves, and the pace at which each
// source is read so that all of them together stay within the monitor's share of a core.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/src/monitor/monitor.h"
#include "lab/src/monitor/nvml.h"
#include "lab/src/monitor/process_tree.h"
#include "lab/src/monitor/processor_times.h"
#include "lab/src/monitor/sensors.h"
#include "lab/src/monitor/series.h"

namespace tandem::lab {

/// A number that grows, such as an energy: how much of it passed in the window, and its rate between readings.
struct Counter {
  std::optional<double> first, last;
  double first_at = 0, last_at = 0;  // seconds, monotonic
  double point_value = 0, point_at = 0;
  Series rate;  // a second

  /// Adds a reading; a rate is noted where `spacing` seconds passed since the last one noted.
  void add(double at, double value, double begin, double spacing);
  double grown() const { return *last - *first; }
  double seconds() const { return last_at - first_at; }
};

/// Readings of one GPU value, and why there are none.
struct GpuSeries {
  Series series;
  std::string source, why;
  void add(double at, const GpuValue& value, double scale);
};

class Sampler {
 public:
  explicit Sampler(const MonitorOptions& options);

  /// Opens a window: everything is read once, what is slow first, the counters last.
  void begin();
  /// Reads what is due. Returns when the next reading is (now_s()'s clock).
  double tick();
  /// Closes the window: everything is read once more, the counters first.
  MonitorReport end();
  std::optional<double> temperature() const;

 private:
  /// How often one source is read.
  struct Pace {
    const char* what;
    bool (Sampler::*read)();  // false: nothing needed to be read
    double wanted_s;
    double weight;  // of what the slow sources may take together; 0: one that is read at the interval
    std::optional<double> cost_s{};  // of processor time, a mean that forgets
    double due = 0;
    int64_t readings = 0;  // in the window
  };
  /// All that a window gathers.
  struct Window {
    double begin = 0, cpu_begin = 0;
    CoreUsage cores;
    double point_at = 0;
    Series cpu_percent;
    std::map<int, Series> core_percent;
    Counter tree_cpu, cpu_energy, gpu_energy;
    Series runnable_others;
    std::string runnable_why;
    Series rss{Series::Thin::peak}, pss{Series::Thin::peak}, cpu_temperature;
    std::string pss_why, gpu_energy_why;
    GpuSeries gpu_percent, gpu_memory, gpu_tree_memory, gpu_temperature, gpu_power;
    std::set<std::string> throttling;
    std::optional<double> root_ended_at;
  };

  bool read_processor();
  bool read_tree();
  bool read_energy();
  bool read_gpu();
  bool read_temperature();
  bool read_children();
  bool read_runnable();
  bool read_pss();
  bool read_gpu_slow();
  void run(Pace& pace);
  double at(double now) const;
  double period(const Pace& pace) const;

  void report_processor(MonitorReport& report, double seconds) const;
  void report_tree(MonitorReport& report) const;
  void report_sensors(MonitorReport& report) const;
  void report_gpu(MonitorReport& report) const;
  void report_paces(MonitorReport& report, double seconds) const;

  MonitorOptions options_;
  KeptFile stat_;
  ProcessorTimes times_;
  std::optional<int64_t> forks_, forks_at_search_;
  std::optional<ProcessTree> tree_;
  ProcessorTemperature cpu_temperature_;
  ProcessorEnergy cpu_energy_;
  std::unique_ptr<Gpu> gpu_;
  std::string gpu_why_;
  ReadBuffer buffer_;
  std::vector<Pace> paces_;  // the counters first
  Window window_;
};

}  // namespace tandem::lab
