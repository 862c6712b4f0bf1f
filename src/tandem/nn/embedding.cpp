#include "tandem/nn/embedding.h"

#include "tandem/core/tape.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

Embedding::Embedding(Module* parent, const std::string& name, int64_t rows, int64_t width,
                     EmbeddingLayerOptions options)
    : Module(parent, name), options_(options) {
  TD_CHECK(rows >= 1 && width >= 1, "Embedding ", name, ": sizes must be at least 1; got ", rows,
           " rows and width ", width, ".");
  const NoGrad off;
  Tensor initial = normal({rows, width});
  if (options_.padding_idx) {
    int64_t& row = *options_.padding_idx;
    TD_CHECK(row >= -rows && row < rows, "Embedding ", name, ": padding_idx must name one of ", rows,
             " rows; got ", row, ".");
    if (row < 0) row += rows;
    assign(initial[row], zeros({width}));
  }
  weight = parameter("weight", initial);
}

Tensor Embedding::forward(const Tensor& index) {
  const EmbeddingOptions options{.padding_idx = options_.padding_idx};
  if (!options_.sparse || !grad_enabled() || !training()) return embedding(weight, index, options);
  TD_CHECK(!current_tracer(),
           "Embedding: a sparse gradient must be taken outside of a compiled callable; got a forward inside "
           "one. Use "
           "the dense gradient there.");
  Tensor rows = embedding(weight.detach(), index, options);
  rows.set_requires_grad();
  looked_up_.push_back({index, rows});
  return rows;
}

SparseGradient Embedding::take_gradient() {
  TD_CHECK(options_.sparse, "Embedding take_gradient: the layer must be made with sparse; got a dense one.");
  const NoGrad off;
  const Dim width = weight.shape()[1];
  std::vector<Tensor> indices = {zeros({0}, DType::i64, weight.device())};
  std::vector<Tensor> values = {zeros({0, width}, weight.dtype(), weight.device())};
  for (const LookedUp& part : looked_up_) {
    if (!part.rows.grad().defined()) continue;
    const Dim count = part.index.size();
    const Tensor index = cast(reshape(part.index, {count}), DType::i64);
    Tensor rows = reshape(part.rows.grad().detach(), {count, width});
    if (options_.padding_idx) rows = masked_fill(rows, unsqueeze(equal(index, *options_.padding_idx), 1), 0);
    indices.push_back(index);
    values.push_back(rows);
  }
  looked_up_.clear();
  return {concat(indices, 0), concat(values, 0)};
}

}  // namespace tandem::nn
