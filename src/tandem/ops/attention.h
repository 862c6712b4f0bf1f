// Attention, made of products and a softmax.
#pragma once

#include <optional>

#include "tandem/core/op.h"

namespace tandem {

struct AttentionOptions {
  /// Query i takes keys 0 … i alone.
  bool causal = false;
  /// i64 (N): of sample n, along the first axis, the first lengths[n] keys count, at least one. What keys and values hold
  /// beyond is not read. A length out of range is refused: at once where its value can be read, in a compiled callable when
  /// it runs, on a GPU at the next synchronisation. So no query is without a key.
  Tensor lengths = {};
  /// Factor on the products of queries and keys; 1/√d where none is given.
  std::optional<double> scale = {};
};

/// q (…, T, d), k (…, S, d), v (…, S, e) -> softmax(scale · q · kᵀ) · v, (…, T, e). The leading axes are equal.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace tandem
