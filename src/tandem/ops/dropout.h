// Dropout: random elements are taken out of a tensor.
#pragma once

#include "tandem/core/tensor.h"

namespace tandem {

/// Zeroes each element with probability p, at least 0 and below 1, and scales the rest by 1 / (1 - p). p = 0 returns x
/// itself.
Tensor dropout(const Tensor& x, double p);
/// The same for whole channels: x (N, C, L), (N, C, H, W), (N, C, D, H, W), each with or without N.
Tensor dropout1d(const Tensor& x, double p);
Tensor dropout2d(const Tensor& x, double p);
Tensor dropout3d(const Tensor& x, double p);
/// Dropout that keeps mean 0 and deviation 1 after SELU: dropped elements take SELU's lowest value.
Tensor alpha_dropout(const Tensor& x, double p);

}  // namespace tandem
