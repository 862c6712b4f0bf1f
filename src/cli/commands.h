// The commands of `tandem`. Each adds a subcommand to the parser; when that is chosen, it fills a config struct,
// calls the library and prints.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::cli {

/// Wrong usage found after parsing: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the chosen subcommand will do once parsing is over.
using Action = std::function<void()>;

void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_datasets(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_script_commands(CLI::App& app, Action& action);

/// Runs `read`, which turns flags into settings: an Error in it is wrong usage.
void as_usage(const std::function<void()>& read);

}  // namespace tandem::cli
