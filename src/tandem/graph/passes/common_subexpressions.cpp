// common_subexpressions: the same op with the same attributes on the same values, read at the same version of their
// memory, is computed once. What is computed again on purpose (a checkpoint), draws random numbers, acts on the outside
// or is changed in place later stays apart.
#include <algorithm>
#include <unordered_map>

#include "tandem/graph/graph.h"

namespace tandem::graph {

namespace {

/// What one input is: a value, and the version of its memory where that is read.
struct Operand {
  int value;
  uint32_t version;
  friend auto operator<=>(const Operand&, const Operand&) = default;
};

SmallVector<Operand, 4> operands(const Node& node) {
  SmallVector<Operand, 4> list;
  for (size_t i = 0; i < node.in.size(); ++i)
    list.push_back({node.in[i], node.reads_input(i) ? node.versions[i] : 0});
  // a + b and b + a are one computation: the op says that its bits are the same.
  if (node.op->commutative) std::sort(list.begin(), list.end());
  return list;
}

size_t hash_node(const Node& node) {
  size_t h = std::hash<const void*>{}(node.op) ^ node.attrs.hash();
  for (const Operand& o : operands(node)) h = h * 1000003 + static_cast<size_t>(o.value) * 31 + o.version;
  return h;
}

bool same_computation(const Node& a, const Node& b) {
  if (a.op != b.op || a.repeated != b.repeated || a.in.size() != b.in.size() || !(a.attrs == b.attrs))
    return false;
  const auto x = operands(a), y = operands(b);
  return std::equal(x.begin(), x.end(), y.begin());
}

}  // namespace

void common_subexpressions(Graph& graph) {
  const std::vector<bool> changed = graph.changed_bases();
  std::vector<bool> returned =
      graph.returned_bases(false);            // two results of the callable have memory of their own each
  std::unordered_multimap<size_t, int> seen;  // hash -> node
  for (int n = graph.first(), after = kNone; n != kNone; n = after) {
    after = graph.next(n);
    const Node& node = graph.node(n);
    bool mergeable =
        !node.is_fused() && !node.bodies && node.effects().resources == 0 && node.effects().writes == 0;
    for (int v : node.out) mergeable = mergeable && (node.is_view() || !changed[static_cast<size_t>(v)]);
    if (!mergeable) continue;
    const size_t hash = hash_node(node);
    const auto [begin, end] = seen.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& row) {
      const Node& earlier = graph.node(row.second);
      if (!same_computation(earlier, node)) return false;
      for (size_t i = 0; i < node.out.size() && !node.is_view(); ++i)
        if (returned[static_cast<size_t>(node.out[i])] && returned[static_cast<size_t>(earlier.out[i])])
          return false;
      return true;
    });
    if (same == end) {
      seen.emplace(hash, n);
      continue;
    }
    // The earlier node stays, so that its result stands before every use of the later one.
    const Node gone = graph.erase(n);
    for (size_t i = 0; i < gone.out.size(); ++i) {
      const int kept = graph.node(same->second).out[i];
      graph.replace(gone.out[i], kept);
      if (returned[static_cast<size_t>(gone.out[i])]) returned[static_cast<size_t>(kept)] = true;
    }
  }
}

}  // namespace tandem::graph
