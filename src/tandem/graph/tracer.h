// Traces a callable into a Graph.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "tandem/core/trace.h"
#include "tandem/graph/graph.h"

namespace tandem::graph {

/// A tensor that the callable captured, as it stood while tracing. A call whose captures no longer stand so is traced
/// again.
struct Capture {
  Ref<TensorImpl> tensor;
  Ref<Storage> storage;
  bool holds() const { return tensor->storage == storage; }
};
struct Flag {
  std::shared_ptr<const bool> flag;
  bool value;
  bool holds() const { return *flag == value; }
};
/// What the callable does to the grad of a leaf - a captured tensor, or input number `input` - at each call.
struct LeafGradient {
  Ref<TensorImpl> leaf;
  int input = -1;
  bool zeroed = false;  // zero_grad() was called on it
  int output = -1;      // the output of the graph that becomes its grad; -1: none
};

struct Trace {
  Graph graph;
  std::vector<Capture> captures;
  std::vector<Flag> flags;
  std::vector<LeafGradient> gradients;
  size_t results = 0;  // the first outputs of the graph are the callable's results
};

Trace trace(const TensorFunction& function, const std::vector<Tensor>& inputs);

}  // namespace tandem::graph
