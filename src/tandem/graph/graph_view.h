// Compiled graphs to look at: what was traced, what the passes did, and which memory it takes.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/attrs.h"
#include "tandem/core/candidates.h"
#include "tandem/core/shape.h"

namespace tandem {

/// What one pass did.
struct PassReport {
  std::string pass;
  int nodes_before = 0, nodes_after = 0;
  int removed_expensive = 0, removed_cheap = 0, removed_no_op = 0;  // by the ops' cost class
  double milliseconds = 0;
};

/// A compiled graph, to look at: values by number, and nodes in the order in which they run.
struct GraphView {
  struct Value {
    Dims shape;
    DType dtype;
    std::string source;  // "input", "captured", "computed"
    int base;            // the value whose memory it lives in; its own number where that is its own
  };
  struct Node {
    std::string op;                               // empty: fused
    std::vector<std::vector<std::string>> fused;  // the chains that run as one kernel, each by its ops
    std::vector<Attribute> attributes;
    std::vector<int> in, out;  // values
    std::string algorithm;     // where there are several: the name of the implementation that computes it
    std::vector<Candidate> candidates;  // all of these, in order
    std::vector<GraphView> bodies;      // graphs that hang on it: branches of a cond, the step of a loop
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int>
      results;  // values that are returned; then gradients left on leaves, and what is kept for the backward pass

  /// How many nodes run this op, fused or alone, those of bodies included.
  int count(const std::string& op) const;
  /// "%6 f32 (2, 3) = conv[stride=1](%0 f32 (2, 4)); direct"
  std::string describe(const Node& node) const;
};

/// What became of one traced signature.
struct GraphReport {
  /// "f32 (100, 1, 28, 28) cpu, i64 (100,) cpu; grad"; inputs with names have them in front.
  std::string signature;
  std::vector<PassReport> passes;
  GraphView graph;  // after the passes
  int inputs = 0, captured = 0, outputs = 0;
  /// Of a CompiledNamed; else empty.
  std::vector<std::string> input_names, result_names;
  int kept = 0;             // values that each call keeps for its backward pass
  size_t values_bytes = 0;  // if every value had memory of its own
  size_t arena_bytes = 0;   // as planned
  std::string executor;     // "cpu: 12 kernels in order" …
};

}  // namespace tandem
