// The graph: values, and nodes in an order of execution. A value lives in the memory of its base: itself, or (for views
// and for the results of assign) the value whose memory it shares. Passes change the graph; none changes a bit of what
// it computes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/op.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/fused.h"

namespace tandem::graph {

/// Where the memory of a base comes from.
enum class Source : uint8_t { input, captured, computed };

struct Value {
  Meta meta;     // offset counts from the start of the base's memory
  int base = 0;  // the value whose memory this lives in
  Source source = Source::computed;
  Ref<Storage> storage;  // captured bases
  int input = -1;        // input bases: which input
};

struct Node {
  const OpDef* op = nullptr;  // null: fused
  Attrs attrs;
  SmallVector<int, 4> in, out;
  SmallVector<uint32_t, 4>
      versions;                // how often the base of each input had been assigned to when it was read
  uint64_t random_offset = 0;  // blocks into this call's part of the random stream
  std::vector<FusedProgram> programs;  // fused: run as one; inputs and outputs one after the other
  int fused_nodes = 0;                 // how many ops they stand for

  bool is_fused() const { return op == nullptr; }
  bool changes_memory() const { return op && op->changes_input; }
  std::string describe(const std::vector<Value>& values) const;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Node> constants;  // run once, when the graph is built (fold_constants)
  std::vector<int> outputs;
  int inputs = 0;
  int captured = 0;
  uint64_t random_blocks = 0;
  Device device;

  int base_of(int value) const { return values[static_cast<size_t>(value)].base; }
  const Meta& meta(int value) const { return values[static_cast<size_t>(value)].meta; }
  bool is_external(int value) const {
    return values[static_cast<size_t>(base_of(value))].source != Source::computed;
  }
  /// Bases that some node assigns to.
  std::vector<bool> assigned_bases() const;
  /// Nodes that do work: all but views.
  int working_nodes() const;
};

/// The passes, by name (see CompileOptions). Throws Error for a name that is none.
void run_pass(const std::string& name, Graph& graph);

void prune(Graph& graph);                  // drops what no result and no state depends on
void common_subexpressions(Graph& graph);  // computes equal things once
void fold_constants(Graph& graph);         // runs what depends on nothing, once
void fuse_pointwise(Graph& graph);  // turns chains of pointwise ops (and their assigns) into one kernel

}  // namespace tandem::graph
