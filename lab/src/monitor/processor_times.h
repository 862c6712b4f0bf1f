// How busy each core was, from /proc/stat. Paper 003 defines (equations 1 and 2) the utilisation of a core as its active
// time / all time · 100, and that of the machine as the mean over its cores.
//
// Active is user + nice + system + irq + softirq; idle and iowait are not, and neither is steal: then the hypervisor ran
// somebody else on the core. All time is the sum of these eight. Guest time is contained in user time already.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/src/monitor/kept_file.h"

namespace tandem::lab {

/// Counters of one core since the machine started, in ticks of the clock (usually 10 ms).
struct CoreTimes {
  int core = 0;
  int64_t active = 0, total = 0, steal = 0;
};

struct ProcessorTimes {
  std::vector<CoreTimes> cores;    // those that are online
  std::optional<int64_t> forks;    // processes and threads made since the machine started
  std::optional<int64_t> running;  // threads that run or are ready to, now
};

/// Reads the text of /proc/stat. Lines that are not as expected are left out.
void parse_processor_times(std::string_view text, ProcessorTimes& times);

/// Ticks of one core over some time.
struct CoreSum {
  int64_t active = 0, total = 0, steal = 0;
  /// Equation 2. `total` must not be 0.
  double percent() const { return 100.0 * static_cast<double>(active) / static_cast<double>(total); }
};
using CoreSums = std::vector<std::pair<int, CoreSum>>;  // by number of the core

/// Sums the differences between readings, core by core, so that cores may come and go in between.
class CoreUsage {
 public:
  /// Adds what happened since the reading before; the first one only starts the count.
  void add(const ProcessorTimes& times);
  /// Since the first reading. Here and below: only cores whose clock ticked.
  CoreSums all() const;
  /// Since the last call of this function.
  CoreSums take_piece();

 private:
  struct Core {
    CoreTimes last;
    int64_t seen_at = 0;  // the number of the reading at which the core was last there
    CoreSum all, piece;
  };
  std::map<int, Core> cores_;
  int64_t readings_ = 0;
};

/// Equation 1: the mean over the cores, or none where there are none.
std::optional<double> mean_percent(const CoreSums& cores);

}  // namespace tandem::lab
