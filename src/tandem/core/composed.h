// How an op runs as a function of other ops, and how its gradient comes from there. For apply() and define().
#pragma once

#include <unordered_set>

#include "tandem/core/op.h"

namespace tandem {

/// A composed form under way: apply() shows it the ops in it.
class ComposedRun {
 public:
  explicit ComposedRun(const OpDef& op);
  ~ComposedRun();
  ComposedRun(const ComposedRun&) = delete;
  ComposedRun& operator=(const ComposedRun&) = delete;

  /// Refuses what a form may not do. Before the op runs.
  void meet(const OpDef& inner, std::span<const Tensor> in);
  /// After it has run.
  void note(const OpDef& inner, const Tensors& out);
  /// Whether an op in the form made a tensor, memory included.
  bool made(const Tensor& tensor) const;

 private:
  const OpDef& op_;
  ComposedRun* outer_;
  std::unordered_set<const TensorImpl*> made_;  // by ops whose results have memory of their own
  std::unordered_set<uint64_t> memory_;         // of these
};
/// The innermost one of this thread, or null (op.cpp).
ComposedRun*& composed_run();
/// Whether a ComposedForms is in force on this thread (op.cpp).
bool uses_composed_forms();

/// Runs the form where inference has let the inputs through, and holds it to what inference said.
Tensors run_composed(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                     const InferArgs& inferred);
/// The gradient rule of ops whose composed form gives it.
Tensors gradient_of_composed(const GradArgs& args);
/// Refuses a composed form that its record does not allow, and names of inputs that say nothing. For define().
void check_composed(const OpDef& op);
void check_names(const OpDef& op);

}  // namespace tandem
