// Values of settings as JSON, for those who write JSON themselves.
#pragma once

#include <nlohmann/json.hpp>

#include "tandem/train/settings.h"

namespace tandem {

inline nlohmann::ordered_json json_of(const SettingValue& value) {
  return std::visit(
      [](const auto& v) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
          return nullptr;
        else
          return v;
      },
      value);
}

}  // namespace tandem
