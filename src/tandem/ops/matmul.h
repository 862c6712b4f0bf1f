// Matrix products.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// Matrices (M, K) × (K, N) -> (M, N); leading axes of a and b are batches that broadcast; a vector on the
/// left is a row, on the right a column, as in PyTorch.
Tensor matmul(const Tensor& a, const Tensor& b);

/// x (…, in), weight (out, in), bias (out) or undefined -> x · weightᵀ + bias, (…, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// Ops. matmul: in a (B, M, K), b (B, K, N), both rank 2 or both rank 3 with equal B, any strides; out (B, M,
/// N). linear: in x (M, in) contiguous, weight (out, in) any strides[, bias (out)]; out (M, out).
OpDef& op_matmul();
OpDef& op_linear();

}  // namespace tandem
