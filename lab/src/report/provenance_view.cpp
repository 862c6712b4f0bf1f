#include "lab/src/report/provenance_view.h"

namespace tandem::lab {

namespace {

constexpr size_t kLongest = 400;  // of a value: processors have hundreds of flags

void add_fields(const Json& json, const std::string& prefix, Grid& grid) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      add_fields(value, name, grid);
      continue;
    }
    std::string text;
    if (value.is_string()) {
      text = value.get<std::string>();
    } else if (value.is_array()) {
      for (const Json& item : value)
        text += (text.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
    } else if (!value.is_null()) {
      text = value.dump();
    }
    if (text.size() > kLongest) {
      size_t end = kLongest;  // not in the middle of a character
      while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
      text = text.substr(0, end) + " …";
    }
    if (!text.empty()) grid.add({{name}, {text}});
  }
}

}  // namespace

Grid provenance_grid(const Json& provenance) {
  Grid grid({"what", "value"});
  if (provenance.is_object()) add_fields(provenance, "", grid);
  return grid;
}

}  // namespace tandem::lab
