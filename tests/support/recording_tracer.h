// A tracer that notes the ops which pass apply(). It answers with traced tensors of the right form, so that nothing is
// computed, or, where `runs` is set, runs each op eagerly and hands its results on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/trace.h"

namespace tandem::testing {

struct AppliedOp {
  const OpDef* op;
  std::vector<Tensor> in, out;
  Attrs attrs;
};

class RecordingTracer : public Tracer {
 public:
  explicit RecordingTracer(bool runs = false) : runs_(runs) {}
  std::vector<AppliedOp> applied;
  /// Called with each op before it is answered, where set. May throw.
  std::function<void(const OpDef& op, std::span<const Tensor> in, std::span<const Meta> out)> before;

  Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::span<const Meta> out) override;
  bool share_memory(const Tensor& a, const Tensor& b) const override {
    return runs_ ? a.impl()->storage == b.impl()->storage : a.same(b);
  }

 private:
  bool runs_;
  int64_t next_id_ = 0;
};

/// Whether the op writes into the memory of its first input.
bool writes_in_place(const OpDef& op);

/// The name of the op that refuses `text` while tracing because its result's size depends on the data, or "".
std::string data_dependent_op(const std::string& text);

}  // namespace tandem::testing
