// The commands of `tandem`. Each adds a subcommand to the parser; when that is chosen, it fills a config struct,
// calls the library and prints.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "tandem/core/backend.h"
#include "tandem/core/choices.h"
#include "tandem/train/config.h"

namespace tandem::cli {

/// `arguments`: the whole command line, to say how a stopped run goes on.
void add_train(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_eval(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_datasets(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_script_commands(CLI::App& app, Action& action);
/// `arguments`: the whole command line; what follows `lab` is handed on.
void add_lab(CLI::App& app, Action& action, const std::vector<std::string>& arguments);

/// --engine, --device, --dtype, --half-model, --conv and --matmul, as text until they are parsed.
struct MachineFlags {
  std::string engine = "graph", device = "cpu", dtype = {}, conv = "heuristic", matmul = "heuristic";
  bool half_model = false;
  void add(CLI::App& command, bool with_dtype);
  /// Into any struct with these members. Throws Error.
  template <class Config>
  void parse_into(Config& config) const {
    config.engine = parse_engine(engine);
    config.device = parse_device(device);
    if (find_backend(config.device.kind))
      check_device(config.device);  // else the work says why it is missing
    config.machine.conv = parse_choice_mode(conv);
    config.machine.matmul = parse_choice_mode(matmul, "matmul");
    if constexpr (requires { config.autocast; }) {
      const Arithmetic chosen = arithmetic(config.device);
      config.dtype = chosen.model;
      config.autocast = chosen.autocast;
      config.machine.tf32 = chosen.tf32;
    }
  }

 private:
  /// What --dtype and --half-model mean on a device.
  struct Arithmetic {
    DType model = DType::f32;
    std::optional<DType> autocast = {};
    std::optional<bool> tf32 = {};
  };
  Arithmetic arithmetic(Device on) const;
};

}  // namespace tandem::cli
