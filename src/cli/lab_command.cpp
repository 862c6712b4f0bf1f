// tandem lab …: hands over to bin/tandem-lab, a program of its own beside this one, so that who only trains and predicts
// carries none of the lab.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "tandem/core/error.h"

namespace tandem::cli {

void add_lab(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  CLI::App* cmd = app.add_subcommand("lab", "compare frameworks as five papers did: try 'tandem lab --help'");
  // All that follows belongs to the lab, its --help too.
  cmd->prefix_command();
  cmd->set_help_flag();
  cmd->callback([arguments, &action] {
    action = [arguments] {
      std::error_code failed;
      const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
      const std::string program = (self.parent_path() / "tandem-lab").string();
      TD_CHECK(
          !failed && ::access(program.c_str(), X_OK) == 0,
          "lab: the program tandem-lab must lie beside tandem; got none in '", self.parent_path().string(),
          "'. Run ./tandem lab in the repository, which builds it (it needs toml++: libtomlplusplus-dev).");
      std::vector<std::string> words(arguments.begin() + 2, arguments.end());
      std::vector<char*> pointers = {const_cast<char*>(program.c_str())};
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(program.c_str(), pointers.data());
      throw resource_error("lab: '", program, "' must be a program that runs; got '", std::strerror(errno),
                           "'. Build it again.");
    };
  });
}

}  // namespace tandem::cli
