// The commands of `tandem`. Each adds a subcommand to the parser; when that is chosen, it fills a config struct,
// calls the library and prints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tandem/train/program.h"

namespace tandem::cli {

/// `arguments`: the whole command line, to say how a stopped run goes on.
void add_train(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
/// Likewise.
void add_search(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_eval(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_datasets(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_script_commands(CLI::App& app, Action& action);
/// `arguments`: the whole command line; what follows `lab` is handed on.
void add_lab(CLI::App& app, Action& action, const std::vector<std::string>& arguments);

}  // namespace tandem::cli
