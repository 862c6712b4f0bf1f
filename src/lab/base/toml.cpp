#include "lab/base/toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

constexpr int kMaxParts = 20, kMaxNested = 50;

/// Where the string that begins at `at` ends. One that is not closed ends with its line: the parser will say so.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool is_long = text.substr(at).starts_with(std::string(3, quote));
  const std::string_view mark = text.substr(at, is_long ? 3 : 1);
  for (at += mark.size(); at < text.size(); ++at) {
    if (text.substr(at).starts_with(mark)) return at + mark.size();
    if (text[at] == '\\' && quote == '"')
      ++at;
    else if (text[at] == '\n' && !is_long)
      return at;
  }
  return text.size();
}

/// Refuses what would be nested so deep that building, copying or freeing it overflows the stack, before anything is
/// built: the TOML library takes dotted keys of any length.
void check_depth(std::string_view text, const std::string& name) {
  int parts = 1, nested = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.')
      ++parts;
    else if (std::string_view(",=\n[]{}").find(c) != std::string_view::npos)
      parts = 1;
    if (c == '[' || c == '{') ++nested;
    if ((c == ']' || c == '}') && nested > 0) --nested;
    TD_CHECK(parts <= kMaxParts && nested <= kMaxNested, "read '", name, "': a key must have at most ",
             kMaxParts, " parts, and lists and tables must be nested at most ", kMaxNested,
             " levels deep; line ",
             1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
             " goes further. Write it flatter.");
    ++at;
  }
}

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
  throw Error(cat("read '", name,
                  "': values must be texts, numbers, true or false, lists or tables; got a date in line ",
                  node.source().begin.line, ". Write it as a text."));
}

}  // namespace

nlohmann::json parse_toml(const std::string& text, const std::string& name) {
  check_depth(text, name);
  try {
    const toml::table table = toml::parse(text, name);
    return to_json(table, name);
  } catch (const toml::parse_error& error) {
    throw Error(cat("read '", name, "': the file must be TOML; got, in line ", error.source().begin.line,
                    ": ", error.description(), ". Fix that line."));
  }
}

nlohmann::json read_toml(const std::string& path) {
  const auto bytes = io::read_file("read", path, int64_t{1} << 24);
  return parse_toml(std::string(bytes.begin(), bytes.end()), path);
}

}  // namespace tandem::lab
