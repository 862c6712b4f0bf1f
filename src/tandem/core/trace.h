// The hook between apply() and the graph engine: while a Tracer is installed on a thread, operations are
// appended to it instead of being run, and whatever else the traced code asks of the host goes into what the trace
// depends on, or is refused.
#pragma once

#include <memory>

#include "tandem/core/op.h"

namespace tandem {

class Tracer {
 public:
  virtual ~Tracer() = default;
  /// Appends one op and returns its outputs as traced tensors of the given metas. Tensors among `in` that are
  /// not traced become implicit inputs, read anew at each replay.
  virtual Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                         std::span<const Meta> out) = 0;

  // What follows matters where the trace is replayed later, in place of the code that was traced.

  /// Whether it is.
  virtual bool replays() const { return false; }
  /// Names this trace; 0 for one that is not replayed.
  virtual uint64_t serial() const { return 0; }
  /// Whether two tensors may share memory.
  virtual bool share_memory(const Tensor& a, const Tensor& b) const { return a.same(b); }
  /// How often ops of this trace have changed the memory of a tensor so far.
  virtual uint32_t changes_of(const Tensor&) const { return 0; }
  /// The code asked for something of a tensor made outside: a replay asks whether it still stands as it did.
  enum class Asked { requires_grad, gradient };
  virtual void depends_on(const Tensor&, Asked) {}
  /// The same for a switch: a module's train/eval mode, the number of changes to its hooks.
  virtual void depends_on(const std::shared_ptr<const uint64_t>&) {}
  /// The code detached a tensor made outside: a traced tensor over its memory, whatever memory it has at each call.
  /// Undefined where a plain one will do.
  virtual Tensor detached(const Tensor&) { return {}; }
  /// The code dropped the gradient of a tensor: each replay does the same.
  virtual void zeroes_gradient(const Tensor&) {}
  /// Names the memory of a tensor, one from outside included.
  virtual uint64_t memory_of(const Tensor&) { return 0; }
  /// Where in this trace's part of the random stream the next numbers come from; and elsewhere.
  virtual uint64_t random_place() const { return 0; }
  virtual void set_random_place(uint64_t) {}
  /// Whether a tensor is an input of what is traced.
  virtual bool is_input(const Tensor&) const { return false; }
  /// The code made a tensor of host values: it will be the same one at every replay.
  virtual void made_on_host(const Tensor&) {}
  /// Calls `undo` where the trace goes back to a point before this one.
  virtual void on_rewind(std::function<void()> /*undo*/) {}
  /// The code made `grad` the gradient of a tensor: the tensor to hold instead until the trace ends.
  virtual Tensor sets_gradient(const Tensor& /*tensor*/, const Tensor& grad) { return grad; }
};

/// Sees what a piece of code reads and changes: every operation of this thread before it runs or is traced, and after.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before(const OpDef& op, std::span<const Tensor> in) = 0;
  virtual void after(std::span<const Tensor> out) = 0;
  virtual void asks(const std::shared_ptr<const uint64_t>& place) = 0;  // read_switch()
};
/// The observer of this thread, or null.
Observer* current_observer();
/// Installs one for a scope (null: none). Whoever wants the one before to see things, too, tells it.
class ObserverScope {
 public:
  explicit ObserverScope(Observer* observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  Observer* previous_;
};

/// The layer whose code this thread traces, "features.3 (Conv2d)": errors of a replay begin with it. Null: none.
const std::shared_ptr<const std::string>& current_layer();
class LayerScope {
 public:
  explicit LayerScope(std::shared_ptr<const std::string> layer);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  std::shared_ptr<const std::string> previous_;
};

/// Reads a switch that belongs to the signature of whatever is being traced.
uint64_t read_switch(const std::shared_ptr<uint64_t>& value);

/// Refuses `what` inside a compiled callable: "WHAT: must not be called inside a compiled callable; WHY. INSTEAD".
void refuse_while_tracing(const char* what, const char* why, const char* instead);

/// The tracer of this thread, or null.
Tracer* current_tracer();

/// Installs a tracer for a scope.
class TraceScope {
 public:
  explicit TraceScope(Tracer* tracer);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer* previous_;
};

}  // namespace tandem
