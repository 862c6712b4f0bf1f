// tandem train MODEL: the flags, and how a stopped run goes on.
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "cli/stopping.h"
#include "tandem/core/error.h"
#include "tandem/train/train.h"

namespace tandem::cli {

void add_train(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  struct Flags {
    std::string model, file;
    SettingFlags settings;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand("train", "train a model");
  cmd->add_option("MODEL", flags->model, setting("model").help);
  cmd->add_option("--config", flags->file, "file of settings, TOML with the names below; flags win over it");
  cmd->add_flag("--json", flags->json, "print one JSON object per line");
  flags->settings.add_all(*cmd);
  cmd->callback([flags, arguments, &action] {
    action = [flags, arguments] {
      TrainConfig config;
      as_usage([&] {
        SettingValues file;
        if (!flags->file.empty()) file = read_settings(flags->file);
        if (!flags->model.empty()) file["model"] = flags->model;
        if (!file.contains("model"))
          throw UsageError(
              "MODEL is required: a name from 'tandem models', or the file of a description. Try "
              "'tandem train --help'.");
        config = flags->settings.config(std::move(file));
        check(config);
      });
      config.stop = &stop_on_signals();
      config.callbacks.push_back(flags->json ? json_events() : text_events());
      const DoneEvent done = train(config);
      if (!done.interrupted) return;
      throw Interrupted(
          str("stopped at step ", done.steps, ". Go on with: ", resume_command(arguments, done.out)));
    };
  });
}

}  // namespace tandem::cli
