// Gradient descent on some rows of a large table.
#pragma once

#include "tandem/nn/embedding.h"

namespace tandem::optim {

/// One step of plain gradient descent: only the rows that the gradient names are read and written.
void sgd_rows(const Tensor& weight, const nn::SparseGradient& gradient, double lr);

}  // namespace tandem::optim
