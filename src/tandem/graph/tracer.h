// Traces a callable into a Graph, and notes what else the trace depended on.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/core/region.h"
#include "tandem/core/trace.h"
#include "tandem/graph/graph.h"

namespace tandem::graph {

/// The hooks that a leaf had.
struct HooksSeen {
  explicit HooksSeen(const TensorImpl& tensor);
  std::shared_ptr<GradientHooks> hooks;
  uint64_t changes;
  bool hold(const TensorImpl& tensor) const;
};
/// A tensor from outside that the callable used, as it stood while tracing.
struct Capture {
  Ref<TensorImpl> tensor;
  Ref<Storage> storage;
  Meta meta;
  bool requires_grad = false;
  HooksSeen hooks;
  bool memory_holds() const;  // false: rebound since
  bool holds() const { return tensor->requires_grad == requires_grad && hooks.hold(*tensor); }
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

/// Where the gradient of a result leaves the callable: at an edge of the tape outside, at input number `input`, or at a leaf
/// that the callable made and returns as result number `result`.
struct End {
  TapeNode::Edge edge;
  int input = -1, result = -1;
};

/// A tensor that a trace made and that somebody still holds who does not belong to the trace: a C++ variable, mostly. No
/// replay changes it.
struct Survivor {
  uint64_t trace = 0;   // its TensorImpl::trace_serial
  int64_t value = 0;    // and trace_id
  std::string made_by;  // "concat in attention (Attention)"
};

struct Trace {
  Graph graph;
  Dependencies depends_on;
  std::vector<LeafGradient> gradients;
  /// What the callable returned, with its tape. The first outputs of the graph are these.
  std::vector<Tensor> results;
  std::vector<int> returned_input;  // by result: the input that it is, -1: none
  Outputs outputs;                  // those of the results that gradients can arrive at
  std::vector<End> ends;            // and where they leave
  std::shared_ptr<Tracer> tracer;   // for differentiate()
  std::vector<Survivor> survivors;
  /// Memory of tensors that the callable made of host values.
  std::unordered_map<const Storage*, Ref<Storage>> made_of_host_values;
  // Of code that becomes a body of a node in the trace around it:
  std::vector<int>
      operands;  // by input of the graph: the memory (a base) in the graph around that it is; kNone: own
  std::vector<Tensor> used;  // the tensors from around that it uses
  std::vector<Tensor> own;   // what it is handed at each run: the first inputs of the graph
};

/// `earlier`: what traces of the same callable left behind, which this one must not read. `first`: the trace that this one
/// repeats.
std::unique_ptr<Trace> trace(const TensorFunction& function, const std::vector<Tensor>& inputs,
                             std::span<const Survivor> earlier = {}, const Trace* first = nullptr);

/// The backward pass of a traced callable, for gradients of these layouts (null where none arrives) at its outputs.
struct BackwardGraph {
  Graph graph;               // inputs: the gradients that arrive, then the kept values
  std::vector<int> kept;     // bases of the trace, in the order of those inputs
  std::vector<size_t> ends;  // by output of the graph: the end that this gradient goes to
  Dependencies depends_on;   // of the gradient rules
};
BackwardGraph differentiate(Trace& trace, const std::vector<const Meta*>& arriving);

// --- code that becomes a body of a node: the branches of cond(), the step of a loop

/// Traces code in place of which a node of the trace that this thread is in will run its graph, or plain code, where it is
/// in none. Its results must be fresh tensors.
std::shared_ptr<Trace> trace_body(const std::function<std::vector<Tensor>()>& code, Device device);
/// The same for code that is handed tensors at each run.
struct OwnInput {
  Meta meta;  // row-major
  bool requires_grad = false;
};
std::shared_ptr<Trace> trace_body(const TensorFunction& code, std::span<const OwnInput> own, Device device);
/// In a trace: whether a tensor is the whole of memory that an operation of this trace made for it.
bool has_memory_of_its_own(const Tensor& tensor);
/// Where gradients of some tensors of bodies leave these: each once.
std::vector<TapeNode::Edge> ends_of_bodies(std::span<const std::shared_ptr<Trace>> bodies,
                                           std::span<const Tensor> results);

/// Calls `run`, in which the trace around gets the node (or the plain code runs): what it changes counts for the tapes of
/// the bodies as what they changed.
void run_in_place_of(std::span<const std::shared_ptr<Trace>> bodies, const std::function<void()>& run);

/// One body on its way into the trace around.
struct NewBody {
  NewBody() = default;
  /// All of a traced body, with these of its tensors as results.
  NewBody(const Trace& trace, std::span<const Tensor> results);
  Graph graph;
  std::vector<int> operands;  // by input of the graph: the value of the graph around; kNone: see `own`
  std::vector<int> own;  // by input of the graph: the one of the tensors `in` of append_node() that it is
  std::vector<int> out;  // by result of the graph: the output of the node
};
/// Appends a node with bodies to the trace that this thread is in. Gives its outputs; what it changes in place comes on top.
std::vector<Tensor> append_node(const OpDef& op, std::span<const Tensor> in, std::vector<NewBody> bodies,
                                std::span<const Meta> out, uint64_t random_offset,
                                std::shared_ptr<const Loop> loop = nullptr);

/// The backward pass of a traced body, as a body: single gradients on their way out at `ends`.
struct BackwardBody {
  Graph graph;
  std::vector<int>
      operands;  // by input of the graph: the memory in the graph around that it is; kNone: a kept one
  std::vector<int>
      kept;              // by input of the graph: the base of the trace that it is; kNone: memory from around
  std::vector<int> own;  // by input of the graph: the own input of the trace that it is; kNone: none
  std::vector<size_t> ends;  // by output of the graph: the end that this gradient goes to
};
/// Continues the trace of a body by `code`, and takes what that appends out as a body: its first inputs are those that the
/// code makes by new_input(), and are neither from around, nor kept, nor own. The trace is as it was before.
using NewInput = std::function<Tensor(const Meta&)>;
BackwardBody derive_body(Trace& trace,
                         const std::function<std::vector<Tensor>(const NewInput& new_input)>& code);
/// For gradients of results of it that want them: one for each, tensors from around.
BackwardBody differentiate_body(Trace& trace, std::span<const TapeNode::Edge> ends,
                                std::span<const Tensor> results, std::span<const Tensor> seeds);
/// The same for row-major gradients of all results, to see what it will need: these are inputs, neither from around nor
/// kept.
BackwardBody foresee_backward(Trace& trace, std::span<const TapeNode::Edge> ends,
                              std::span<const Tensor> results);
/// Continues the trace of a body for good.
void continue_body(Trace& trace, const std::function<void()>& code);

}  // namespace tandem::graph
