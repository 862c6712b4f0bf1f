// The command `tandem`: its subcommands. What is common to all programs is in command_line.h.
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
  add_models(app, action);
  add_datasets(app, action);
  add_info(app, action);
  add_explain(app, action);
  add_profile(app, action);
  add_lab(app, action, {argv, argv + argc});
  add_script_commands(app, action);
  return run_command_line(app, action, argc, argv);
}

}  // namespace

void MachineFlags::add(CLI::App& command, bool with_dtype) {
  command.add_option("--engine", engine, "eager or graph: the same bits")->capture_default_str();
  command.add_option("--device", device, "cpu, cuda, cuda:N or cpu:N")->capture_default_str();
  if (with_dtype) command.add_option("--dtype", dtype, "f32, f64, bf16 or f16")->capture_default_str();
  command
      .add_option("--conv", conv,
                  "how convolutions choose their algorithm: fixed, heuristic (by shape) or profile (by time)")
      ->capture_default_str();
  command.add_option("--matmul", matmul, "how matrix products choose theirs, likewise")
      ->capture_default_str();
}

}  // namespace tandem::cli

int main(int argc, char** argv) { return tandem::cli::run(argc, argv); }
