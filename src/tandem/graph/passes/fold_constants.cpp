// fold_constants: what depends on no input, no captured tensor and no random number is run once, when the graph is
// built, by the same kernels. Only small results are kept: a large constant is cheaper to make than to hold.
#include "tandem/graph/graph.h"
#include "tandem/graph/plan.h"

namespace tandem::graph {

void fold_constants(Graph& graph) {
  constexpr size_t kLargestBytes = 4096;
  const std::vector<bool> changed = graph.changed_bases(), returned = graph.returned_bases();
  std::vector<bool> constant(static_cast<size_t>(graph.value_count()), false);
  for (int n = graph.first(); n != kNone;) {
    const int after = graph.next(n);
    const Node& node = graph.node(n);
    // A constant may depend on constants. One that is changed or returned needs fresh memory at each call.
    bool folds =
        !node.is_fused() && !node.bodies && node.effects().resources == 0 && node.effects().writes == 0;
    for (int v : node.in) folds = folds && constant[static_cast<size_t>(v)];
    for (int v : node.out) {
      const size_t base = static_cast<size_t>(graph.base_of(v));
      folds = folds && !changed[base] && !returned[base] &&
              bytes_of_base(graph, graph.base_of(v)) <= kLargestBytes;
    }
    if (folds) {
      for (int v : node.out) constant[static_cast<size_t>(v)] = true;
      graph.fold(n);
    }
    n = after;
  }
}

}  // namespace tandem::graph
