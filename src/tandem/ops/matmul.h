// Matrix products.
#pragma once

#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"

namespace tandem {

/// Matrices (M, K) × (K, N) -> (M, N); leading axes of a and b are batches that broadcast; a vector on the
/// left is a row, on the right a column, as in PyTorch.
Tensor matmul(const Tensor& a, const Tensor& b);

/// x (…, in), weight (out, in), bias (out) or undefined -> x · weightᵀ + bias, (…, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// The sum of products of two vectors.
Tensor dot(const Tensor& a, const Tensor& b);
/// Vectors (M) and (N) -> (M, N): every product.
Tensor outer(const Tensor& a, const Tensor& b);
/// a × b of vectors with three elements along an axis; the other axes broadcast.
Tensor cross(const Tensor& a, const Tensor& b, int64_t axis = -1);
/// beta · c + alpha · a · b. addmm takes matrices, baddbmm batches of them; c broadcasts to the product's shape.
struct AddmmOptions {
  Operand beta = 1, alpha = 1;  ///< numbers, of integers whole ones
};
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, AddmmOptions options = {});
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, AddmmOptions options = {});
/// Kronecker product: each element of a times all of b. Shapes are aligned at the right.
Tensor kron(const Tensor& a, const Tensor& b);

/// Ops. matmul: in a (B, M, K), b (B, K, N), both rank 2 or both rank 3 with equal B, any strides; out (B, M,
/// N). linear: in x (M, in) contiguous, weight (out, in) any strides[, bias (out)]; out (M, out).
OpDef& op_matmul();
OpDef& op_linear();

}  // namespace tandem
