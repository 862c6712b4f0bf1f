// scan(): one step for each slice of some tensors, with state that goes from step to step.
#pragma once

#include "tandem/graph/compile.h"

namespace tandem {

/// What one step gives: the state for the next one, and what is stacked over all steps.
struct ScanStep {
  std::vector<Tensor> state, outputs;
};
/// `slices`: one of each sequence, without its first axis.
using ScanFunction =
    std::function<ScanStep(const std::vector<Tensor>& state, const std::vector<Tensor>& slices)>;

struct ScanOptions {
  /// Begins with the last slices. Outputs stand where the slices do that they come from.
  bool from_end = false;
  /// Gradients compute each step again from its state, in place of keeping what its backward pass reads. The step is then
  /// called in the backward pass as well, as in checkpoint(): what it refers to must live so long.
  bool recompute = false;
  /// The gradient of a weight from around that linear() takes in a step, where it is larger than what that product reads and
  /// gives, is one product over all steps, in place of a sum of as many: less to read and write, and other bits than a plain loop's. Both
  /// engines give the same ones. What enters such products is kept for all steps. Not with recompute.
  bool batch_weights = false;
};

struct ScanResult {
  std::vector<Tensor> state;    // after the last step
  std::vector<Tensor> outputs;  // each (steps, …)
};

/// Runs step(state, slices) for each of the T >= 1 slices along the first axis of all sequences, which must be equally
/// long. The state keeps its shapes and types. Results are fresh tensors. Inside compile() this is one node with one graph,
/// which is traced once and run T times; anywhere else the step runs as plain code. Both engines give the bits of
///   for (t …) { made = step(state, {select(x, 0, t) …}); state = made.state; ys.push_back(made.outputs[0]) … }  stack(ys) …
/// and of its first gradients, up to the sign of zeros, with rules of its own: the gradient of a sequence is written slice by
/// slice, where the loop would add zeros around each; what all steps give to one tensor from around them is added up, last
/// step first, before it is added to what that tensor gets from elsewhere; and a state that no gradient has reached yet has
/// -0 for one, which only an infinite value or a NaN in the step would show.
///
/// The step may use tensors from around it, change those in place (not its state, nor the sequences), draw random numbers
/// and hold further loops and branches. As in a compiled callable, values cannot be read inside. Plain C++ in it runs more
/// than once: it is traced, as often as it takes to learn which part of the state wants gradients, each time scan() is
/// called, so it must do the same every time. What it gives out by other ways than its results is of no use outside. Random
/// numbers: step i draws i times the blocks of one step behind the first, in both engines. backward(), and changes of
/// gradients and hooks, are refused inside. Gradients of gradients (create_graph) go through it with `recompute` alone, step
/// by step as plain code in both engines; else they are refused.
ScanResult scan(const ScanFunction& step, const std::vector<Tensor>& state,
                const std::vector<Tensor>& sequences, const ScanOptions& options = {});

}  // namespace tandem
