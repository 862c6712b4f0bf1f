// How an op runs as a function of other ops, and how its gradient comes from there. For apply() and define().
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// A composed form under way: apply() shows it the ops in it.
class ComposedRun {
 public:
  explicit ComposedRun(const OpDef& op);
  ~ComposedRun();
  ComposedRun(const ComposedRun&) = delete;
  ComposedRun& operator=(const ComposedRun&) = delete;

  void meet(const OpDef& inner, const InferArgs& inferred);
  /// Blocks of random numbers that they drew.
  uint64_t drawn() const { return drawn_; }

 private:
  const OpDef& op_;
  ComposedRun* outer_;
  uint64_t drawn_ = 0;
};
/// The innermost one of this thread, or null (op.cpp).
ComposedRun*& composed_run();

/// Runs the form where inference has let the inputs through, and holds it to what inference said.
Tensors run_composed(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                     const InferArgs& inferred);
/// The gradient rule of ops whose composed form gives it.
Tensors gradient_of_composed(const GradArgs& args);
/// Refuses a composed form that its record does not allow. For define().
void check_composed(const OpDef& op);

}  // namespace tandem
