// prune: drops nodes whose results reach no output and no state. An assign is state where its memory came from outside,
// or where a later live node reads that memory.
#include "tandem/graph/graph.h"

namespace tandem::graph {

void prune(Graph& graph) {
  std::vector<bool> read(graph.values.size(), false), base_read(graph.values.size(), false);
  const auto mark = [&](int v) {
    read[static_cast<size_t>(v)] = true;
    base_read[static_cast<size_t>(graph.base_of(v))] = true;
  };
  for (int v : graph.outputs) mark(v);
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    bool live = false;
    for (int v : node.out) {
      const int base = graph.base_of(v);
      if (node.op && node.op->view)
        live = live || read[static_cast<size_t>(v)];
      else
        live = live || base_read[static_cast<size_t>(base)] || (base != v && graph.is_external(v));
    }
    if (!live) continue;
    for (int v : node.in) mark(v);
    kept.push_back(std::move(node));
  }
  graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

}  // namespace tandem::graph
