// What else the machine did while something was measured: processor time of others on the driver's cores, time that the
// hypervisor took, and the kernel's own account of waiting (PSI). Counters are read at both ends; nothing runs in between.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

/// What happened beside a measurement, in seconds summed over the cores. What the machine does not tell is absent, with the reason.
struct Beside {
  double seconds = 0;                  // how long it was watched
  std::optional<double> others_s{};    // processor time of processes that are not ours
  std::optional<double> stolen_s{};    // time in which the hypervisor ran somebody else
  std::optional<double> pressure_s{};  // time in which some task, ours or not, waited for a core
  std::string no_others{}, no_pressure{};

  Beside& operator+=(const Beside& more);
};

/// Counters since the machine started.
struct MachineCounters {
  double at_s = 0;
  std::optional<double> active_s{}, stolen_s{}, ours_s{}, pressure_s{};
  std::string no_others{}, no_pressure{};
};

class Surroundings {
 public:
  /// `cores`: those that drivers are pinned to; empty: all. The hardware threads that share a core with one of them are watched
  /// too.
  explicit Surroundings(std::vector<int> cores, std::string proc = "/proc", const std::string& sys = "/sys");

  /// `root`: the process that, with all that descend from it, is ours. What these do on cores that are not watched is taken for
  /// work on those that are, so the fewer they are the better: while a driver works, the driver.
  MachineCounters read(pid_t root) const;

 private:
  std::vector<int> cores_;
  std::string proc_;
};

/// From one reading to a later one.
Beside between(const MachineCounters& before, const MachineCounters& after);

}  // namespace tandem::lab
