// The command `tandem-lab`, which `tandem lab` becomes: its subcommands.
#include <algorithm>
#include <string>

#include "lab/src/command/commands.h"

namespace tandem::lab {
namespace {

int run(int argc, char** argv) {
  CLI::App app("The lab: reruns five papers' comparisons of deep-learning frameworks on this machine.",
               "tandem lab");
  app.require_subcommand(0, 1);
  Action action;
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  add_list(app, action);
  add_setup(app, action);
  add_network(app, action);
  add_run(app, action, arguments);
  add_advise(app, action, arguments);
  add_report(app, action);
  add_publish(app, action);
  add_compare(app, action);
  add_driver(app, action);
  return run_command_line<CLI::ParseError>(app, action, argc, argv);
}

}  // namespace
}  // namespace tandem::lab

int main(int argc, char** argv) { return tandem::lab::run(argc, argv); }
