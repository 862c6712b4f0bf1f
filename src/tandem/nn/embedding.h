// A table of vectors, looked up by number.
#pragma once

#include <optional>

#include "tandem/nn/module.h"

namespace tandem::nn {

struct EmbeddingLayerOptions {
  /// A row that starts as zeros and gets no gradient (negative: from the end).
  std::optional<int64_t> padding_idx = {};
  /// The gradient is kept as the rows that were looked up (take_gradient) instead of a tensor of the weight's size.
  bool sparse = false;
};

/// A gradient of some rows: row indices[i] gets values[i]. A row may come several times.
struct SparseGradient {
  Tensor indices;  // i64 (count)
  Tensor values;   // (count, width)
};

/// index (…) of i64 or i32 -> (…, width). weight (rows, width), drawn from normal(0, 1).
///
/// With `sparse`, the tape ends at the rows that forward() looked up: after backward() take_gradient() gives their
/// gradients, for optim::sgd_rows. The weight then gets no gradient of its own (leave it out of other optimisers), and
/// a compiled callable refuses the layer while it trains, since each call leaves its rows behind.
class Embedding : public Module {
 public:
  using Options = EmbeddingLayerOptions;
  Embedding(Module* parent, const std::string& name, int64_t rows, int64_t width,
            EmbeddingLayerOptions options = {});
  Tensor forward(const Tensor& index) override;
  /// The gradients of all rows looked up since the last call.
  SparseGradient take_gradient();

  const Tensor weight;

 private:
  struct LookedUp {
    Tensor index, rows;
  };
  EmbeddingLayerOptions options_;
  std::vector<LookedUp> looked_up_;
};

enum class BagMode : uint8_t { sum, mean, max };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  /// A row that starts as zeros, gets no gradient and counts for nothing in a bag (negative: from the end).
  std::optional<int64_t> padding_idx = {};
  /// The offsets end with the size of the index, where the last bag ends.
  bool include_last_offset = false;
};

/// Sums, means or largest values of rows, by bag; a bag without rows gives zeros. weight (rows, width), drawn from
/// normal(0, 1).
///   bag(index)           index (B, N) of i64 or i32, bags of one size -> (B, width)
///   bag(index, offsets)  index (N), the bags begin at offsets (B), 0 first, in rising order -> (B, width)
/// A last argument of the index's shape multiplies each row (sum only). BagMode::max with offsets takes memory for B · N
/// rows.
class EmbeddingBag : public Module {
 public:
  using Options = EmbeddingBagOptions;
  EmbeddingBag(Module* parent, const std::string& name, int64_t rows, int64_t width,
               const EmbeddingBagOptions& options = {});
  using Module::forward;
  Tensor forward(const Tensor& index) override { return forward(index, {}, {}); }
  Tensor forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights);
  using Module::operator();
  /// Offsets or weights may be undefined.
  Tensor operator()(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights = {});

  const Tensor weight;

 private:
  /// index (B, N); is_there (B, N) says what counts, all where it is undefined.
  Tensor pooled(const Tensor& index, const Tensor& is_there, const Tensor& per_sample_weights) const;
  Tensor by_offsets(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights) const;

  EmbeddingBagOptions options_;
};

}  // namespace tandem::nn
