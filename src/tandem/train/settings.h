// The settings of a training run as one table: the flags of `tandem train` and their help, the keys of a file of settings
// (TOML) and of JSON, what a resumed run must repeat, and docs/reference/settings.md all come from it. A new setting is a
// member of TrainConfig (train/config.h) and a row in settings.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tandem/train/config.h"

namespace tandem {

/// A value as flags, TOML and JSON know it. Empty: it is not set.
using SettingValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<std::string>>;

/// What a setting takes: nothing (on or off), a whole number, one of at least 0, a number, a text, texts.
enum class SettingKind : uint8_t { toggle, whole, natural, number, text, list };

/// Whether the bits of a run depend on a setting, so that a resumed run must have the same.
enum class SettingBits : uint8_t {
  none,      ///< they do not
  recorded,  ///< they do: it is compared under its name
  indirect  ///< they do, or may: what it leads to is compared: the data's fingerprint, a schedule, a type …
};

/// Which numbers are allowed. Of `number`, `least` itself may be left out, and so may `most`.
struct SettingRange {
  double least = 0, most = 0;
  bool has_least = true, has_most = true;
  std::string unit = {};  ///< " steps"
  std::string hint = {};  ///< " Try 0.999."
};

/// What a setting acts only with: "`early_stop`".
struct SettingNeed {
  std::string what = {};  ///< empty: nothing
  std::function<bool(const TrainConfig&)> is_met = {};
};

/// A row of the table.
struct Setting {
  std::string name = {};    ///< the flag without "--", and the key
  std::string group = {};   ///< heading in the help and on the page
  std::string member = {};  ///< of TrainConfig: "schedule.total"
  std::string help = {};    ///< one line; other settings as in messages (with_flags)
  std::string unset = {};   ///< what holds where it is not set: "the optimizer's"
  SettingBits bits = SettingBits::none;
  std::optional<SettingRange> range = {};
  std::vector<std::string> choices = {};  ///< all texts that are allowed; empty: others
  std::string opposite = {};              ///< of a toggle: the flag that turns it off
  SettingNeed needs = {};                 ///< without it the setting would do nothing, and is refused
  /// What is compared at a resume, where it is not get().
  std::function<SettingValue(const TrainConfig&)> recorded = {};
  SettingKind kind = SettingKind::text;
  std::function<SettingValue(const TrainConfig&)> get = {};
  /// Takes a value of its kind. Throws Error where that cannot be.
  std::function<void(TrainConfig&, const SettingValue&)> set = {};
};

/// The table, in the order in which values are set: what depends on another comes after it.
const std::vector<Setting>& settings();
/// The row of a name; throws Error with the nearest one.
const Setting& setting(const std::string& name);
/// What it is in TrainConfig().
SettingValue default_of(const Setting& setting);

// --- How messages name settings. The library is called by programs in C++ as well, which have members and no flags: its texts
// name a member in backquotes, "Lower `lr`", and what the command prints of them goes through with_flags.

/// "schedule-length" as messages name it: "`schedule.total`". What is no setting stays as it is.
std::string named_setting(const std::string& name);
/// A text of the library for the command line: "Lower --lr". Members may be named without what they are in: "`total`".
std::string with_flags(const std::string& text);

/// A value from a flag's text: "0.1", "96x96", "bias,norm". Throws Error.
SettingValue parse_setting(const Setting& setting, const std::string& text);
/// Throws Error where one of the words of a list is empty.
void check_words(const Setting& setting, const std::vector<std::string>& words);
/// The text that gives it; empty where it is not set.
std::string text_of(const SettingValue& value);

/// "90", "90s", "10m", "1.5h" in seconds. Throws Error, which begins with the setting's name.
double parse_duration(const char* setting, const std::string& text);
/// A word as a shell takes it, in quotes where it needs them.
std::string shell_word(const std::string& word);

/// Throws Error for the first number that is out of its range, or text that is no choice.
void check_values(const TrainConfig& config);

// --- Many of them

using SettingValues = std::map<std::string, SettingValue>;

/// A run with these settings; the others have their defaults. Throws Error, also for a setting that acts only with another
/// that is not there. What else is wrong only beside others is check()'s.
TrainConfig make_config(const SettingValues& values);
/// What is not as in TrainConfig(): make_config of it gives the same settings.
SettingValues given_settings(const TrainConfig& config);

/// How a model of the zoo is trained: "quick", with the defaults of the settings, or "paper", as the study did that it comes
/// from. -> data, epochs, batch, optimizer and lr; no data where the model has no usual one. Throws Error where there is
/// none: a model of your own has no paper.
SettingValues recipe(const std::string& model, const std::string& name);
inline constexpr const char* kRecipes[] = {"quick", "paper"};

/// The settings in a file of TOML, such as `lr = 0.1`. Throws Error, with the file, the line and the nearest name.
SettingValues read_settings(const std::string& path);
SettingValues parse_settings(const std::string& toml, const std::string& source);
/// As such a file, and as JSON: what is not as in TrainConfig().
std::string settings_toml(const TrainConfig& config);
std::string settings_object(const TrainConfig& config);

/// The tables of docs/reference/settings.md.
std::string settings_page();

}  // namespace tandem
