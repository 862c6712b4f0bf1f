#include "tandem/core/device.h"

#include <sys/utsname.h>

#include <charconv>
#include <fstream>
#include <ostream>

#include "tandem/core/error.h"

namespace tandem {

const char* name(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

Device parse_device(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceKind::cuda, 0};
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    uint8_t index = 0;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (failure == std::errc{} && end == digits.data() + digits.size()) return {DeviceKind::cuda, index};
  }
  throw Error(cat("device: must be cpu, cuda or cuda:N; got '", text, "'."));
}

std::string to_string(Device device) {
  return device.is_cpu() ? name(device.kind) : cat(name(device.kind), ":", static_cast<int>(device.index));
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
