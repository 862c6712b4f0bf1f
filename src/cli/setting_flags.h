// Flags of commands that are settings of a run (tandem/train/settings.h): their names, help and defaults are the table's.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "tandem/train/settings.h"

namespace tandem::cli {

/// Those of one training step on made-up data.
inline const std::vector<std::string> kStepSettings = {
    "model-settings", "length", "batch", "optimizer",      "dtype",  "half-model",
    "engine",         "device", "conv",  "conv-workspace", "matmul", "threads"};

class SettingFlags {
 public:
  /// Adds the flags of these settings, in the table's order. `help` says what one means here, where that is something else.
  /// The object must live until the command line is read.
  void add(CLI::App& command, const std::vector<std::string>& names,
           const std::map<std::string, std::string>& help = {});
  /// Those of all settings but the model, which is no flag.
  void add_all(CLI::App& command);

  /// What was given, over the settings of a file. Throws Error.
  SettingValues values(SettingValues file = {}) const;
  /// A run with these; its device is there, or its kind is not. Throws Error.
  TrainConfig config(SettingValues file = {}) const;

 private:
  CLI::App* command_ = nullptr;
  std::map<std::string, std::string> texts_;  // as given; empty: not
};

}  // namespace tandem::cli
