// Clipping of gradients, between grad() and update(). Pure functions: a compiled training step can hold them.
#pragma once

#include <span>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::optim {

/// The Euclidean norm of all gradients together: 0-d, in their type, f32 for bf16 and f16.
Tensor global_norm(std::span<const Tensor> gradients);

/// All gradients times min(1, max_norm / (global_norm + 1e-6)), as PyTorch's clip_grad_norm_.
std::vector<Tensor> clip_by_norm(std::span<const Tensor> gradients, double max_norm);

/// Every element within [-limit, limit], as PyTorch's clip_grad_value_. NaN stays.
std::vector<Tensor> clip_by_value(std::span<const Tensor> gradients, double limit);

}  // namespace tandem::optim
