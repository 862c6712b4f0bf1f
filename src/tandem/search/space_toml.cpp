// Spaces as TOML files.
#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/shortest.h"
#include "tandem/core/toml_depth.h"
#include "tandem/search/space.h"

#ifdef TANDEM_HAS_TOML
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>
#endif

namespace tandem::search {
namespace {

constexpr int64_t kMostText = 64 << 10;

std::string source_name(const std::string& source) { return "space '" + one_line(source, 300) + "'"; }

#ifdef TANDEM_HAS_TOML

/// The text of one value.
std::string value_text(const toml::node& node, const std::string& where) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  const auto* value = node.as_floating_point();
  TD_CHECK(value && std::isfinite(value->get()), where,
           ": a value must be a number, a text, true or false; got something else.");
  return shortest(value->get());
}

double end_of(const toml::table& table, const char* key, const std::string& where, const std::string& name) {
  const toml::node* node = table.get(key);
  const auto number =
      node && (node->is_integer() || node->is_floating_point()) ? node->value<double>() : std::nullopt;
  TD_CHECK(number && std::isfinite(*number), where, ": the range of ", name,
           " must have low and high, both numbers; got no ", key, ". Write { low = 0.1, high = 0.5 }.");
  return *number;
}

Parameter range_of(const toml::table& table, const std::string& where, const std::string& name) {
  Parameter p{.name = name, .scale = Scale::linear};
  for (const auto& [key, node] : table) {
    const bool known = key == "low" || key == "high" || key == "scale";
    TD_CHECK(known, where, ": a range has low, high and scale; got '", one_line(std::string(key.str()), 60),
             "'.");
  }
  p.low = end_of(table, "low", where, name);
  p.high = end_of(table, "high", where, name);
  for (const ParameterRule& rule : parameter_rules())
    if (rule.name == name && rule.whole) p.scale = Scale::whole;
  if (const toml::node* scale = table.get("scale")) {
    const std::string word = scale->is_string() ? scale->as_string()->get() : "something else";
    TD_CHECK(word == "log" || word == "linear", where, ": scale must be \"log\" or \"linear\"; got ",
             one_line(word, 60), ".");
    TD_CHECK(word != "log" || p.scale != Scale::whole, where,
             ": a range of whole numbers is linear; got log. List ", "the values: ", name,
             " = [32, 64, 128].");
    if (word == "log") p.scale = Scale::log;
  }
  return p;
}

Parameter list_of(const toml::array& array, const std::string& where, const std::string& name) {
  Parameter p{.name = name, .scale = Scale::choice};
  bool numbers = true;
  std::vector<std::pair<double, std::string>> sorted;
  for (const toml::node& node : array) {
    p.values.push_back(value_text(node, where));
    numbers = numbers && (node.is_integer() || node.is_floating_point());
    if (numbers) sorted.emplace_back(*node.value<double>(), p.values.back());
  }
  if (numbers && !sorted.empty()) {  // numbers have an order, which the search makes use of
    std::sort(sorted.begin(), sorted.end());
    p.scale = Scale::ordered;
    p.values.clear();
    for (auto& [number, text] : sorted) p.values.push_back(text);
  }
  return p;
}

Space read(const toml::table& root, const std::string& source) {
  std::vector<std::pair<int64_t, Parameter>> found;  // in the order of the file: the parser's is by name
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const int64_t line = key.source().begin.line;
    const std::string where = str(source_name(source), ", line ", line);
    Parameter p = node.is_table()   ? range_of(*node.as_table(), where, name)
                  : node.is_array() ? list_of(*node.as_array(), where, name)
                                    : Parameter{.name = name, .values = {value_text(node, where)}};
    check(Space{{p}}, where);
    found.emplace_back(line, std::move(p));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Space space;
  for (auto& [line, p] : found) space.parameters.push_back(std::move(p));
  check(space, source_name(source));
  return space;
}

#endif

}  // namespace

Space parse_space(const std::string& text, const std::string& source) {
  TD_CHECK(static_cast<int64_t>(text.size()) <= kMostText, source_name(source), ": must have at most ",
           kMostText, " bytes; got ", text.size(), ".");
#ifdef TANDEM_HAS_TOML
  check_toml_depth(text, source_name(source), {.parts = 4, .nested = 8});
  try {
    return read(toml::parse(text), source);
  } catch (const toml::parse_error& error) {
    throw Error(str(source_name(source), ", line ", error.source().begin.line,
                    ": must be TOML; got: ", one_line(error.description(), 300), ". Fix that line."));
  }
#else
  throw Error(
      str(source_name(source),
          ": this build of Tandem cannot read TOML, since toml++ was not found when it was built. Install "
          "libtomlplusplus-dev and build again."),
      ErrorKind::resource);
#endif
}

Space read_space(const std::string& path) {
  InputFile file("space", path);
  TD_CHECK(file.bytes() <= kMostText, source_name(path), ": must have at most ", kMostText, " bytes; got ",
           file.bytes(), ".");
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read(text.data(), text.size());
  return parse_space(text, path);
}

}  // namespace tandem::search
