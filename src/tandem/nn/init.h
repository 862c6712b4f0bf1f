// Initial values of parameters: PyTorch's defaults, drawn from this thread's generator (ops/random.h), on the
// CPU and in f32, so that a seed gives the same weights on every device.
#pragma once

#include "tandem/core/tensor.h"

namespace tandem::nn {

/// What PyTorch gives the weights and biases of linear and convolution layers: uniform in ±1/√fan_in. (For
/// weights this is kaiming_uniform with a = √5.)
Tensor uniform_by_fan_in(const Dims& shape, int64_t fan_in);

}  // namespace tandem::nn
