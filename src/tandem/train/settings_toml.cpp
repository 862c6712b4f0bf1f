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

[[noreturn]] void refuse(const Setting& s, const char* what) {
  throw Error(cat(s.name, ": must be ", what, "; got something else. Write it as in ", s.name, " = ",
                  s.kind == SettingKind::toggle ? "true"
                  : s.kind == SettingKind::list ? "[\"bias\"]"
                                                : "1",
                  "."));
}

/// A text is read as that of a flag: "10m", "18446744073709551615".
SettingValue value_of(const Setting& s, const toml::node& node) {
  if (const auto* text = node.as_string(); text && s.kind != SettingKind::list)
    return parse_setting(s, text->get());
  switch (s.kind) {
    case SettingKind::toggle:
      if (const auto* on = node.as_boolean()) return on->get();
      refuse(s, "true or false");
    case SettingKind::whole:
    case SettingKind::natural:
      if (const auto* whole = node.as_integer()) return parse_setting(s, std::to_string(whole->get()));
      refuse(s, "a whole number");
    case SettingKind::number:
      if (const auto* whole = node.as_integer()) return static_cast<double>(whole->get());
      if (const auto* number = node.as_floating_point()) return number->get();
      refuse(s, "a number");
    case SettingKind::text:
      if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
      if (const auto* number = node.as_floating_point()) return text_of(number->get());
      refuse(s, "a text");
    case SettingKind::list: {
      if (const auto* text = node.as_string()) return std::vector<std::string>{text->get()};
      std::vector<std::string> words;
      const toml::array* list = node.as_array();
      if (!list) refuse(s, "a list of texts");
      for (const toml::node& word : *list) {
        if (!word.is_string()) refuse(s, "a list of texts");
        words.push_back(word.as_string()->get());
      }
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
        error.prepend(cat(source_name(source), ", line ", line, ": "));
        throw;
      }
    }
  } catch (const toml::parse_error& error) {
    throw Error(cat(source_name(source), ", line ", error.source().begin.line, ": must be TOML; got: ",
                    io::one_line(std::string(error.description()), 300), ". Fix that line."));
  }
  return values;
#else
  throw Error(
      cat(source_name(source),
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
