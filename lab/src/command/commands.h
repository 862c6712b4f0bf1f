// The commands of `tandem-lab`, which `tandem lab` becomes. Each adds a subcommand to the parser; when that is chosen, it
// reads its flags, calls the lab and prints.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "lab/src/driver/catalogue.h"
#include "lab/src/measure/gatekeeper.h"
#include "lab/src/study/study.h"
#include "tandem/train/program.h"

namespace tandem::lab {

void add_list(CLI::App& app, Action& action);
void add_setup(CLI::App& app, Action& action);
void add_network(CLI::App& app, Action& action);
/// `arguments`: the whole command line, for the provenance and to say how a stopped study goes on.
void add_run(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
/// The same.
void add_advise(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_driver(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_publish(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);

/// An option that takes a whole number of that range and refuses all else: CLI11's own makes 18446744073709551615 of -1, and
/// of what is too large the largest that there is. `why` follows the range in its message.
CLI::Option* add_whole(CLI::App& command, const std::string& flag, Whole range,
                       std::function<void(int64_t)> take, const std::string& help,
                       const std::string& why = "");

/// Makes the folder where it is missing. Throws UsageError where it cannot be made, or not be written to.
void make_folder(const std::string& flag, const std::string& folder);

/// Cores that this program may use.
int64_t usable_cores();
/// Starts drivers as drivers.toml says, and a further file of its form ("": none).
Launcher catalogue_launcher(const std::string& further = "");
/// Ctrl-C, SIGTERM and SIGHUP turn the flag true; the second one ends the program at once, with status 130, and the guards
/// of its drivers end those.
const std::atomic<bool>* stop_on_signals();
/// Columns of the terminal that stdout is; 0 where it is none.
size_t terminal_width();
/// Rows in aligned columns on stdout, two spaces between, each in one line.
void print_rows(const std::vector<std::vector<std::string>>& rows);
/// The words of a command line as one would type them.
std::string quoted(const std::vector<std::string>& arguments);

}  // namespace tandem::lab
