// TOML files, as JSON: the only place that knows the TOML library.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::lab {

/// The file's content. Throws Error with file, line and cause. Dates are refused: no file of ours has any.
nlohmann::json read_toml(const std::string& path);
nlohmann::json parse_toml(const std::string& text, const std::string& name);
/// A table as such a file's text, a key on each line. There must be no null and no number without an end in it.
std::string toml_text(const nlohmann::json& table);

}  // namespace tandem::lab
