// Attention of several heads.
#pragma once

#include "tandem/nn/layers.h"
#include "tandem/ops/attention.h"

namespace tandem::nn {

struct MultiheadAttentionOptions {
  bool bias = true;  ///< of the projections in and out
};

/// PyTorch's with batch_first: query (N, T, width), key and value (N, S, width) -> (N, T, width). Each is projected, cut
/// into `heads` parts of its width that attend apart (scaled_dot_product_attention), and what they give is put side by
/// side and projected. in_proj_weight (3 · width, width) has the projections of query, key and value below each other,
/// drawn by xavier_uniform; biases start as zeros.
///
/// Of options.lengths: what keys and values hold beyond them is not read. Where the query is the same tensor as the key,
/// neither is it there: it counts as zeros, and what is given for such steps has no meaning.
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  MultiheadAttention(Module* parent, const std::string& name, int64_t width, int64_t heads,
                     MultiheadAttentionOptions options = {});
  using Module::forward;
  /// Of a sequence to itself: forward(x, x, x). What a container calls.
  Tensor forward(const Tensor& x) override { return forward(x, x, x, {}); }
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options);
  using Module::operator();
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionOptions& options = {});

  Linear out_proj;
  const Tensor in_proj_weight, in_proj_bias;

 private:
  int64_t width_, heads_;
};

}  // namespace tandem::nn
