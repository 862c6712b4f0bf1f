// common_subexpressions: the same op with the same attributes on the same values, read at the same version of their
// memory, is computed once. Random ops and results that are assigned to stay apart.
#include <algorithm>
#include <unordered_map>

#include "tandem/graph/graph.h"

namespace tandem::graph {

namespace {

size_t hash_node(const Node& node) {
  size_t h = std::hash<const void*>{}(node.op) ^ node.attrs.hash();
  for (size_t i = 0; i < node.in.size(); ++i)
    h = h * 1000003 + static_cast<size_t>(node.in[i]) * 31 + (node.op->view ? 0 : node.versions[i]);
  return h;
}

/// A view reads no memory, so versions do not matter to it.
bool same_computation(const Node& a, const Node& b) {
  if (a.op != b.op || a.in.size() != b.in.size() || !(a.attrs == b.attrs)) return false;
  for (size_t i = 0; i < a.in.size(); ++i)
    if (a.in[i] != b.in[i] || (!a.op->view && a.versions[i] != b.versions[i])) return false;
  return true;
}

}  // namespace

void common_subexpressions(Graph& graph) {
  const std::vector<bool> assigned = graph.assigned_bases();
  std::vector<bool> is_output(graph.values.size(),
                              false);  // two results of the callable have memory of their own each
  for (int v : graph.outputs) is_output[static_cast<size_t>(graph.base_of(v))] = true;
  std::vector<int> renamed(graph.values.size());
  for (size_t v = 0; v < renamed.size(); ++v) renamed[v] = static_cast<int>(v);
  const auto current = [&](int v) { return renamed[static_cast<size_t>(v)]; };
  const auto rename = [&](int from, int to) {
    renamed[static_cast<size_t>(from)] = to;
    if (is_output[static_cast<size_t>(from)]) is_output[static_cast<size_t>(to)] = true;
  };

  std::unordered_multimap<size_t, size_t> seen;  // hash -> index in kept
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    for (int& v : node.in) v = current(v);
    for (int v : node.out) {  // memory that moved with an earlier merge
      Value& value = graph.values[static_cast<size_t>(v)];
      value.base = current(value.base);
    }
    if (node.is_fused()) {
      kept.push_back(std::move(node));
      continue;
    }
    if (node.op->commutative && node.in.size() == 2 && node.in[0] > node.in[1]) {
      std::swap(node.in[0], node.in[1]);
      std::swap(node.versions[0], node.versions[1]);
    }
    bool mergeable = !node.op->random && !node.op->changes_input;
    if (!node.op->view)
      for (int v : node.out) mergeable = mergeable && !assigned[static_cast<size_t>(graph.base_of(v))];
    bool merged = false;
    const size_t hash = mergeable ? hash_node(node) : 0;
    if (mergeable) {
      const auto [first, last] = seen.equal_range(hash);
      for (auto at = first; at != last && !merged; ++at) {
        const Node& earlier = kept[at->second];
        if (!same_computation(earlier, node)) continue;
        bool both_results = false;
        for (size_t i = 0; i < node.out.size() && !node.op->view; ++i)
          both_results = both_results || (is_output[static_cast<size_t>(node.out[i])] &&
                                          is_output[static_cast<size_t>(earlier.out[i])]);
        if (both_results) continue;
        for (size_t i = 0; i < node.out.size(); ++i) rename(node.out[i], earlier.out[i]);
        merged = true;
      }
    }
    if (merged) continue;
    if (mergeable) seen.emplace(hash, kept.size());
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  for (int& v : graph.outputs) v = current(v);
  for (Value& value : graph.values) value.base = current(value.base);
}

}  // namespace tandem::graph
