// tandem explain MODEL: what the graph engine makes of a training step.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/train.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

void print_json(const std::string& model, const GraphReport& r, bool with_nodes) {
  ordered_json passes = ordered_json::array();
  for (const PassReport& p : r.passes)
    passes.push_back({{"pass", p.pass},
                      {"nodes_before", p.nodes_before},
                      {"nodes_after", p.nodes_after},
                      {"removed_expensive", p.removed_expensive},
                      {"removed_cheap", p.removed_cheap},
                      {"removed_no_op", p.removed_no_op},
                      {"milliseconds", p.milliseconds}});
  ordered_json line = {
      {"model", model},     {"signature", r.signature},       {"executor", r.executor},
      {"inputs", r.inputs}, {"captured", r.captured},         {"outputs", r.outputs},
      {"passes", passes},   {"values_bytes", r.values_bytes}, {"arena_bytes", r.arena_bytes}};
  if (with_nodes) line["nodes"] = r.nodes;
  std::printf("%s\n", line.dump().c_str());
}

void print_text(const std::string& model, const GraphReport& r, bool with_nodes) {
  std::printf("One training step of %s: %s\n", model.c_str(), r.signature.c_str());
  std::printf("%d inputs, %d tensors of state, %d outputs; executor: %s\n\n", r.inputs, r.captured, r.outputs,
              r.executor.c_str());
  Table passes({"pass", "nodes before", "after", "removed: expensive", "cheap", "no-op", "ms"},
               {1, 2, 3, 4, 5, 6});
  for (const PassReport& p : r.passes)
    passes.add({p.pass, std::to_string(p.nodes_before), std::to_string(p.nodes_after),
                std::to_string(p.removed_expensive), std::to_string(p.removed_cheap),
                std::to_string(p.removed_no_op), fixed(p.milliseconds, 3)});
  passes.print();
  Table memory;
  memory.add({"memory", "values of their own", bytes_text(r.values_bytes)});
  memory.add({"", "as planned, one arena", bytes_text(r.arena_bytes)});
  std::printf("\n");
  memory.print();
  if (!with_nodes) return;
  std::printf("\n");
  for (const std::string& node : r.nodes) std::printf("  %s\n", node.c_str());
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  struct Flags {
    TrainConfig config;
    CompileOptions options;
    MachineFlags machine;
    bool json = false, nodes = false;
  };
  auto flags = std::make_shared<Flags>();
  TrainConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("explain", "show what the graph engine makes of a training step");
  cmd->add_option("MODEL", c.model, "a name from 'tandem models'")->required();
  cmd->add_option("--batch", c.batch, "samples a step")->capture_default_str();
  cmd->add_option("--optimizer", c.optimizer, optim::optimizer_names())->capture_default_str();
  flags->machine.add(*cmd, true);
  cmd->add_option("--threads", c.threads, "CPU threads");
  cmd->add_option("--passes", flags->options.passes, "the passes to run, in order")
      ->delimiter(',')
      ->capture_default_str();
  cmd->add_flag("--nodes", flags->nodes, "list the nodes that are left");
  cmd->add_flag("--json", flags->json, "print one JSON object");
  cmd->callback([flags, &action] {
    action = [flags] {
      as_usage([&] {
        flags->machine.parse_into(flags->config);
        check(flags->config);
        if (flags->config.engine == Engine::eager)
          throw UsageError(
              "explain: the eager engine runs every operation as it comes and has no passes. Leave "
              "--engine out.");
      });
      const GraphReport report = explain(flags->config, flags->options);
      (flags->json ? print_json : print_text)(flags->config.model, report, flags->nodes);
    };
  });
}

}  // namespace tandem::cli
