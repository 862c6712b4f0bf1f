// One traced signature of a compiled callable, ready to run, and the backward passes of its results.
#pragma once

#include <list>
#include <optional>
#include <unordered_map>

#include "tandem/core/autocast.h"
#include "tandem/core/choice_cache.h"
#include "tandem/graph/executor.h"
#include "tandem/graph/repeated_trace.h"

namespace tandem::graph {

/// What a trace depends on besides Dependencies.
struct Signature {
  struct Input {
    Meta meta;
    bool requires_grad = false;
    const CopyMark* mark = nullptr;
    HooksSeen hooks;
  };
  std::vector<Input> inputs;
  bool grad = grad_enabled(), anomaly = anomaly_mode();
  std::optional<DType> autocast = autocast_dtype();
  uint64_t choices = choice_epoch();  // a recording holds the algorithms of its time

  size_t layout;  // of the inputs (compiled_state.h)

  Signature(const std::vector<Tensor>& tensors, size_t of_layout) : layout(of_layout) {
    for (const Tensor& t : tensors)
      inputs.push_back({t.meta(), t.impl()->requires_grad, t.impl()->copied_by, HooksSeen(*t.impl())});
  }
  bool matches(const std::vector<Tensor>& tensors, size_t of_layout) const {
    if (layout != of_layout || tensors.size() != inputs.size() || grad != grad_enabled() ||
        anomaly != anomaly_mode() || autocast != autocast_dtype())
      return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Meta &a = inputs[i].meta, &b = tensors[i].meta();
      const bool same = a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype &&
                        a.device == b.device && inputs[i].requires_grad == tensors[i].impl()->requires_grad &&
                        inputs[i].mark == tensors[i].impl()->copied_by &&
                        inputs[i].hooks.hold(*tensors[i].impl());
      if (!same) return false;
    }
    return true;
  }
};

/// The backward pass of a signature, for gradients of one layout.
struct Backward {
  std::vector<std::optional<Meta>> arriving;  // by output of the tape node
  bool anomaly = anomaly_mode();
  uint64_t choices = choice_epoch();
  std::vector<size_t> kept;            // inputs of the executor, behind the gradients: which of Entry::kept
  std::vector<size_t> ends;            // by result of the executor
  Dependencies depends_on;             // of the gradient rules
  std::vector<size_t> captures;        // that it reads, of Dependencies::captures
  std::unique_ptr<Executor> executor;  // null: needs a value that was not kept

  bool fits(std::span<const Tensor> grads) const {
    if (anomaly != anomaly_mode() || choices != choice_epoch()) return false;
    if (!depends_on.memory_holds() || !depends_on.hold()) return false;
    for (size_t k = 0; k < arriving.size(); ++k) {
      if (arriving[k].has_value() != grads[k].defined()) return false;
      if (arriving[k] && arriving[k]->strides != grads[k].strides()) return false;
    }
    return true;
  }
};

/// One traced signature.
struct Entry {
  Entry(const std::vector<Tensor>& inputs, size_t layout) : signature(inputs, layout) {}
  Signature signature;
  Dependencies depends_on;
  std::vector<LeafGradient> gradients;
  std::unique_ptr<Executor> executor;
  GraphReport report;

  struct Result {
    const CopyMark* mark = nullptr;
    int input = -1;          // the input that it is
    Ref<TensorImpl> tensor;  // the captured tensor that it is
    int slot = -1;           // the output of the tape node that it is
    bool is_leaf = false;    // that wants a gradient, made inside
  };
  std::vector<Result> results;
  // Gradients of the results. Without a trace there are none: `stale` says why, where they are asked for.
  std::string stale;
  std::vector<End> ends;
  std::vector<bool> within;       // Outputs::within
  size_t outputs = 0;             // of the tape node
  std::unique_ptr<Trace> trace;   // to differentiate
  std::vector<int> kept;          // bases that the executor returns behind everything else
  std::list<Backward> backwards;  // guarded by the lock of the Compiled

  // A C++ handle that the callable captured may stand for another tensor since (w = other). It does where nobody but entries
  // and the tape of their results holds the tensor that was captured: such an entry is of no use any more.
  struct Holds {
    uint32_t always = 0;   // references by the entry
    uint32_t by_call = 0;  // by each of its calls that has results on the tape
  };
  std::unordered_map<const TensorImpl*, Holds> holds;
  Holds most;                              // of any tensor
  std::vector<const TensorImpl*> watched;  // captured tensors that somebody else held when it was made
  void count_references();
};
/// An entry of a callable that is in use, by the callable or by the tapes of some of its calls, which `calls` counts.
struct EntryInUse {
  std::shared_ptr<const Entry> entry;
  uint32_t calls;
};
/// Whether others than these still hold each captured tensor of an entry that others held when it was made.
bool captures_are_held(const Entry& entry, std::span<const EntryInUse> all);
/// For an entry that has just been made.
void watch_captures(Entry& entry, std::span<const EntryInUse> all);

/// Runs the passes, plans, and makes what runs the graph.
std::unique_ptr<Executor> make_executor(Graph g, const CompileOptions& options, GraphReport& report);

std::shared_ptr<Entry> make_entry(const TensorFunction& function, size_t layout,
                                  const CompileOptions& options, const std::vector<Tensor>& inputs,
                                  LeftBehind& left_behind);

}  // namespace tandem::graph
