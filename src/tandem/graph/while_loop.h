// while_loop(): a function again and again, as long as a value that it computes says so.
#pragma once

#include <optional>

#include "tandem/graph/compile.h"

namespace tandem {

struct WhileOptions {
  /// The body runs at most so often (1 or more), whatever the condition says. Only such a loop has gradients and may draw
  /// random numbers.
  std::optional<int64_t> at_most = {};
  /// See ScanOptions::recompute.
  bool recompute = false;
};

/// Runs state = body(state) while condition(state), one bool, holds, and returns the state, as fresh tensors. It keeps its
/// shapes and types. Inside compile() this is one node with two graphs; anywhere else body and condition run as plain code.
/// For the body the rules of the step of scan() hold; the condition must not change tensors in place nor draw random
/// numbers, and no gradient goes through it. Gradients go through the runs that there were, in a graph with memory for
/// at_most of them; tensors that only runs that did not take place would use get zeros. The stream of random numbers moves
/// on by at_most runs, however many there are.
std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const TensorFunction& body, const std::vector<Tensor>& state,
                               const WhileOptions& options = {});

}  // namespace tandem
