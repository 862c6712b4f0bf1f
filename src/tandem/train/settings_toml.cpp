// Settings as TOML and as JSON.
#include <limits>
#include <nlohmann/json.hpp>

#include "tandem/core/error.h"
#include "tandem/core/toml_depth.h"
#include "tandem/io/file.h"
#include "tandem/train/settings.h"
#include "tandem/train/settings_json.h"

#ifdef TANDEM_HAS_TOML
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>
#endif

namespace tandem {
namespace {

constexpr int64_t kMostText = int64_t{1} << 20;

std::string source_name(const std::string& source) { return "config '" + io::one_line(source, 300) + "'"; }

#ifdef TANDEM_HAS_TOML

/// What stands in the file, in words.
const char* kind_of(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (node.is_string()) return "a text";
  if (node.is_boolean()) return "true or false";
  if (node.is_integer()) return "a whole number";
  if (node.is_floating_point()) return "a number";
  return "a date or a time";
}

/// A value of the setting, as a file has it.
std::string example_of(const Setting& s) {
  switch (s.kind) {
    case SettingKind::toggle:
      return "true";
    case SettingKind::whole:
    case SettingKind::natural:
      return "1";
    case SettingKind::number:
      return "0.1";
    case SettingKind::list:
      return "[\"conv1\"]";
    case SettingKind::text:
      break;
  }
  const std::string usual = text_of(default_of(s));
  return "\"" + (!s.choices.empty() ? s.choices.back() : usual.empty() ? "…" : usual) + "\"";
}

[[noreturn]] void refuse(const Setting& s, const char* what, const toml::node& node) {
  throw Error(str(s.name, ": must be ", what, "; got ", kind_of(node), ". Write it as in ", s.name, " = ",
                  example_of(s), "."));
}

/// What is text in the table is read as that of a flag: "10m", "96x96".
SettingValue value_of(const Setting& s, const toml::node& node) {
  switch (s.kind) {
    case SettingKind::toggle:
      if (const auto* on = node.as_boolean()) return on->get();
      refuse(s, "true or false", node);
    case SettingKind::natural:  // TOML knows no number above 2^63 - 1: those are texts
      if (const auto* text = node.as_string()) {
        SettingValue value = parse_setting(s, text->get());
        if (std::get<uint64_t>(value) > std::numeric_limits<int64_t>::max()) return value;
      }
      [[fallthrough]];
    case SettingKind::whole:
      if (const auto* whole = node.as_integer()) return parse_setting(s, std::to_string(whole->get()));
      refuse(s, "a whole number", node);
    case SettingKind::number:
      if (const auto* whole = node.as_integer()) return static_cast<double>(whole->get());
      if (const auto* number = node.as_floating_point()) return number->get();
      refuse(s, "a number", node);
    case SettingKind::text:
      if (const auto* text = node.as_string()) return parse_setting(s, text->get());
      if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
      if (const auto* number = node.as_floating_point()) return text_of(number->get());
      refuse(s, "a text", node);
    case SettingKind::list: {
      std::vector<std::string> words;
      if (const auto* text = node.as_string()) {
        words = {text->get()};
        check_words(s, words);
        return words;
      }
      const toml::array* list = node.as_array();
      if (!list) refuse(s, "a list of texts", node);
      for (const toml::node& word : *list) {
        if (!word.is_string()) refuse(s, "a list of texts", node);
        words.push_back(word.as_string()->get());
      }
      check_words(s, words);
      return words;
    }
  }
  return {};
}

#endif

/// In quotes, with what TOML and JSON escape alike.
std::string in_quotes(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

SettingValues parse_settings(const std::string& text, const std::string& source) {
  const auto size = static_cast<int64_t>(text.size());
  TD_CHECK(size <= kMostText, source_name(source), ": must have at most ", kMostText, " bytes; got ", size,
           ".");
#ifdef TANDEM_HAS_TOML
  check_toml_depth(text, source_name(source));
  SettingValues values;
  try {
    for (const auto& [key, node] : toml::parse(text)) {
      const auto line = key.source().begin.line;
      try {
        const Setting& s = setting(std::string(key.str()));
        values[s.name] = value_of(s, node);
      } catch (Error& error) {
        error.prepend(str(source_name(source), ", line ", line, ": "));
        throw;
      }
    }
  } catch (const toml::parse_error& error) {
    throw Error(str(source_name(source), ", line ", error.source().begin.line, ": must be TOML; got: ",
                    io::one_line(std::string(error.description()), 300), ". Fix that line."));
  }
  return values;
#else
  throw Error(
      str(source_name(source),
          ": this build of Tandem cannot read TOML, since toml++ was not found when it was built. Install "
          "libtomlplusplus-dev and build again."),
      ErrorKind::resource);
#endif
}

SettingValues read_settings(const std::string& path) {
  const std::vector<uint8_t> bytes = io::read_file("config", path, kMostText);
  return parse_settings({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string settings_toml(const TrainConfig& config) {
  std::string out;
  for (const Setting& s : settings()) {
    const SettingValue value = s.get(config);
    if (value == default_of(s)) continue;
    std::string text = text_of(value);
    if (s.kind == SettingKind::text) text = in_quotes(text);
    // TOML knows no larger whole number.
    if (s.kind == SettingKind::natural && std::get<uint64_t>(value) > std::numeric_limits<int64_t>::max())
      text = in_quotes(text);
    if (s.kind == SettingKind::list) {
      text.clear();
      for (const std::string& word : std::get<std::vector<std::string>>(value))
        text += (text.empty() ? "" : ", ") + in_quotes(word);
      text = "[" + text + "]";
    }
    out += s.name + " = " + text + "\n";
  }
  return out;
}

std::string settings_object(const TrainConfig& config) {
  auto out = nlohmann::ordered_json::object();
  for (const Setting& s : settings())
    if (const SettingValue value = s.get(config); value != default_of(s)) out[s.name] = json_of(value);
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tandem
