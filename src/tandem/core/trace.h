// The hook between apply() and the graph engine: while a Tracer is installed on a thread, operations are
// appended to it instead of being run.
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
  /// Whether two tensors may share memory.
  virtual bool share_memory(const Tensor& a, const Tensor& b) const = 0;
  /// Notes that what is being traced depends on a switch (a module's train/eval mode): a replay asks whether it still
  /// stands as it did.
  virtual void depends_on(const std::shared_ptr<const bool>& flag) = 0;
  /// Notes that zero_grad() was called on a tensor: each replay does the same.
  virtual void zeroes_gradient(const Tensor& tensor) = 0;
};

/// Reads a switch that belongs to the signature of whatever is being traced.
bool read_flag(const std::shared_ptr<bool>& flag);

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
