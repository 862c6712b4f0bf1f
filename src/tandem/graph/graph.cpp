#include "tandem/graph/graph.h"

namespace tandem::graph {

std::string Node::describe(const std::vector<Value>& values) const {
  const auto list = [&](const auto& ids) {
    std::string text;
    for (int v : ids) {
      const Meta& m = values[static_cast<size_t>(v)].meta;
      text += cat(text.empty() ? "" : ", ", "%", v, " ", m.dtype, " ", m.shape);
    }
    return text;
  };
  std::string what;
  if (is_fused()) {
    for (const FusedProgram& p : programs) {
      if (!what.empty()) what += " | ";
      std::string steps;
      for (const auto& step : p.steps) steps += cat(steps.empty() ? "" : " ", step.op->name);
      what += steps.empty() ? "move" : steps;
    }
    what = "fused{" + what + "}";
  } else {
    what = op->name;
    if (!attrs.empty()) what += "[" + attrs.print() + "]";
  }
  return cat(list(out), " = ", what, "(", list(in), ")");
}

std::vector<bool> Graph::assigned_bases() const {
  std::vector<bool> assigned(values.size(), false);
  for (const Node& node : nodes) {
    if (node.changes_memory()) assigned[static_cast<size_t>(base_of(node.in[0]))] = true;
    if (node.is_fused())
      for (int v : node.out)
        if (base_of(v) != v) assigned[static_cast<size_t>(base_of(v))] = true;
  }
  return assigned;
}

int Graph::working_nodes() const {
  int count = 0;
  for (const Node& node : nodes) count += node.is_fused() || !node.op->view;
  return count;
}

void run_pass(const std::string& name, Graph& graph) {
  struct Pass {
    const char* name;
    void (*run)(Graph&);
  };
  static constexpr Pass kPasses[] = {
      {"prune", prune},
      {"common_subexpressions", common_subexpressions},
      {"fold_constants", fold_constants},
      {"fuse_pointwise", fuse_pointwise},
      {"plan_memory", [](Graph&) {}}};  // decides on memory, not on nodes: plan.h
  std::string names;
  for (const Pass& pass : kPasses) {
    if (name == pass.name) return pass.run(graph);
    names += cat(names.empty() ? "" : ", ", pass.name);
  }
  throw Error(cat("compile: a pass must be one of ", names, "; got '", name, "'."));
}

}  // namespace tandem::graph
