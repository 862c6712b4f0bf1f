// What programs have in common that are written with a parser of flags such as CLI11: they run the chosen subcommand and
// turn errors into one line on stderr and an exit status: 0 done, 1 it failed, 2 wrong usage, 130 stopped by a signal.
// It is part of the library because both `tandem` and the lab are such programs, and the lab may be built against an
// installed Tandem.
#pragma once

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// Wrong usage found after parsing: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Stopped by a signal, and can go on: exit status 130.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the chosen subcommand will do once parsing is over.
using Action = std::function<void()>;

/// Runs `read`, which makes something of what the user typed: an Error in it is wrong usage.
void as_usage(const std::function<void()>& read);

/// From now on a write beyond the size that files may have (ulimit -f) fails, which is an Error in one line, and does not
/// end the process by SIGXFSZ.
void fail_on_large_files();
/// The status, or that of a failure where not all of the standard output could be written.
int status_of_output(const std::string& name, int status);

/// Prints "NAME: TEXT" as one line on stderr; returns the status.
int fail_with(const std::string& name, int status, std::string text);
/// Runs the action; `name` begins every message. Returns the exit status.
int run_action(const std::string& name, const Action& action);

/// The first flag of a command line that was given with an empty text, such as --out ""; empty: none. A command would take
/// it as not given. (Arguments without a flag may be empty: a text can be.)
template <class App>
std::string empty_flag(const App& app) {
  for (const auto* option : app.get_options())
    if (option->count() > 0 && option->nonpositional())
      for (const std::string& text : option->results())
        if (text.empty()) return option->get_name();
  for (const auto* command : app.get_subcommands())
    if (const std::string name = empty_flag(*command); !name.empty()) return name;
  return "";
}

/// Parses, then runs the action that a subcommand has set. App and ParseError are CLI11's. Returns the exit status.
template <class ParseError, class App>
int run_command_line(App& app, const Action& action, int argc, char** argv) {
  const std::string name = app.get_name(), word = argc > 1 ? argv[1] : "";
  std::string names;
  bool is_known = word.empty() || word[0] == '-';
  for (const App* command : app.get_subcommands([](const App*) { return true; })) {
    is_known = is_known || command->get_name() == word;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  fail_on_large_files();
  if (!is_known)
    return fail_with(
        name, 2, "the command must be one of " + names + "; got '" + word + "'. Try '" + name + " --help'.");
  try {
    app.parse(argc, argv);
  } catch (const ParseError& error) {
    if (error.get_exit_code() == 0) return status_of_output(name, app.exit(error));
    const std::string chosen =
        app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name();
    return fail_with(name, 2, std::string(error.what()) + ". Try '" + name + chosen + " --help'.");
  }
  if (const std::string flag = empty_flag(std::as_const(app)); !flag.empty())
    return fail_with(
        name, 2, flag.substr(2) + ": must not be empty; got ''. Give a value, or leave " + flag + " out.");
  if (action) return run_action(name, action);
  std::fputs(app.help().c_str(), stderr);
  return 2;
}

}  // namespace tandem
