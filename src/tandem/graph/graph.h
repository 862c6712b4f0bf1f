// The graph: values, and nodes in an order of execution. A value lives in the memory of its base: itself, or (for views
// and for what a node changes in place) the value whose memory it shares. Passes change the graph through the functions
// below; none changes a bit of what it computes.
//
// A node may have graphs of its own that hang on it, its bodies: the branches of a cond(), the step of a loop.
//
// What a node reads, writes and touches follows from the effects of its op (core/op.h), or from those of its bodies, and
// nothing else: ask reads_of, writes_of and Node::effects. verify() tells whether a graph still computes what was traced,
// as far as its structure shows: each pass is followed by it in the tests and in sanitizer builds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/core/op.h"
#include "tandem/core/scope.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/fused.h"

namespace tandem::graph {

inline constexpr int kNone = -1;

/// Where the memory of a base comes from.
enum class Source : uint8_t { input, captured, computed };

/// Input number `operand` of node `node`; or, where node is kNone, result number `operand` of the graph.
struct Use {
  int node = kNone;
  int operand = 0;
};

struct Value {
  Meta meta;     // offset counts from the start of the base's memory
  int base = 0;  // the value whose memory this lives in
  Source source = Source::computed;
  Ref<Storage> storage;  // captured bases
  int input = -1;        // input bases: which input
  int maker = kNone;     // the node that makes it; kNone for what comes from outside, and for what was erased
  std::vector<Use> uses;
};

class Graph;

/// A graph that hangs on a node, which runs it. Its input i is the node's input in[i], whole memory with its memory; its
/// result k becomes the node's output out[k], which the others of the node's bodies may leave as it is.
struct Body {
  std::shared_ptr<const Graph> graph;
  std::vector<int> in, out;
};
/// How a node runs its first body again and again. Where it has a second one, the condition, that runs before each time on
/// the values that are carried (its first inputs), and ends the loop where its result, one bool, is false.
struct Loop {
  /// Of an input or result of the body: each run has a slice of the node's input or output, so many bytes apart.
  struct Slices {
    int of = 0;
    int64_t bytes = 0;
  };
  int64_t count = 0;      // of runs; with a condition: the most
  bool from_end = false;  // the first run has the last slice
  std::vector<int>
      carried;  // inputs of the body: result number i of a run is carried[i] in the next. The first run reads
                // the node's input, the last one writes its output
  std::vector<int>
      history;  // by carried: the output of the node that gets the values before each run as slices; kNone
  std::vector<Slices> sliced, stacked;  // inputs; results
  uint64_t random_blocks = 0;           // each run draws so far behind the one before
  bool repeats =
      false;  // it goes back over the runs of another loop: random numbers are those of that, last run first
  int count_in = kNone,
      count_out = kNone;  // the input (i64) that says how many runs, where `count` is the most; the
                          // output that gets it

  /// From one slice to the next where only the engine looks at them. Slices are aligned, so that kernels find them like
  /// fresh memory.
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t padded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};
/// The bodies of one node: one of them runs, or they are a loop.
struct Bodies {
  std::vector<Body> list;
  std::vector<int> changed;  // the inputs that the node's last outputs are: those that some body changes
  std::shared_ptr<const Loop> loop;  // null: none
  /// Whether they are a loop that runs `count` times each time.
  bool has_fixed_count() const { return loop && list.size() == 1 && loop->count_in == kNone; }
  /// All that they may draw.
  uint64_t random_blocks() const;
  // Of the node and all bodies together; Graph::insert() fills them in.
  Effects effects;
  std::vector<bool> reads;  // by input
};

struct Node {
  const OpDef* op = nullptr;  // null: fused
  Attrs attrs;
  SmallVector<int, 4> in, out;
  SmallVector<uint32_t, 4> versions;  // how often the base of each input had been changed when it was read
  uint64_t random_offset = 0;         // blocks into this call's part of the random stream
  uint64_t repeated = 0;              // Region::repeated(): merged only with nodes of the same
  uint64_t order = 0;                 // ordered effects: the place among them
  std::shared_ptr<const std::string> layer;  // current_layer() while it was traced
  ScopeChain scope;                          // current_scope() while it was traced; fused: common to all ops
  std::vector<FusedProgram> programs;        // fused: run as one; inputs and outputs one after the other
  std::shared_ptr<const Bodies> bodies;      // null: none

  bool is_fused() const { return op == nullptr; }
  bool is_view() const { return op && op->is_view(); }
  /// Resources and refusals. Of a node with bodies: its own, and all of theirs.
  const Effects& effects() const { return op ? bodies ? bodies->effects : op->effects : kFusedEffects; }
  /// Whether it looks at the values of an input.
  bool reads_input(size_t i) const { return bodies ? bodies->reads[i] : effects().reads_input(i); }
  /// The input whose memory an output lives in; -1: memory of its own. Of a fused node the bases of its outputs tell.
  int alias_of(size_t output) const;
  /// The ops in it: its own, or those of its programs.
  std::string what() const;

 private:
  friend class Graph;
  static constexpr Effects kFusedEffects{};
  int previous_ = kNone, next_ = kNone;
  SmallVector<int, 4> places_;  // of each input in its value's list of uses
  bool erased_ = false;
};

class Graph {
 public:
  int inputs = 0;
  int captured = 0;
  uint64_t random_blocks = 0;
  int kept = 0;  // of the outputs, the last so many are kept for a backward pass: they may share memory
  Device device;

  // --- values and nodes, by number. Numbers stay; an erased node's is not given out again.
  int value_count() const { return static_cast<int>(values_.size()); }
  const Value& value(int v) const { return values_[static_cast<size_t>(v)]; }
  const Meta& meta(int v) const { return value(v).meta; }
  int base_of(int v) const { return value(v).base; }
  /// The value that input number `input` is.
  int value_of_input(int input) const;
  bool is_external(int v) const { return value(base_of(v)).source != Source::computed; }
  const std::vector<Use>& uses_of(int v) const { return value(v).uses; }
  const Node& node(int n) const { return nodes_[static_cast<size_t>(n)]; }
  int node_count() const { return live_nodes_; }

  /// The nodes in order: `for (int n = first(); n != kNone; n = next(n))`.
  int first() const { return first_; }
  int last() const { return last_; }
  int next(int n) const { return node(n).next_; }
  int previous(int n) const { return node(n).previous_; }

  /// What the graph returns.
  const std::vector<int>& outputs() const { return outputs_; }
  /// Nodes that run once, when the graph is built, in this order (see fold).
  const std::vector<Node>& constants() const { return constants_; }

  // --- effects, by what the op's record says
  /// Calls f(value, version) for each input whose values the node looks at.
  template <class F>
  void reads_of(const Node& node, F f) const {
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.reads_input(i)) f(node.in[i], node.versions[i]);
  }
  /// Calls f(value) for each output whose memory the node writes: made by it, or changed in place.
  template <class F>
  void writes_of(const Node& node, F f) const {
    if (node.is_view()) return;
    for (int v : node.out) f(v);
  }
  /// Whether an output of a node that is no view is memory that was there before.
  bool is_changed_in_place(int output) const { return base_of(output) != output; }
  bool changes_memory(const Node& node) const;
  /// By base: whether some node changes it in place.
  std::vector<bool> changed_bases() const;
  /// By base: whether the graph returns it, or a view of it; with what is kept, or without.
  std::vector<bool> returned_bases(bool with_kept = true) const;

  // --- building and changing. Costs are those of the nodes and uses touched.
  int add_value(const Meta& meta, Source source);
  int add_input(const Meta& meta, int input);
  int add_captured_memory(const Ref<Storage>& storage, Device device);
  /// Another look at memory that comes from outside.
  int add_outside_view(const Meta& meta, int base);
  void add_output(int v);

  /// Puts a node before another, or at the end; its outputs must be new values, or (fused nodes) of erased ones. Bases of
  /// the outputs follow from the effects. Returns its number.
  int append(Node node) { return insert(kNone, std::move(node)); }
  int insert(int before, Node node);
  /// Takes a node out. Its outputs must not be used any more, but by what is erased or inserted next (verify() tells).
  Node erase(int n);
  /// Everybody who used value `from` uses `by` from now on, results of the graph included; views of `from` are views of
  /// `by`.
  void replace(int from, int by);
  /// Another graph that computes what a body does, by no more effects.
  void set_body(int n, size_t body, std::shared_ptr<const Graph> graph);
  /// Takes a node out of the order and has it run once, when the graph is built.
  void fold(int n);
  /// Takes everything out that was appended since the graph had so many nodes (numbers given out) and values.
  void cut(int nodes, int values);
  int numbers_given() const { return static_cast<int>(nodes_.size()); }

  /// Throws (an internal Error) where the graph is not whole: a value used before it is made or made twice, uses and
  /// bases that do not follow from the nodes, a read that sees another version of its memory than when traced, an ordered
  /// effect out of its order.
  void verify(const char* after) const;

 private:
  Node& at(int n) { return nodes_[static_cast<size_t>(n)]; }
  Value& at_value(int v) { return values_[static_cast<size_t>(v)]; }
  void add_use(int v, Use use);
  void remove_use(int v, int place);
  void set_place(const Use& use, int place);
  void derive_bases(const Node& node);
  void rebase(const std::vector<Use>& uses, int base);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<Node> constants_;
  std::vector<int> outputs_;
  std::vector<int> output_places_;
  int first_ = kNone, last_ = kNone, live_nodes_ = 0;
};

/// A pass (passes.cpp).
struct Pass {
  const char* name;
  void (*run)(Graph&);
  bool hides_ops = false;  // puts several ops into one kernel: left out in anomaly mode, which names the op
};
/// By name. Throws Error for a name that is none.
const Pass& find_pass(const std::string& name);

}  // namespace tandem::graph
