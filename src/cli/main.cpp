// The command `tandem`: parses, runs the chosen subcommand and turns errors into one line and an exit status: 0 done,
// 1 it failed, 2 wrong usage, 130 stopped by a signal.
#include <algorithm>
#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "tandem/core/error.h"

namespace tandem::cli {
namespace {

int fail(int status, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  std::fflush(stdout);
  std::fprintf(stderr, "tandem: %s\n", text.c_str());
  return status;
}

/// The names of the commands, or "" where `word` is one.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return "";
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

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
  add_lab(app, action, {argv, argv + argc});
  add_script_commands(app, action);

  const std::string word = argc > 1 ? argv[1] : "";
  if (!word.empty() && word[0] != '-')
    if (const std::string names = unknown_command(app, word); !names.empty())
      return fail(2, "the command must be one of " + names + "; got '" + word + "'. Try 'tandem --help'.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string chosen =
        app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name();
    return fail(2, std::string(error.what()) + ". Try 'tandem" + chosen + " --help'.");
  }
  if (!action) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  try {
    action();
  } catch (const UsageError& error) {
    return fail(2, error.what());
  } catch (const Interrupted& stopped) {
    return fail(130, stopped.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "this machine has not enough memory. Try a smaller --batch.");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail(1, "cannot write to the standard output. Send it elsewhere.");
  return 0;
}

}  // namespace

void MachineFlags::add(CLI::App& command, bool with_dtype) {
  command.add_option("--engine", engine, "eager or graph: the same bits")->capture_default_str();
  command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
  if (with_dtype) command.add_option("--dtype", dtype, "f32, f64, bf16 or f16")->capture_default_str();
}

void as_usage(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace tandem::cli

int main(int argc, char** argv) { return tandem::cli::run(argc, argv); }
