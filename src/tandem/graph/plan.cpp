#include "tandem/graph/plan.h"

#include <algorithm>

namespace tandem::graph {

namespace {
constexpr size_t kAlignment =
    256;  // a multiple of every backend's alignment, so both engines' buffers are alike

struct Life {
  int base = 0;
  int from = 0, to = 0;  // node positions, both included
  size_t bytes = 0;
};
}  // namespace

size_t bytes_of_base(const Graph& graph, int base) {
  const Meta& m = graph.meta(base);
  return static_cast<size_t>(size_of(m.shape)) * bytes_of(m.dtype);
}

MemoryPlan plan_memory(const Graph& graph, bool share) {
  MemoryPlan plan;
  plan.offset.assign(graph.values.size(), -1);
  std::vector<bool> apart(graph.values.size(), false);  // outputs and constants have memory of their own
  for (int v : graph.outputs) apart[static_cast<size_t>(graph.base_of(v))] = true;
  for (const Node& node : graph.constants)
    for (int v : node.out) apart[static_cast<size_t>(graph.base_of(v))] = true;

  std::vector<Life> lives;
  std::vector<int> life_of(graph.values.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op && node.op->view) continue;
    const auto touch = [&](int v) {
      const int base = graph.base_of(v);
      if (graph.is_external(v) || apart[static_cast<size_t>(base)]) return;
      int& life = life_of[static_cast<size_t>(base)];
      if (life < 0) {
        life = static_cast<int>(lives.size());
        const size_t bytes = (bytes_of_base(graph, base) + kAlignment - 1) / kAlignment * kAlignment;
        lives.push_back({base, static_cast<int>(i), static_cast<int>(i), std::max(bytes, kAlignment)});
        plan.values_bytes += lives.back().bytes;
      }
      lives[static_cast<size_t>(life)].to = static_cast<int>(i);
    };
    for (int v : node.in) touch(v);
    for (int v : node.out) touch(v);
  }
  // The largest first, each at the lowest place that is free for all of its life.
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<Life> placed;
  for (const Life& life : lives) {
    std::vector<std::pair<size_t, size_t>> taken;
    for (const Life& other : placed)
      if (!share || (other.from <= life.to && life.from <= other.to)) {
        const size_t at = static_cast<size_t>(plan.offset[static_cast<size_t>(other.base)]);
        taken.emplace_back(at, at + other.bytes);
      }
    std::sort(taken.begin(), taken.end());
    size_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + life.bytes <= begin) break;
      at = std::max(at, end);
    }
    plan.offset[static_cast<size_t>(life.base)] = static_cast<int64_t>(at);
    plan.arena_bytes = std::max(plan.arena_bytes, at + life.bytes);
    placed.push_back(life);
  }
  return plan;
}

}  // namespace tandem::graph
