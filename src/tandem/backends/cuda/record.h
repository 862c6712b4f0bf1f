// Recording a sequence of launches as a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "tandem/backends/cuda/device_state.h"

namespace tandem::cuda {

std::unique_ptr<Recording> record(DeviceState& state, const std::function<void()>& launch);

}  // namespace tandem::cuda
