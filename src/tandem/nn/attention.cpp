#include "tandem/nn/attention.h"

#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

namespace {

/// The width, where it can be cut into the heads.
int64_t checked_width(const std::string& name, int64_t width, int64_t heads) {
  const std::string layer = label("MultiheadAttention", name);
  TD_CHECK(width >= 1 && heads >= 1, layer, ": sizes must be at least 1; got width ", width, " and ", heads,
           " heads.");
  TD_CHECK(width % heads == 0, layer, ": the width must be a multiple of the heads; got width ", width,
           " and ", heads, " heads. The next one is ", plus_capped(width, heads - width % heads), ".");
  return width;
}

}  // namespace

MultiheadAttention::MultiheadAttention(Module* parent, const std::string& name, int64_t width, int64_t heads,
                                       MultiheadAttentionOptions options)
    : Module(parent, name),
      out_proj(this, "out_proj", checked_width(name, width, heads), width, {.bias = options.bias}),
      in_proj_weight(
          parameter("in_proj_weight", init::xavier_uniform_(zeros({times_capped(3, width), width})))),
      in_proj_bias(options.bias ? parameter("in_proj_bias", zeros({times_capped(3, width)})) : Tensor()),
      width_(width),
      heads_(heads) {
  if (options.bias) init::zeros_(out_proj.bias);
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionOptions& options) {
  std::vector<Tensor> in = {query, key, value};
  if (options.lengths.defined()) in.push_back(options.lengths);
  return call(in, [&](const std::vector<Tensor>& all) {
    AttentionOptions now = options;
    if (all.size() > 3) now.lengths = all[3];
    return std::vector<Tensor>{forward(all[0], all[1], all[2], now)};
  })[0];
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionOptions& options) {
  const auto is_sequence = [this](const Tensor& x) {
    return x.defined() && x.rank() == 3 && x.size(2) == width_;
  };
  TD_CHECK(is_sequence(query) && is_sequence(key) && is_sequence(value) && key.size(0) == query.size(0) &&
               value.size(0) == key.size(0) && value.size(1) == key.size(1),
           "MultiheadAttention: the query must be (N, T, ", width_, ") and key and value (N, S, ", width_,
           "); got query ", describe(query), ", key ", describe(key), " and value ", describe(value),
           ". With another order of axes, transpose() them.");
  const Dim n = query.size(0);
  const bool queries_are_keys = query.same(key), values_are_keys = value.same(key);
  Tensor q = query, k = key, v = value;
  if (options.lengths.defined()) {
    const Tensor within =
        unsqueeze(within_lengths("MultiheadAttention", options.lengths, n, key.size(1), 1), 2);
    k = where(within, key, 0.0);
    v = values_are_keys ? k : where(within, value, 0.0);
    if (queries_are_keys) q = k;
  }
  if (queries_are_keys && values_are_keys) {  // one product for the three
    const std::vector<Tensor> parts = chunk(linear(k, in_proj_weight, in_proj_bias), 3, 2);
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    const std::vector<Tensor> weights = chunk(in_proj_weight, 3, 0);
    const std::vector<Tensor> biases =
        in_proj_bias.defined() ? chunk(in_proj_bias, 3, 0) : std::vector<Tensor>(3);
    q = linear(q, weights[0], biases[0]);
    k = linear(k, weights[1], biases[1]);
    v = linear(v, weights[2], biases[2]);
  }
  const auto by_head = [this](const Tensor& x) {  // (N, T, width) -> (N, heads, T, width / heads)
    return transpose(reshape(x, {x.size(0), x.size(1), heads_, width_ / heads_}), 1, 2);
  };
  const Tensor heads = scaled_dot_product_attention(by_head(q), by_head(k), by_head(v), options);
  return out_proj(reshape(transpose(heads, 1, 2), {n, query.size(1), width_}));
}

}  // namespace tandem::nn
