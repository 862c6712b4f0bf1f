// The protocol's schema (lab/drivers/frame/protocol.json, whose notation frame/schema.py describes), for tests of what the C++ of
// the lab writes and reads.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tandem/core/error.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {

inline const nlohmann::json& protocol_schema() {
  static const nlohmann::json& schema = *new nlohmann::json(nlohmann::json::parse(
      testing::read_text(std::string(TANDEM_SOURCE_DIR) + "/lab/drivers/frame/protocol.json")));
  return schema;
}

/// The fields of a call's "request", "answer" or "progress".
inline const nlohmann::json& fields_of(const std::string& call, const std::string& part) {
  return protocol_schema().at("calls").at(call).at(part);
}

/// The T of "list of T" and "map of T"; empty for another type.
inline std::string inner_type(const std::string& type) {
  const size_t at = type.find(" of ");
  return at == std::string::npos ? "" : type.substr(at + 4);
}

inline bool is_list(const std::string& type) { return type == "list" || type.starts_with("list of "); }

/// The fields of an object by its type; null for a type that is none.
inline const nlohmann::json* object_fields(const std::string& type) {
  const auto at = protocol_schema().at("objects").find(type);
  return at == protocol_schema().at("objects").end() ? nullptr : &*at;
}

/// The rule of a field: its own, or that of all names that begin so; null where the schema has none.
inline const nlohmann::json* rule_of(const nlohmann::json& fields, const std::string& name) {
  if (const auto own = fields.find(name); own != fields.end()) return &*own;
  for (const auto& [key, rule] : fields.items())
    if (key.back() == '*' && name.starts_with(key.substr(0, key.size() - 1))) return &rule;
  return nullptr;
}

std::string fields_fault(const nlohmann::json& object, const nlohmann::json& fields, const std::string& path,
                         std::set<std::string>* seen = nullptr);

/// Why a value is not of that type; empty where it is. `seen` gets the fields of objects that were there, "loss.kind".
inline std::string type_fault(const nlohmann::json& value, const std::string& type, const std::string& path,
                              std::set<std::string>* seen = nullptr) {
  const std::string inner = inner_type(type);
  const nlohmann::json* object = object_fields(type);
  const bool good = type == "any"       ? true
                    : type == "text"    ? value.is_string()
                    : type == "flag"    ? value.is_boolean()
                    : type == "integer" ? value.is_number_integer()
                    : type == "number"  ? value.is_number()
                    : is_list(type)     ? value.is_array()
                                        : value.is_object() && (object || type.starts_with("map of "));
  if (!good) return str(path, ": must be a ", type, "; got ", value.dump().substr(0, 80));
  if (object) return fields_fault(value, *object, type, seen);
  if (!inner.empty())
    for (const auto& item : value)
      if (std::string why = type_fault(item, inner, path, seen); !why.empty()) return why;
  return "";
}

/// Why an object has not these fields: a required one is absent, one is wrong, or one is not in the schema.
inline std::string fields_fault(const nlohmann::json& object, const nlohmann::json& fields,
                                const std::string& path, std::set<std::string>* seen) {
  for (const auto& [name, rule] : fields.items())
    if (rule.value("required", true) && !object.contains(name))
      return str(path, ".", name, ": must be there");
  for (const auto& [name, value] : object.items()) {
    const std::string where = path + "." + name;
    const nlohmann::json* rule = rule_of(fields, name);
    if (!rule) return where + ": is not in the schema";
    if (seen) seen->insert(where);
    if (value.is_null() && rule->value("null", false)) continue;
    if (std::string why = type_fault(value, rule->at("type"), where, seen); !why.empty()) return why;
    if (rule->contains("least") && value < rule->at("least"))
      return str(where, ": must be at least ", rule->at("least").dump(), "; got ", value.dump());
    if (rule->contains("one_of") &&
        std::find(rule->at("one_of").begin(), rule->at("one_of").end(), value) == rule->at("one_of").end())
      return str(where, ": must be one of ", rule->at("one_of").dump(), "; got ", value.dump());
  }
  return "";
}

nlohmann::json example_of_fields(const nlohmann::json& fields);

/// A value of that type with everything in it.
inline nlohmann::json example_of(const std::string& type) {
  using nlohmann::json;
  if (const json* object = object_fields(type)) return example_of_fields(*object);
  if (type == "flag") return true;
  if (type == "integer") return 1;
  if (type == "number") return 0.5;
  if (is_list(type))
    return inner_type(type).empty() ? json::array() : json::array({example_of(inner_type(type))});
  if (type.starts_with("map of ")) return {{"some", example_of(inner_type(type))}};
  return "some";
}

inline nlohmann::json example_of_fields(const nlohmann::json& fields) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, rule] : fields.items())
    if (name.back() != '*' &&
        object_fields(inner_type(rule["type"])) != &fields)  // terms of a loss are losses
      out[name] = rule.contains("one_of") ? rule["one_of"][0] : example_of(rule["type"]);
  return out;
}

/// A value that is of another type.
inline nlohmann::json other_than(const std::string& type) {
  return type == "text" || type == "number" || type == "integer" ? nlohmann::json(true)
                                                                 : nlohmann::json("some");
}

}  // namespace tandem::lab
