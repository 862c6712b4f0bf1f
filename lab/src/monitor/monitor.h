// The monitor: watches the machine and the process tree of a driver from a thread of the lab's process, so that what it
// costs can be measured (and is: monitor.percent). Names and units of its numbers stand in lab/docs/metrics.md, what it
// reads from where in lab/docs/monitors.md.
//
//   Monitor monitor({.pid = driver, .interval_s = 0.1, .gpu = 0});
//   monitor.start();
//   monitor.begin_window();
//   … the timed steps …
//   MonitorReport report = monitor.end_window();
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

struct NvmlFunctions;

struct MonitorOptions {
  pid_t pid = 0;             // the root of the tree; 0: the machine alone is watched
  double interval_s = 0.1;   // between readings; what takes long is read less often
  std::optional<int> gpu{};  // N of cuda:N; none: no GPU is watched
  /// The most of one core that readings may take. Where they would take more, they are made less often, and a note says
  /// so.
  double share = 0.008;
  // Where things are; tests put others in their place.
  std::string proc = "/proc", sys = "/sys", nvml = "libnvidia-ml.so.1";
  const NvmlFunctions* nvml_functions = nullptr;  // used instead of the library
};

/// What a window gave. Every number that the monitor has a name for is in `metrics` with its source, or in `unavailable`
/// with the reason: never zero because it could not be read.
struct MonitorReport {
  double seconds = 0;  // length of the window
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> sources;  // by metric: the file or the function of a library
  std::map<std::string, std::string> unavailable;
  std::vector<Trace> traces;       // at most 300 points each; seconds since begin_window
  std::vector<std::string> notes;  // readings made less often, a process that ended, a GPU that was throttled
};

class Monitor {
 public:
  /// Finds the sensors. Throws Error for an interval or a share that makes no sense; nothing that is missing on the
  /// machine is an error.
  explicit Monitor(const MonitorOptions& options);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Starts the thread. It sleeps while no window is open.
  void start();
  /// Opens a window; returns when the first readings are made. A window that is open is thrown away.
  void begin_window();
  /// Makes the last readings and closes the window.
  MonitorReport end_window();

  /// For waiting until the machine is cool: degrees Celsius of the GPU where one is watched, or of the processor; none where
  /// that cannot be read. Works before start() and from any thread.
  std::optional<double> current_temperature() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::lab
