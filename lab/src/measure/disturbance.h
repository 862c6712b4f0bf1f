// What else the machine did while a run was taken, and whether that was too much. lab/docs/method.md gives the limits and the
// reasons for them.
#pragma once

#include <sys/types.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/monitor/calibration.h"
#include "lab/src/monitor/surroundings.h"
#include "lab/src/record/record.h"

namespace tandem::lab {

/// The most that other work may do beside a run.
struct DisturbanceLimits {
  double others_cores = 0.1;  // used by other processes, of the driver's cores
  double stolen_cores = 0.1;  // taken by the hypervisor
  double coarse_s = 0.03;     // and so much besides: the kernel counts in ticks of 10 ms
  double core_share = 0.8;    // that the calibration loop must get of its core
  double slowdown = 1.3;      // of the calibration loop, against the fastest one of this sitting
};

/// All that was seen beside one run.
struct Observed {
  Beside timed,
      whole;  // while steps or epochs were timed; from the start of the driver to its end, without the gate
  std::optional<double>
      wait_s{};  // of the timed part: the longest that a thread of the driver waited for a core
  std::optional<Calibration> before{}, after{};
  double fastest_s = std::numeric_limits<double>::infinity();  // calibration loop of this sitting
};

/// What went beyond the limits, one line each: "others: …", "stolen: …", "calibration: …".
std::vector<std::string> disturbances(const Observed& seen, const DisturbanceLimits& limits);

/// Writes what was seen into the record as machine.*. Beyond the limits `disturbed` says so, and the status becomes disturbed: of a
/// run that ended well, unless such runs are kept; and of one that broke a rule of honesty that rests on time.
void settle(Run& run, const Observed& seen, const DisturbanceLimits& limits, bool keep);

/// What all runs of a sitting share.
struct MachineWatch {
  MachineWatch(std::vector<int> cores, DisturbanceLimits limits, bool keep);

  std::vector<int> cores;  // of the drivers
  Surroundings surroundings;
  DisturbanceLimits limits;
  bool keep;  // disturbed runs count as measured; nothing is decided by them
  double fastest_s = std::numeric_limits<double>::infinity();
};

/// Watches one run. Without a watch of the machine it does nothing.
class RunWatch {
 public:
  /// Calibrates, and begins.
  explicit RunWatch(MachineWatch* machine);
  /// The gate's processes run in between.
  void pause();
  void resume();
  /// `driver`: its process. What is not of it and what descends from it is others, the lab included.
  void begin_timed(pid_t driver);
  void end_timed();
  /// Of a timed region: none where the kernel does not tell.
  void add_wait(std::optional<double> seconds);
  /// Ends what is still open, calibrates, and settles the record.
  void end(Run& run);

 private:
  void close(std::optional<MachineCounters>& begun, pid_t ours, Beside& sum);

  MachineWatch* machine_;
  Observed seen_;
  std::optional<MachineCounters> whole_begun_, timed_begun_;
  pid_t driver_ = 0;  // of the timed part
  bool any_wait_ = false;
};

}  // namespace tandem::lab
