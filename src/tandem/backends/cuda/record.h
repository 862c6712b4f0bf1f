// Recording steps and their order as a CUDA graph.
#pragma once

#include <memory>
#include <vector>

#include "tandem/backends/cuda/device_state.h"

namespace tandem::cuda {

std::unique_ptr<Recording> record(DeviceState& state, const std::vector<RecordStep>& steps);

}  // namespace tandem::cuda
