// fold_constants: what depends on no input, no captured tensor and no random number is run once, when the graph is
// built, by the same kernels. Only small results are kept: a large constant is cheaper to make than to hold.
#include "tandem/graph/graph.h"

namespace tandem::graph {

void fold_constants(Graph& graph) {
  constexpr size_t kLargestBytes = 4096;
  const std::vector<bool> assigned = graph.assigned_bases();
  std::vector<bool> constant(graph.values.size(), false);
  std::vector<bool> is_output(graph.values.size(), false);
  for (int v : graph.outputs) is_output[static_cast<size_t>(graph.base_of(v))] = true;
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    bool folds = !node.is_fused() && !node.op->random && !node.op->changes_input;
    for (int v : node.in) folds = folds && constant[static_cast<size_t>(v)];
    for (int v : node.out) {
      const int base = graph.base_of(v);
      const Meta& m = graph.meta(base);
      folds = folds && !assigned[static_cast<size_t>(base)] && !is_output[static_cast<size_t>(base)] &&
              static_cast<size_t>(size_of(m.shape)) * bytes_of(m.dtype) <= kLargestBytes;
    }
    for (int v : node.out) constant[static_cast<size_t>(v)] = folds;
    (folds ? graph.constants : kept).push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
}

}  // namespace tandem::graph
