// The command `tandem-lab`, which `tandem lab` becomes: parses, runs the chosen subcommand and turns errors into one line and
// an exit status: 0 done, 1 it failed, 2 wrong usage, 130 stopped by a signal.
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include "lab/command/commands.h"

namespace tandem::lab {
namespace {

int fail(int status, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  std::fflush(stdout);
  std::fprintf(stderr, "tandem lab: %s\n", text.c_str());
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
  CLI::App app("The lab: reruns five papers' comparisons of deep-learning frameworks on this machine.",
               "tandem lab");
  app.require_subcommand(0, 1);
  Action action;
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  add_list(app, action);
  add_setup(app, action);
  add_run(app, action, arguments);
  add_advise(app, action, arguments);
  add_report(app, action);
  add_compare(app, action);
  add_driver(app, action);

  const std::string word = argc > 1 ? argv[1] : "";
  if (!word.empty() && word[0] != '-')
    if (const std::string names = unknown_command(app, word); !names.empty())
      return fail(2,
                  "the command must be one of " + names + "; got '" + word + "'. Try 'tandem lab --help'.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string chosen =
        app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name();
    return fail(2, std::string(error.what()) + ". Try 'tandem lab" + chosen + " --help'.");
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
    return fail(1, "this machine has not enough memory.");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail(1, "cannot write to the standard output. Send it elsewhere.");
  return 0;
}

}  // namespace
}  // namespace tandem::lab

int main(int argc, char** argv) { return tandem::lab::run(argc, argv); }
