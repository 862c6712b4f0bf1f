// Traces a callable into a Graph, and notes what else the trace depended on.
#pragma once

#include <functional>
#include <vector>

#include "tandem/core/trace.h"
#include "tandem/graph/graph.h"

namespace tandem::graph {

/// A tensor from outside that the callable used, as it stood while tracing.
struct Capture {
  Ref<TensorImpl> tensor;
  Ref<Storage> storage;
  Meta meta;
  bool requires_grad = false;
  bool memory_holds() const;  // false: rebound since
  bool holds() const { return tensor->requires_grad == requires_grad; }
};
/// A switch that it asked for.
struct Switch {
  std::shared_ptr<const uint64_t> place;
  uint64_t value;
  bool holds() const { return *place == value; }
};
/// A gradient, or its absence, that it read from a tensor from outside.
struct HeldGradient {
  Ref<TensorImpl> tensor, gradient;
  bool holds() const { return tensor->grad == gradient; }
};
/// What the callable does to the grad of a leaf - a captured tensor, or input number `input` - at each call.
struct LeafGradient {
  Ref<TensorImpl> leaf;
  int input = -1;
  bool zeroed = false;  // it began by dropping it (zero_grad, set_grad); otherwise by adding to it (backward)
  int output = -1;      // the output of the graph that becomes its grad; -1: none
};

/// Everything that a trace depended on besides the inputs: a call for which it does not hold is traced again.
struct Dependencies {
  std::vector<Capture> captures;
  std::vector<Switch> switches;
  std::vector<HeldGradient> gradients;
  /// False where memory that the graph refers to has been replaced: the trace is of no use any more.
  bool memory_holds() const;
  bool hold() const;
};

struct Trace {
  Graph graph;
  Dependencies depends_on;
  std::vector<LeafGradient> gradients;
  size_t results = 0;                  // the first outputs of the graph are the callable's results
  std::vector<const CopyMark*> marks;  // of the results
};

Trace trace(const TensorFunction& function, const std::vector<Tensor>& inputs);

}  // namespace tandem::graph
