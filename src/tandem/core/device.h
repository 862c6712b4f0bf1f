// Where a tensor lives: "cpu", "cuda:0", "cuda:1" … "cpu:1" to "cpu:7" are further devices in the same memory, each with
// an allocator of its own: for trying out code for several devices.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem {

/// The kinds of device. A backend serves one kind.
enum class DeviceKind : uint8_t { cpu, cuda };
inline constexpr int kDeviceKinds = 2;
const char* name(DeviceKind kind);

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint8_t index = 0;
  bool is_cpu() const { return kind == DeviceKind::cpu; }
  friend bool operator==(Device a, Device b) = default;
};

/// Parses "cpu" (= "cpu:0"), "cuda" (= "cuda:0"), "cpu:N" or "cuda:N"; throws Error. Does not check that the device exists.
Device parse_device(std::string_view text);
std::string to_string(Device device);
std::ostream& operator<<(std::ostream& out, Device device);

/// The processor, as the system names it.
std::string processor();

}  // namespace tandem
