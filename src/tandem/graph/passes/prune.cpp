// prune: drops nodes that nobody needs. A node is needed where it acts on something outside (an ordered effect, memory
// that came from outside, a refusal), or where a later needed node, or the caller, uses the memory that it writes.
#include "tandem/graph/graph.h"

namespace tandem::graph {

void prune(Graph& graph) {
  std::vector<bool> used = graph.returned_bases();  // by base, by what comes later
  const auto use = [&](int v) { used[static_cast<size_t>(graph.base_of(v))] = true; };
  for (int n = graph.last(); n != kNone;) {
    const int before = graph.previous(n);
    const Node& node = graph.node(n);
    bool needed = node.effects().is_ordered() || node.effects().refuses;
    if (node.is_view())
      needed = !graph.uses_of(node.out[0]).empty();
    else
      graph.writes_of(node, [&](int v) {
        needed = needed || used[static_cast<size_t>(graph.base_of(v))] ||
                 (graph.is_changed_in_place(v) && graph.is_external(v));
      });
    if (needed) {
      for (int v : node.in) use(v);
      for (int v : node.out) use(v);
    } else {
      graph.erase(n);
    }
    n = before;
  }
}

}  // namespace tandem::graph
