// tandem lab network: a workload's network as the drivers get it.
#include <cstdio>
#include <memory>

#include "lab/src/command/commands.h"
#include "lab/src/inputs/network.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// "3x32x32"; empty: none.
std::vector<int64_t> sizes_of(const std::string& text) {
  std::vector<int64_t> sizes;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    TD_CHECK(!part.empty() && part.size() <= 6 && part.find_first_not_of("0123456789") == std::string::npos &&
                 std::stoll(part) > 0,
             "--input: must be sizes above 0 with an x between, such as 3x32x32; got '", text, "'.");
    sizes.push_back(std::stoll(part));
    begin = end + 1;
  }
  return sizes;
}

}  // namespace

void add_network(CLI::App& app, Action& action) {
  struct Flags {
    std::string workload, input, study;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd =
      app.add_subcommand("network", "print a workload's network as the drivers get it: one JSON object");
  cmd->add_option("WORKLOAD", flags->workload, "a workload of 'tandem lab list'")->required();
  cmd->add_option("--study", flags->study, "the study, or its file, that brings the workload along");
  cmd->add_option("--input", flags->input, "sizes of a sample, such as 3x32x32 (default: the workload's)");
  cmd->callback([flags, &action] {
    action = [flags] {
      as_usage([&] {
        const Workload workload = flags->study.empty() ? load_workload(flags->workload)
                                                       : workloads_of(flags->study).load(flags->workload);
        std::printf("%s\n", load_network(workload, sizes_of(flags->input)).json().dump().c_str());
      });
    };
  });
}

}  // namespace tandem::lab
