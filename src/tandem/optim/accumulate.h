// Gradients of several small batches added up for one step, so that a large batch needs the memory of a small one.
// Made of operations and assign(): a compiled step can hold it. What it holds between two steps is 0.
//   sums.add(grad(loss, parameters), x.size(0));                       every small batch
//   optimizer.update(sums.take());                                     once the last one is in
#pragma once

#include <span>
#include <vector>

#include "tandem/nn/module.h"
#include "tandem/ops/pointwise.h"

namespace tandem::optim {

class GradientSum {
 public:
  explicit GradientSum(const nn::NamedTensors& parameters);

  /// Adds the gradients of a mean loss over `samples` samples.
  void add(std::span<const Tensor> gradients, int64_t samples);
  /// The same where only the device knows how many they are: i64 ().
  void add(std::span<const Tensor> gradients, const Tensor& samples);
  /// The gradients of the mean loss over all samples added since the last call, whatever the sizes of their
  /// batches, in the parameters' type or f32 for bf16 and f16. Begins anew.
  std::vector<Tensor> take();

  /// For a checkpoint between two adds: "samples", "sum.conv1.weight" …
  nn::NamedTensors named_state() const;
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

 private:
  void add(std::span<const Tensor> gradients, const Operand& factor, const Operand& samples);

  std::vector<std::string> names_;
  std::vector<Tensor> sums_;
  Tensor samples_;  // i64 ()
};

}  // namespace tandem::optim
