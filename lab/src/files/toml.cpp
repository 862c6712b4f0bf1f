#include "lab/src/files/toml.h"

#include <toml++/toml.h>

#include "tandem/core/error.h"
#include "tandem/core/toml_depth.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

nlohmann::json to_json(const toml::node& node, const std::string& name) {
  if (const auto* table = node.as_table()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value, name);
    return object;
  }
  if (const auto* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& value : *array) list.push_back(to_json(value, name));
    return list;
  }
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get();
  throw Error(str("read '", name,
                  "': values must be texts, numbers, true or false, lists or tables; got a date in line ",
                  node.source().begin.line, ". Write it as a text."));
}

/// The value as TOML in one line. Texts and numbers are written in the same way in JSON and TOML.
std::string inline_text(const nlohmann::json& value) {
  if (!value.is_structured()) return value.dump();
  std::string list;
  for (const auto& [key, entry] : value.items()) {
    if (!list.empty()) list += ", ";
    if (value.is_object()) list += nlohmann::json(key).dump() + " = ";
    list += inline_text(entry);
  }
  return value.is_object() ? "{ " + list + " }" : "[" + list + "]";
}

}  // namespace

std::string toml_text(const nlohmann::json& table) {
  std::string text;
  for (const auto& [key, value] : table.items())
    text += nlohmann::json(key).dump() + " = " + inline_text(value) + "\n";
  return text;
}

nlohmann::json parse_toml(const std::string& text, const std::string& name) {
  check_toml_depth(text, str("read '", name, "'"));
  try {
    const toml::table table = toml::parse(text, name);
    return to_json(table, name);
  } catch (const toml::parse_error& error) {
    throw Error(str("read '", name, "': the file must be TOML; got, in line ", error.source().begin.line,
                    ": ", error.description(), ". Fix that line."));
  }
}

nlohmann::json read_toml(const std::string& path) {
  const auto bytes = io::read_file("read", path, int64_t{1} << 24);
  return parse_toml(std::string(bytes.begin(), bytes.end()), path);
}

}  // namespace tandem::lab
