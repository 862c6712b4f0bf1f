// tandem explain MODEL: what the graph engine makes of a training step.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "tandem/core/op.h"
#include "tandem/train/train.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

/// What stands beside a candidate: "chosen", "can", or why it cannot.
std::string state_of(const Candidate& candidate, const GraphView::Node& node) {
  if (!candidate.why_not.empty()) return candidate.why_not;
  return candidate.name == node.algorithm ? "chosen" : "can";
}

ordered_json graph_json(const GraphView& graph) {
  const auto json_value = [](const AttrValue& value) -> ordered_json {
    switch (value.kind) {
      case AttrValue::Kind::integer:
        return value.integer;
      case AttrValue::Kind::number:
        return value.number;
      case AttrValue::Kind::truth:
        return value.integer != 0;
      case AttrValue::Kind::text:
        return value.text;
      case AttrValue::Kind::list:
        return value.list;
    }
    return nullptr;
  };
  ordered_json values = ordered_json::array(), nodes = ordered_json::array();
  for (const GraphView::Value& value : graph.values)
    values.push_back({{"shape", std::vector<int64_t>(value.shape.begin(), value.shape.end())},
                      {"dtype", name(value.dtype)},
                      {"source", value.source},
                      {"base", value.base}});
  for (const GraphView::Node& node : graph.nodes) {
    ordered_json& line = nodes.emplace_back();
    if (node.op.empty())
      line["fused"] = node.fused;
    else
      line["op"] = node.op;
    ordered_json attributes = ordered_json::object();
    for (const Attribute& attribute : node.attributes)
      attributes[attribute.name] = json_value(attribute.value);
    if (!attributes.empty()) line["attributes"] = std::move(attributes);
    line["in"] = node.in;
    if (const OpDef* op = find_op(node.op)) {
      for (size_t i = 0; i < node.in.size(); ++i) line["arguments"].push_back(op->inputs.name(i));
      line["about"] = op->about ? op->about : "";
    }
    line["out"] = node.out;
    if (!node.algorithm.empty()) line["algorithm"] = node.algorithm;
    for (const Candidate& candidate : node.candidates)
      line["implementations"].push_back({{"name", candidate.name},
                                         {"can", candidate.why_not.empty()},
                                         {"state", state_of(candidate, node)},
                                         {"workspace", candidate.workspace}});
    for (const GraphView& body : node.bodies) line["bodies"].push_back(graph_json(body));
  }
  return {{"values", values}, {"nodes", nodes}, {"results", graph.results}};
}

/// Which parts of the report are printed.
struct Parts {
  bool nodes = false, convolutions = false, products = false;

  bool has_nodes() const { return nodes || convolutions || products; }
  bool lists(const GraphView::Node& node) const {
    return !node.candidates.empty() && (node.op.starts_with("conv") ? convolutions : products);
  }
};

void print_graph_json(const std::string& model, const GraphReport& r, const Parts& parts) {
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
  if (parts.has_nodes()) line["graph"] = graph_json(r.graph);
  print_line(line);
}

void print_candidates(const GraphView& graph, const Parts& parts) {
  for (const GraphView::Node& node : graph.nodes) {
    for (const GraphView& body : node.bodies) print_candidates(body, parts);
    if (!parts.lists(node)) continue;
    std::printf("\n  %s\n", graph.describe(node).c_str());
    Table rows;
    for (const Candidate& candidate : node.candidates)
      rows.add({"", candidate.name, state_of(candidate, node)});
    rows.print();
  }
}

void print_graph_text(const std::string& model, const GraphReport& r, const Parts& parts) {
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
  if (parts.nodes) {
    std::printf("\n");
    for (const GraphView::Node& node : r.graph.nodes) std::printf("  %s\n", r.graph.describe(node).c_str());
  }
  print_candidates(r.graph, parts);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  struct Flags {
    std::string model;
    SettingFlags settings;
    std::vector<std::string> stages = all_stages();
    bool json = false, nodes = false, implementations = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand("explain", "show what the graph engine makes of a training step");
  cmd->add_option("MODEL", flags->model, setting("model").help)->required();
  flags->settings.add(*cmd, kStepSettings);
  cmd->add_option("--passes", flags->stages, "the passes to run, in order, and plan_memory")
      ->delimiter(',')
      ->capture_default_str();
  cmd->add_flag("--nodes", flags->nodes, "list the nodes that are left");
  cmd->add_flag(
      "--implementations", flags->implementations,
      "list the implementations of each convolution and matrix product: which is chosen, which can, and "
      "why the others cannot; --conv and --matmul alone list those of their kind");
  cmd->add_flag("--json", flags->json, "print one JSON object");
  cmd->callback([cmd, flags, &action] {
    action = [cmd, flags] {
      TrainConfig config;
      as_usage([&] {
        config = flags->settings.config({{"model", flags->model}});
        check(config);
        if (config.engine == Engine::eager)
          throw UsageError(
              "explain: the eager engine runs every operation as it comes and has no passes. Leave "
              "--engine out.");
      });
      const GraphReport report = explain(config, with_stages(flags->stages));
      const Parts parts{flags->nodes, flags->implementations || cmd->count("--conv") > 0,
                        flags->implementations || cmd->count("--matmul") > 0};
      (flags->json ? print_graph_json : print_graph_text)(config.model, report, parts);
    };
  });
}

}  // namespace tandem::cli
