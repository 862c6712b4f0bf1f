#include "cli/command_line.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>

#include "tandem/core/error.h"
#include "tandem/train/settings.h"

namespace tandem::cli {
namespace {

int fail(const CLI::App& app, int status, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), text.c_str());
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

}  // namespace

void as_usage(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

namespace {
std::atomic<bool> g_stop{false};
}
const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (g_stop.exchange(true) && number != SIGPIPE) ::_exit(130);
  };
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    const bool by_nohup = number == SIGHUP && before.sa_handler == SIG_IGN;
    if (!by_nohup) ::sigaction(number, &action, nullptr);
  }
  return g_stop;
}

std::string resume_command(const std::vector<std::string>& arguments, const std::string& out) {
  std::string text = "tandem";
  bool has_out = false, has_resume = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    text += " " + shell_word(arguments[i]);
    has_out = has_out || arguments[i] == "--out" || arguments[i].starts_with("--out=");
    has_resume = has_resume || arguments[i] == "--resume";
  }
  return text + (has_out ? "" : " --out " + shell_word(out)) + (has_resume ? "" : " --resume");
}

int run_command_line(CLI::App& app, const Action& action, int argc, char** argv) {
  const std::string name = app.get_name(), word = argc > 1 ? argv[1] : "";
  if (!word.empty() && word[0] != '-')
    if (const std::string names = unknown_command(app, word); !names.empty())
      return fail(app, 2,
                  "the command must be one of " + names + "; got '" + word + "'. Try '" + name + " --help'.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string chosen =
        app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name();
    return fail(app, 2, std::string(error.what()) + ". Try '" + name + chosen + " --help'.");
  }
  if (!action) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  try {
    action();
  } catch (const UsageError& error) {
    return fail(app, 2, error.what());
  } catch (const Interrupted& stopped) {
    return fail(app, 130, stopped.what());
  } catch (const std::bad_alloc&) {
    return fail(app, 1, "this machine has not enough memory. Try a smaller batch.");
  } catch (const std::exception& error) {
    return fail(app, 1, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail(app, 1, "cannot write to the standard output. Send it elsewhere.");
  return 0;
}

}  // namespace tandem::cli
