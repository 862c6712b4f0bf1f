// Reads and writes TOML, as JSON values. No other place uses the TOML library.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::lab {

/// The content of a file. Throws Error with file, line and cause. Dates are refused: no file of the lab needs any.
nlohmann::json read_toml(const std::string& path);
nlohmann::json parse_toml(const std::string& text, const std::string& name);
/// The table as the text of a TOML file, one key per line. It must not contain null, infinities or NaN.
std::string toml_text(const nlohmann::json& table);

}  // namespace tandem::lab
