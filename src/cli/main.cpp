// The command `tandem`: its subcommands. What is common to all programs is in command_line.h.
#include <string>

#include "cli/commands.h"
#include "tandem/core/error.h"

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
  if (with_dtype) {
    command.add_option(
        "--dtype", dtype,
        "f32, tf32 (products on CUDA), bf16 or f16 (products; weights stay f32), f64 (default: f32; on "
        "CUDA tf32, unless TANDEM_TF32=0)");
    command.add_flag("--half-model", half_model,
                     "with bf16 or f16: the whole model in that type, weights too");
  }
  command
      .add_option("--conv", conv,
                  "how convolutions choose their algorithm: fixed, heuristic (by shape) or profile (by time)")
      ->capture_default_str();
  command.add_option("--matmul", matmul, "how matrix products choose theirs, likewise")
      ->capture_default_str();
}

MachineFlags::Arithmetic MachineFlags::arithmetic(Device on) const {
  TD_CHECK(!half_model || dtype == "bf16" || dtype == "f16",
           "half-model: goes with --dtype bf16 or f16; got ", dtype.empty() ? "none" : dtype, ".");
  if (dtype.empty()) return {};
  const bool tf32 = dtype == "tf32";
  TD_CHECK(!tf32 || on.kind == DeviceKind::cuda,
           "dtype: tf32 is how CUDA multiplies f32 matrices; got device ", on, ". Give f32.");
  if (tf32 || dtype == "f32") return {.tf32 = tf32};
  TD_CHECK(dtype == "bf16" || dtype == "f16" || dtype == "f64",
           "dtype: must be f32, tf32, bf16, f16 or f64; got '", dtype, "'.");
  const DType type = parse_dtype(dtype);
  if (half_model || bytes_of(type) != 2) return {.model = type};
  return {.autocast = type};
}

}  // namespace tandem::cli

int main(int argc, char** argv) { return tandem::cli::run(argc, argv); }
