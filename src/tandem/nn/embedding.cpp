#include "tandem/nn/embedding.h"

#include <limits>

#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

namespace {

/// The table of a layer, with zeros in the row of padding_idx.
Tensor first_table(const std::string& layer, int64_t rows, int64_t width,
                   const std::optional<int64_t>& padding_idx) {
  TD_CHECK(rows >= 1 && width >= 1, layer, ": sizes must be at least 1; got ", rows, " rows and width ",
           width, ".");
  const NoGrad off;
  Tensor initial = normal({rows, width});
  if (padding_idx) {
    const int64_t row = *padding_idx;
    TD_CHECK(row >= -rows && row < rows, layer, ": padding_idx must name one of ", rows, " rows; got ", row,
             ".");
    assign(initial[row], zeros({width}));
  }
  return initial;
}
/// The same options with padding_idx counted from the front.
template <class Options>
Options from_front(Options options, int64_t rows) {
  if (options.padding_idx && *options.padding_idx < 0) *options.padding_idx += rows;
  return options;
}

bool is_index(const Tensor& x) { return x.defined() && (x.dtype() == DType::i64 || x.dtype() == DType::i32); }
}  // namespace

Embedding::Embedding(Module* parent, const std::string& name, int64_t rows, int64_t width,
                     EmbeddingLayerOptions options)
    : Module(parent, name),
      weight(parameter("weight", first_table("Embedding " + name, rows, width, options.padding_idx))),
      options_(from_front(options, rows)) {}

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

EmbeddingBag::EmbeddingBag(Module* parent, const std::string& name, int64_t rows, int64_t width,
                           const EmbeddingBagOptions& options)
    : Module(parent, name),
      weight(parameter("weight", first_table(label("EmbeddingBag", name), rows, width, options.padding_idx))),
      options_(from_front(options, rows)) {}

Tensor EmbeddingBag::operator()(const Tensor& index, const Tensor& offsets,
                                const Tensor& per_sample_weights) {
  std::vector<Tensor> in = {index};
  if (offsets.defined()) in.push_back(offsets);
  if (per_sample_weights.defined()) in.push_back(per_sample_weights);
  return call(in, [&](const std::vector<Tensor>& all) {
    return std::vector<Tensor>{forward(all[0], offsets.defined() ? all[1] : Tensor(),
                                       per_sample_weights.defined() ? all.back() : Tensor())};
  })[0];
}

Tensor EmbeddingBag::forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights) {
  TD_CHECK(is_index(index) && (index.rank() == 1 || index.rank() == 2),
           "EmbeddingBag: the index must be i64 or i32 and have one or two axes; got ", describe(index), ".");
  TD_CHECK((index.rank() == 1) == offsets.defined(),
           "EmbeddingBag: an index of one axis needs offsets, one of two axes has its bags already; got the "
           "index ",
           describe(index), " and offsets ", describe(offsets), ".");
  if (per_sample_weights.defined()) {
    TD_CHECK(options_.mode == BagMode::sum,
             "EmbeddingBag: weights of samples go with BagMode::sum alone; the layer has another mode.");
    TD_CHECK(per_sample_weights.shape() == index.shape() && per_sample_weights.dtype() == weight.dtype(),
             "EmbeddingBag: the weights of samples must have the index's shape ", index.shape(),
             " and the type ", weight.dtype(), " of the table; got ", describe(per_sample_weights), ".");
  }
  return index.rank() == 2 ? pooled(index, {}, per_sample_weights)
                           : by_offsets(index, offsets, per_sample_weights);
}

Tensor EmbeddingBag::pooled(const Tensor& index, const Tensor& is_there,
                            const Tensor& per_sample_weights) const {
  if (index.size(1) == 0) return zeros({index.size(0), weight.size(1)}, weight.dtype(), weight.device());
  Tensor counts_in = is_there;  // (B, N)
  if (options_.padding_idx) {
    const Tensor real = not_equal(index, *options_.padding_idx);
    counts_in = is_there.defined() ? logical_and(is_there, real) : real;
  }
  Tensor rows = embedding(weight, index, {.padding_idx = options_.padding_idx});
  if (per_sample_weights.defined()) rows = rows * unsqueeze(per_sample_weights, 2);
  const bool takes_max = options_.mode == BagMode::max;
  if (!counts_in.defined())
    return takes_max ? max(rows, {1}) : options_.mode == BagMode::sum ? sum(rows, {1}) : mean(rows, {1});
  const double nothing = takes_max ? -std::numeric_limits<double>::infinity() : 0;
  rows = where(unsqueeze(counts_in, 2), rows, nothing);
  const Tensor counts = sum(cast(counts_in, weight.dtype()), {1}, true);  // (B, 1)
  if (takes_max) return where(greater(counts, 0), max(rows, {1}), 0.0);
  return options_.mode == BagMode::sum ? sum(rows, {1}) : sum(rows, {1}) / maximum(counts, 1.0);
}

Tensor EmbeddingBag::by_offsets(const Tensor& index, const Tensor& given,
                                const Tensor& per_sample_weights) const {
  const bool has_last = options_.include_last_offset;
  TD_CHECK(is_index(given) && given.rank() == 1 && given.size(0) >= (has_last ? 1 : 0),
           "EmbeddingBag: the offsets must be i64 or i32 and have one axis", has_last ? " of at least 1" : "",
           "; got ", describe(given), ".");
  const int64_t n = index.size(0), bags = given.size(0) - (has_last ? 1 : 0);
  if (!current_tracer() && given.device().is_cpu()) {
    const std::vector<int64_t> values = cast(given, DType::i64).to_vector<int64_t>();
    for (size_t i = 0; i < values.size(); ++i)
      TD_CHECK(values[i] >= (i == 0 ? 0 : values[i - 1]) && values[i] <= n && (i > 0 || values[i] == 0) &&
                   (!has_last || i + 1 < values.size() || values[i] == n),
               "EmbeddingBag: the offsets must begin with 0, rise, and ",
               has_last ? "end with" : "stay within", " the index's size ", n, "; offset ", i, " is ",
               values[i], ".");
  }
  const Tensor offsets = cast(given, DType::i64), places = arange(n, DType::i64, index.device());
  const Tensor starts = slice(offsets, 0, 0, bags);
  if (bags == 0 || n == 0) return zeros({bags, weight.size(1)}, weight.dtype(), weight.device());
  // Inside a compiled callable nobody can look at the offsets before: where they are wrong, an index becomes one that the op
  // behind it refuses when it runs.
  const auto refused_if_wrong = [&](const Tensor& places, int64_t bad) {
    if (!current_tracer()) return places;
    const Dim count = offsets.size(0);
    const Tensor last = slice(offsets, 0, count - 1, count);
    Tensor good = logical_and(all(equal(slice(offsets, 0, 0, 1), 0)),
                              all(has_last ? equal(last, n) : less_equal(last, n)));
    good =
        logical_and(good, all(greater_equal(slice(offsets, 0, 1, count), slice(offsets, 0, 0, count - 1))));
    return where(good, places, bad);
  };
  if (options_.mode == BagMode::max) {
    const Tensor ends = has_last ? slice(offsets, 0, 1, bags + 1)
                                 : concat({slice(offsets, 0, 1, bags),
                                           full({1}, static_cast<double>(n), DType::i64, index.device())});
    const Tensor grid = unsqueeze(starts, 1) + unsqueeze(places, 0);  // (B, N): a row for each bag
    const Tensor is_there = less(grid, unsqueeze(ends, 1));
    return pooled(take(index, refused_if_wrong(where(is_there, grid, 0), -n - 1)), is_there, {});
  }
  const Tensor bag =
      refused_if_wrong(searchsorted(starts, places, true) - 1, -bags - 1);  // (N): of each element
  Tensor rows = embedding(weight, index, {.padding_idx = options_.padding_idx});
  if (per_sample_weights.defined()) rows = rows * unsqueeze(per_sample_weights, 1);
  Tensor count = ones({n, 1}, weight.dtype(), weight.device());
  if (options_.padding_idx) {
    const Tensor real = unsqueeze(not_equal(index, *options_.padding_idx), 1);
    rows = where(real, rows, 0.0);
    count = cast(real, weight.dtype());
  }
  const auto added = [&](const Tensor& source) {
    return index_add(zeros({bags, source.size(1)}, source.dtype(), source.device()), 0, bag, source);
  };
  return options_.mode == BagMode::sum ? added(rows) : added(rows) / maximum(added(count), 1.0);
}

}  // namespace tandem::nn
