// Activation checkpoints: less memory for more time.
#pragma once

#include "tandem/graph/compile.h"

namespace tandem {

/// function(inputs), which keeps nothing of what its gradient needs but the inputs and the tensors that it captures. When
/// the gradient is asked for, the function is run again, with the same random numbers. Values and gradients have the bits
/// of the plain call, in both engines (gradients of gradients but for rounding). What the function changes in place (the
/// running mean of a batch norm) is put back for the second run, which changes it again; whatever else it reads -
/// captured tensors, train/eval mode - must stand as it did, or the backward pass is refused. It must not change gradients
/// of tensors. Plain C++ in it, such as a counter, runs twice, and what it refers to must live until then.
std::vector<Tensor> checkpoint(const TensorFunction& function, const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& input);

}  // namespace tandem
