// Values of settings: from text and to text, within their range, one by one and all together; and the page that lists them.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tandem/core/error.h"
#include "tandem/core/nearest.h"
#include "tandem/core/shortest.h"
#include "tandem/io/file.h"
#include "tandem/train/settings.h"

namespace tandem {
namespace {

/// "a, b or c".
std::string any_of(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}

template <class T>
T parse_whole(const Setting& s, const std::string& text, const char* what) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  TD_CHECK(error != std::errc::result_out_of_range, s.name, ": must be a whole number of at most ",
           std::numeric_limits<T>::max(), " in size; got ", io::one_line(text, 60), ".");
  TD_CHECK(error == std::errc() && at == end, s.name, ": must be ", what, "; got '", io::one_line(text, 60),
           "'.");
  return value;
}

double parse_number(const Setting& s, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  TD_CHECK(!text.empty() && end == text.c_str() + text.size() && text[0] != ' ', s.name,
           ": must be a number; got '", io::one_line(text, 60), "'.");
  return value;
}

bool parse_toggle(const Setting& s, const std::string& text) {
  TD_CHECK(text == "true" || text == "false", s.name, ": must be true or false; got '",
           io::one_line(text, 60), "'.");
  return text == "true";
}

std::vector<std::string> parse_list(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void check_number_in(const Setting& s, double value) {
  const SettingRange& r = *s.range;
  if (r.has_most) return check_number(s.name.c_str(), value, r.least, r.has_least, r.most);
  TD_CHECK((r.has_least ? value >= r.least : value > r.least) && value < r.most, s.name, ": must be ",
           r.has_least ? "at least " : "above ", r.least, " and below ", r.most, "; got ", value, ".",
           r.hint);
}

/// What a setting takes, for the page.
std::string values_of(const Setting& s) {
  if (!s.choices.empty()) return any_of(s.choices);
  const bool is_whole = s.kind == SettingKind::whole;
  if (s.range) {
    const SettingRange& r = *s.range;
    const bool ends = is_whole ? r.most < static_cast<double>(kMostCount) : r.most < kMostNumber;
    return str(is_whole ? "a whole number" : "a number", r.has_least ? " of at least " : " above ",
               text_of(r.least),
               ends ? str(r.has_most ? " and at most " : " and below ", text_of(r.most)) : "",
               r.unit.empty() ? "" : "," + r.unit);
  }
  switch (s.kind) {
    case SettingKind::toggle:
      return "on or off";
    case SettingKind::whole:
      return "a whole number";
    case SettingKind::natural:
      return "a whole number of at least 0";
    case SettingKind::number:
      return "a number";
    case SettingKind::text:
      return "text";
    case SettingKind::list:
      return "texts, with commas between them";
  }
  return "";
}

}  // namespace

const Setting& setting(const std::string& name) {
  std::vector<std::string> names;
  for (const Setting& s : settings()) {
    if (s.name == name) return s;
    names.push_back(s.name);
  }
  throw Error(str("settings: must be those of 'tandem train --help'; got '", io::one_line(name, 60), "'.",
                  did_you_mean(name, names)));
}

SettingValue default_of(const Setting& setting) { return setting.get(TrainConfig()); }

SettingValue parse_setting(const Setting& s, const std::string& text) {
  switch (s.kind) {
    case SettingKind::toggle:
      return parse_toggle(s, text);
    case SettingKind::whole:
      return parse_whole<int64_t>(s, text, "a whole number");
    case SettingKind::natural:
      return parse_whole<uint64_t>(s, text, "a whole number of at least 0");
    case SettingKind::number:
      return parse_number(s, text);
    case SettingKind::text:
      TD_CHECK(!text.empty(), s.name, ": must not be empty; got ''. Give a value, or leave ", s.name,
               " out.");
      return text;
    case SettingKind::list: {
      std::vector<std::string> words = parse_list(text);
      check_words(s, words);
      return words;
    }
  }
  return {};
}

void check_words(const Setting& s, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    TD_CHECK(!word.empty(), s.name, ": must be words with a comma between them; got an empty one in '",
             io::one_line(text_of(SettingValue(words)), 60), "'. Leave it out.");
}

std::string text_of(const SettingValue& value) {
  struct Text {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(uint64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return shortest(v); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const std::vector<std::string>& v) const {
      std::string out;
      for (const std::string& word : v) out += (out.empty() ? "" : ",") + word;
      return out;
    }
  };
  return std::visit(Text{}, value);
}

void check_values(const TrainConfig& config) {
  for (const Setting& s : settings()) {
    const SettingValue value = s.get(config);
    if (s.range && s.kind == SettingKind::whole && std::holds_alternative<int64_t>(value))
      check_between(s.name.c_str(), std::get<int64_t>(value), static_cast<int64_t>(s.range->least),
                    static_cast<int64_t>(s.range->most), s.range->unit.c_str());
    if (s.range && std::holds_alternative<double>(value)) check_number_in(s, std::get<double>(value));
    if (!s.choices.empty() && std::holds_alternative<std::string>(value)) {
      const std::string& text = std::get<std::string>(value);
      TD_CHECK(std::find(s.choices.begin(), s.choices.end(), text) != s.choices.end(), s.name, ": must be ",
               any_of(s.choices), "; got '", io::one_line(text, 60), "'.");
    }
  }
}

namespace {

/// What holds where nothing is given: the settings' defaults, under what the model itself is quickly trained with.
TrainConfig usual_config(const std::string& model) {
  TrainConfig config;
  const bool is_of_zoo = !model.empty() && !zoo::is_description_path(model);
  const auto& all = zoo::models();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const zoo::ModelInfo& info) { return info.name == model; });
  if (!is_of_zoo || at == all.end() || !at->quick) return config;
  config.epochs = at->quick->epochs;
  config.batch = at->quick->batch;
  config.optimizer = at->quick->optimizer;
  config.lr = at->quick->lr;
  config.clip_norm = at->quick->clip_norm;
  config.schedule.kind = at->quick->schedule;
  return config;
}

/// The model that settings name.
std::string model_of(const SettingValues& values) {
  const auto at = values.find("model");
  return at != values.end() && std::holds_alternative<std::string>(at->second)
             ? std::get<std::string>(at->second)
             : "";
}

}  // namespace

TrainConfig make_config(const SettingValues& values) {
  for (const auto& row : values) setting(row.first);  // all are known
  TrainConfig config = usual_config(model_of(values));
  for (const Setting& s : settings())
    if (const auto at = values.find(s.name); at != values.end() && at->second.index() != 0)
      s.set(config, at->second);
  for (const Setting& s : settings()) {
    const auto at = values.find(s.name);
    const bool is_given = at != values.end() && at->second.index() != 0 &&
                          (at->second != SettingValue(false) || !s.opposite.empty());
    TD_CHECK(!is_given || s.needs.what.empty() || s.needs.is_met(config), s.name, ": acts only with ",
             s.needs.what, "; this run has none. Give that as well, or leave ", named_setting(s.name),
             " out.");
  }
  return config;
}

SettingValues recipe(const std::string& model, const std::string& name) {
  const bool is_paper = name == kRecipes[1];
  TD_CHECK(is_paper || name == kRecipes[0], "recipe: must be quick or paper; got '", io::one_line(name, 60),
           "'.");
  SettingValues values;
  const bool is_own = zoo::is_description_path(model);
  TD_CHECK(!is_own || !is_paper, "recipe: a model of your own has no paper; got '", io::one_line(model, 200),
           "'. Leave `recipe` out.");
  const zoo::TrainingDefaults usual = is_own ? zoo::TrainingDefaults() : zoo::model_info(model).training;
  if (!usual.data.empty()) values["data"] = usual.data;
  const TrainConfig quick = usual_config(model);
  values["epochs"] = is_paper ? usual.epochs : quick.epochs.value_or(1);
  values["batch"] = is_paper ? usual.batch : quick.batch;
  values["optimizer"] = is_paper ? usual.optimizer : quick.optimizer;
  values["lr"] = is_paper ? usual.lr : starting_lr(quick);
  if (!is_own && zoo::model_info(model).quick) {  // which has more than the settings' defaults
    if (const std::optional<double> clip = is_paper ? usual.clip_norm : quick.clip_norm; clip)
      values["clip-norm"] = *clip;
    values["schedule"] = is_paper ? usual.schedule : quick.schedule.kind;
  }
  return values;
}

SettingValues given_settings(const TrainConfig& config) {
  SettingValues given;
  const TrainConfig usual = usual_config(config.model);
  for (const Setting& s : settings()) {
    SettingValue value = s.get(config);
    const bool can_be_said = value.index() != 0 || default_of(s).index() != 0;  // what is not set has no text
    if (can_be_said && value != s.get(usual)) given[s.name] = std::move(value);
  }
  return given;
}

std::string settings_page() {
  std::string out, group;
  for (const Setting& s : settings()) {
    if (s.group != group)
      out += str(out.empty() ? "" : "\n", "## ", s.group, "\n\n",
                 "| setting | | takes | default | bits |\n|---|---|---|---|---|\n");
    group = s.group;
    const std::string usual = text_of(default_of(s));
    const bool is_toggle = s.kind == SettingKind::toggle;
    out +=
        str("| `", s.name, "` | ", with_flags(s.help),
            s.opposite.empty() ? "" : " (flag: `--" + s.opposite + "`)",
            s.needs.what.empty() ? "" : "; only with " + with_flags(s.needs.what), " | ", values_of(s), " | ",
            !s.unset.empty() ? with_flags(s.unset)
            : is_toggle      ? "off"
                             : usual,
            " | ", s.bits == SettingBits::none ? "" : "yes", " |\n");
  }
  return out;
}

double parse_duration(const char* setting, const std::string& text) {
  size_t used = 0;
  double value = std::nan("");
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(used);
  const double seconds = unit.empty() || unit == "s" ? 1
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : std::nan("");
  TD_CHECK(std::isfinite(value * seconds) && value > 0, setting,
           ": must be a time like 90s, 10m or 1.5h; got '", text, "'.");
  return value * seconds;
}

std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~!{}") == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace tandem
