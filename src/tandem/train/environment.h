// What a run was made with: the machine, its devices, the build and its libraries.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/device.h"

namespace tandem {

/// One device, or the reason why there is none of its kind.
struct DeviceRow {
  std::string device, text;
  bool available = false;
};
std::vector<DeviceRow> device_rows();

/// All of it and the device of a run, as JSON text of several lines.
std::string environment_json(Device device);
/// Writes environment.json.
void save_environment(const std::string& folder, Device device);

}  // namespace tandem
