// One run of one cell: a fresh process, from its start to its end, and the record of it.
#pragma once

#include <functional>
#include <string>

#include "lab/src/measure/disturbance.h"
#include "lab/src/measure/gatekeeper.h"
#include "lab/src/measure/honesty.h"
#include "lab/src/measure/schedule.h"

namespace tandem::lab {

struct RunSetting {
  const Bench& bench;
  const Workloads& workloads;
  Materials& materials;
  Gatekeeper& gatekeeper;
  double interval_s = 0.1;  // of the monitors
  uint64_t seed = 1;        // of the study
  HonestyLimits limits = {};
  std::function<void(const std::string&)> stage = [](const std::string&) {};
  MachineWatch* machine = nullptr;  // none: what else the machine does is not looked at
};

/// Always a record: whatever the driver does is in its status. Throws only Stopped, and Error for what is wrong on the
/// lab's own side (a full disk, a workload that is not there).
Run take_run(const Cell& cell, const Turn& turn, const RunSetting& setting);

/// Whether warm-up is over: the medians of the last two chunks of steps differ by less than this share.
inline constexpr double kSteady = 0.05;

}  // namespace tandem::lab
