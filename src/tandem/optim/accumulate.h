// Gradients of several small batches added up for one step, so that a large batch needs the memory of a small one.
// Made of operations and assign(): a compiled step can hold it. What it holds between two steps is 0.
//   sums.add(grad(loss, parameters), x.size(0));                       every small batch
//   optimizer.update(sums.take());                                     once the last one is in
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tandem/nn/module.h"
#include "tandem/ops/pointwise.h"

namespace tandem::optim {

class GradientSum {
 public:
  /// `allow_unused`: take() says which parameters had a gradient in any batch.
  explicit GradientSum(const nn::NamedTensors& parameters, bool allow_unused = false);

  /// Adds the gradients of a mean loss over `samples` samples. One that is undefined, of a parameter that is frozen or
  /// unused, adds nothing.
  void add(std::span<const Tensor> gradients, int64_t samples);
  /// The same where only the device knows what the loss was divided by: how many samples, or the sum of their weights, ().
  /// Where that is 0 the batch adds nothing.
  void add(std::span<const Tensor> gradients, const Tensor& weight);
  /// The gradients of the mean loss over all samples added since the last call, whatever the sizes of their
  /// batches, in the parameters' type or f32 for bf16 and f16. Begins anew.
  std::vector<Tensor> take();
  /// The same, and for each parameter whether any of the batches had a gradient of it: bool (). For sums that allow unused
  /// parameters.
  std::vector<Tensor> take(std::vector<Tensor>& used);

  /// For a checkpoint between two adds: "weight", "sum.conv1.weight" …
  nn::NamedTensors named_state() const;
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

 private:
  void add(std::span<const Tensor> gradients, const std::function<Tensor(const Tensor&)>& weighed,
           const Operand& weight);

  std::vector<std::string> names_;
  std::vector<Tensor> sums_;
  Tensor weight_;             // f64 (): samples, or what they weigh
  std::vector<Tensor> used_;  // bool (): whether a gradient was added; empty unless some may be missing
};

}  // namespace tandem::optim
