// Flags of commands that are settings of a run.
#include "cli/setting_flags.h"

#include <algorithm>

#include "tandem/core/backend.h"

namespace tandem::cli {
namespace {

const char* type_name(SettingKind kind) {
  switch (kind) {
    case SettingKind::whole:
      return "INT";
    case SettingKind::natural:
      return "UINT";
    case SettingKind::number:
      return "FLOAT";
    default:
      return "TEXT";
  }
}

/// The line of help: what it is, what it may be, and what holds without it.
std::string help_of(const Setting& s) {
  std::string out = s.help;
  if (!s.choices.empty()) {
    const bool are_named = std::all_of(s.choices.begin(), s.choices.end(), [&](const std::string& word) {
      return s.help.find(word) != std::string::npos;
    });
    if (!are_named) {
      out += ": ";
      for (const std::string& word : s.choices) out += (&word == &s.choices[0] ? "" : ", ") + word;
    }
  }
  if (!s.needs.what.empty()) out += "; only with " + s.needs.what;
  return with_flags(s.unset.empty() ? out : out + " (default: " + s.unset + ")");
}

void add_flag(CLI::App& command, const Setting& s, const std::string& help, std::string& text) {
  CLI::Option* on = command.add_flag("--" + s.name, text, help)->group(s.group);
  if (s.opposite.empty()) return;
  command
      .add_flag_callback(
          "--" + s.opposite, [&text] { text = "false"; }, "the opposite of --" + s.name)
      ->group(s.group)
      ->excludes(on);
}

}  // namespace

void SettingFlags::add(CLI::App& command, const std::vector<std::string>& names,
                       const std::map<std::string, std::string>& help) {
  for (const Setting& s : settings()) {
    if (std::find(names.begin(), names.end(), s.name) == names.end()) continue;
    const auto other = help.find(s.name);
    const std::string line = other == help.end() ? help_of(s) : other->second;
    std::string& text = texts_[s.name];
    if (s.kind == SettingKind::toggle) {
      add_flag(command, s, line, text);
      continue;
    }
    CLI::Option* option =
        command.add_option("--" + s.name, text, line)->type_name(type_name(s.kind))->group(s.group);
    if (s.kind == SettingKind::list) option->join(',');
    if (const std::string usual = text_of(default_of(s)); !usual.empty() && other == help.end())
      option->default_str(usual);
  }
  command_ = &command;
}

void SettingFlags::add_all(CLI::App& command) {
  std::vector<std::string> names;
  for (const Setting& s : settings())
    if (s.name != "model") names.push_back(s.name);
  add(command, names);
}

SettingValues SettingFlags::values(SettingValues file) const {
  for (const auto& [name, text] : texts_) {
    const Setting& s = setting(name);
    const bool is_given =
        command_->count("--" + name) > 0 || (!s.opposite.empty() && command_->count("--" + s.opposite) > 0);
    if (is_given) file[name] = parse_setting(s, text);
  }
  return file;
}

TrainConfig SettingFlags::config(SettingValues file) const {
  TrainConfig config = make_config(values(std::move(file)));
  if (find_backend(config.device.kind)) check_device(config.device);  // else the work says why it is missing
  return config;
}

}  // namespace tandem::cli
