#include "tandem/core/device.h"

#include <sys/utsname.h>

#include <charconv>
#include <fstream>
#include <ostream>

#include "tandem/core/error.h"

namespace tandem {

const char* name(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

Device parse_device(std::string_view text) {
  for (int k = 0; k < kDeviceKinds; ++k) {
    const auto kind = static_cast<DeviceKind>(k);
    const std::string_view kind_name = name(kind);
    if (!text.starts_with(kind_name)) continue;
    if (text == kind_name) return {kind, 0};
    const std::string_view number = text.substr(kind_name.size());  // ":N"
    uint8_t index = 0;
    const auto [end, failure] = std::from_chars(number.data() + 1, number.data() + number.size(), index);
    if (number[0] == ':' && failure == std::errc{} && end == number.data() + number.size())
      return {kind, index};
  }
  throw Error(str("device: must be cpu, cuda, cpu:N or cuda:N; got '", text, "'."));
}

std::string to_string(Device device) {
  if (device == Device{}) return "cpu";
  return str(name(device.kind), ":", static_cast<int>(device.index));
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

std::string processor() {
  utsname system{};
  ::uname(&system);
  std::string text = system.machine;
  std::ifstream list("/proc/cpuinfo");
  for (std::string line; std::getline(list, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return text + ", " + line.substr(colon + 2);
    if (line.starts_with("CPU implementer") || line.starts_with("CPU part"))
      text += ", " + line.substr(4, line.find_first_of("\t:") - 4) + " " + line.substr(colon + 2);
    if (line.starts_with("CPU part")) break;  // ARM gives numbers, and no name
  }
  return text;
}

}  // namespace tandem
