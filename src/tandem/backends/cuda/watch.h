// What a GPU did while some work ran: from CUPTI; or, op by op, from events put into its queue.
#pragma once

#include <functional>
#include <vector>

#include "tandem/core/backend.h"

namespace tandem::cuda {

struct DeviceState;

std::vector<DeviceActivity> watch(DeviceState& state, const std::function<void()>& work);
std::vector<DeviceActivity> watch_by_events(DeviceState& state, const std::function<void()>& work);

}  // namespace tandem::cuda
