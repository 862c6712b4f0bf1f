// What the programs `tandem` and `tandem-lab` have in common: parsing, running the chosen subcommand, and turning errors
// into one line on stderr and an exit status: 0 done, 1 it failed, 2 wrong usage, 130 stopped by a signal.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::cli {

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

/// From now on the first signal sets what is returned, so that what is under way can end well; the second ends the process
/// at once. A reader of our output that goes away stops it as well, but never at once: it goes together with a terminal
/// that hangs up.
const std::atomic<bool>& stop_on_signals();

/// The command line that goes on with what was stopped, in folder `out`.
std::string resume_command(const std::vector<std::string>& arguments, const std::string& out);

/// Parses, then runs the action that a subcommand has set. `app`'s name begins every message. Returns the exit status.
int run_command_line(CLI::App& app, const Action& action, int argc, char** argv);

}  // namespace tandem::cli
