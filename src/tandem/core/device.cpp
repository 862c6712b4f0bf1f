#include "tandem/core/device.h"

#include <charconv>
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

}  // namespace tandem
