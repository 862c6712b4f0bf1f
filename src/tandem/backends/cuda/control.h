// Branches and loops of a recording as conditional nodes of its CUDA graph.
#pragma once

#include "tandem/backends/cuda/device_state.h"
#include "tandem/core/recorded_control.h"

namespace tandem::cuda {

/// Null where the driver has no conditional nodes with two branches (before CUDA 12.8).
std::unique_ptr<RecordedControl> make_recorded_control(DeviceState& state);

}  // namespace tandem::cuda
