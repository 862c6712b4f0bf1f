// The command `tandem`: its subcommands. What is common to all programs is in train/program.h.
#include <string>

#include "cli/commands.h"

namespace tandem::cli {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Tandem: deep learning in C++ with an eager and a graph engine that give the same bits.",
               "tandem");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  Action action;
  add_train(app, action, {argv, argv + argc});
  add_eval(app, action);
  add_predict(app, action);
  add_search(app, action, {argv, argv + argc});
  add_models(app, action);
  add_datasets(app, action);
  add_info(app, action);
  add_explain(app, action);
  add_profile(app, action);
  add_bench(app, action);
  add_lab(app, action, {argv, argv + argc});
  add_script_commands(app, action);
  return run_command_line<CLI::ParseError>(app, action, argc, argv);
}

}  // namespace

}  // namespace tandem::cli

int main(int argc, char** argv) { return tandem::cli::run(argc, argv); }
