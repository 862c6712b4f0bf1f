// Looking at graphs, and choosing the stages that make them.
#include <algorithm>

#include "tandem/core/op.h"
#include "tandem/graph/compile.h"

namespace tandem {

int GraphView::count(const std::string& op) const {
  int found = 0;
  for (const Node& node : nodes) {
    found += node.op == op;
    for (const auto& chain : node.fused)
      found += static_cast<int>(std::count(chain.begin(), chain.end(), op));
    for (const GraphView& body : node.bodies) found += body.count(op);
  }
  return found;
}

std::string GraphView::describe(const Node& node) const {
  const OpDef* const op = find_op(node.op);  // none: fused, or a branch or a loop
  const auto list = [&](const std::vector<int>& numbers, const OpDef* named) {
    std::string text;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Value& value = values[static_cast<size_t>(numbers[i])];
      if (i) text += ", ";
      if (named && named->inputs.most > 1) text += named->inputs.name(i) + "=";
      text += str("%", numbers[i], " ", value.dtype, " ", value.shape);
    }
    return text;
  };
  std::string what = node.op, attributes;
  for (const Attribute& a : node.attributes)
    attributes += str(attributes.empty() ? "" : ", ", a.name, "=", a.value.print());
  if (!attributes.empty()) what += "[" + attributes + "]";
  if (node.op.empty()) {
    std::string chains;
    for (const auto& chain : node.fused) {
      if (!chains.empty()) chains += " | ";
      for (size_t i = 0; i < chain.size(); ++i) chains += str(i ? " " : "", chain[i]);
      if (chain.empty()) chains += "move";
    }
    what = "fused{" + chains + "}";
  }
  std::string bodies;
  for (const GraphView& body : node.bodies) {
    std::string lines;
    for (const Node& inner : body.nodes) lines += str(lines.empty() ? "" : "; ", body.describe(inner));
    bodies += str(" {", lines, "}");
  }
  return str(list(node.out, nullptr), " = ", what, "(", list(node.in, op), ")", bodies,
             node.algorithm.empty() ? "" : "; ", node.algorithm);
}

std::vector<std::string> all_stages() {
  std::vector<std::string> names = all_passes();
  names.push_back("plan_memory");
  return names;
}

CompileOptions with_stages(const std::vector<std::string>& names) {
  CompileOptions options;
  options.passes.clear();
  options.plan_memory = false;
  for (const std::string& name : names)
    if (name == "plan_memory")
      options.plan_memory = true;
    else
      options.passes.push_back(name);
  return options;
}

}  // namespace tandem
