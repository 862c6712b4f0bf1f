// What a monitor's window becomes in a record, and energy by step and by time.
#pragma once

#include <optional>
#include <string>

#include "lab/src/monitor/monitor.h"
#include "lab/src/record/record.h"

namespace tandem::lab {

/// "cuda:1" is GPU 1; "cpu" none.
std::optional<int> gpu_of(const std::string& device);

/// Metrics, reasons and curves go into the record. A metric that the run has already is kept.
void add_report(Run& run, const MonitorReport& report);

/// Energy of processor and GPU from the beginning of the window until then, from the curves of power scaled to what the
/// counters say in all. A run on the CPU needs the processor's, one on a GPU the GPU's; the other is added where it is there.
std::optional<double> energy_until(const Run& run, double seconds);

/// step.energy_j, or why there is none.
void add_energy_per_step(Run& run, int64_t steps);

}  // namespace tandem::lab
