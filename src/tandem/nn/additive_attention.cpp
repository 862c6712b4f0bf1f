#include "tandem/nn/additive_attention.h"

#include <limits>

#include "tandem/ops/arrange.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::nn {

namespace {

int64_t checked_sizes(const char* type, const std::string& name, int64_t query, int64_t memory,
                      int64_t width) {
  TD_CHECK(query >= 1 && memory >= 1 && width >= 1, label(type, name),
           ": sizes must be at least 1; got query ", query, ", memory ", memory, " and width ", width, ".");
  return query;
}

/// energies (N, T, S) -> the read of T queries.
AttentionRead read(const Tensor& energies, const AttentionMemory& memory) {
  Tensor scores = energies;
  if (memory.within.defined()) {  // finite, as infinities are what --anomaly looks for; exp() of it is 0
    constexpr double kLowest = -std::numeric_limits<float>::max() / 2, kLowestF16 = -65504;
    scores = where(unsqueeze(memory.within, 1), scores, scores.dtype() == DType::f16 ? kLowestF16 : kLowest);
  }
  const Tensor weights = softmax(scores);
  return {matmul(weights, memory.values), weights};
}

void check_memory(const char* type, const Tensor& memory, int64_t width) {
  TD_CHECK(memory.defined() && memory.rank() == 3 && memory.size(1) >= 1 && memory.size(2) == width, type,
           ": the memory must be (N, S, ", width, ") with at least one step; got ", describe(memory), ".");
}

void check_keys(const char* type, const Tensor& keys, const Tensor& memory, int64_t width) {
  const Dims shape{memory.size(0), memory.size(1), width};
  TD_CHECK(!keys.defined() || keys.shape() == shape, type, ": keys must be memory_layer(memory), ", shape,
           "; got ", describe(keys), ".");
}

}  // namespace

AdditiveAttention::AdditiveAttention(Module* parent, const std::string& name, int64_t query, int64_t memory,
                                     int64_t width)
    : Module(parent, name),
      query_layer(this, "query_layer", checked_sizes("AdditiveAttention", name, query, memory, width), width,
                  {.bias = false}),
      memory_layer(this, "memory_layer", memory, width, {.bias = false}),
      v(this, "v", width, 1, {.bias = false}),
      query_(query),
      memory_(memory),
      width_(width) {}

AttentionMemory AdditiveAttention::prepared(const char* type, const Tensor& memory, const Tensor& lengths,
                                            const Tensor& keys) {
  check_memory(type, memory, memory_);
  check_keys(type, keys, memory, width_);
  AttentionMemory out{memory, keys, {}};
  if (lengths.defined()) {
    out.within = within_lengths(type, lengths, memory.size(0), memory.size(1), 1);
    out.values = where(unsqueeze(out.within, 2), memory, 0.0);  // a weight of 0 times a NaN would be NaN
  }
  if (!keys.defined()) out.keys = memory_layer(out.values);
  return out;
}

AttentionMemory AdditiveAttention::prepare(const Tensor& memory, const Tensor& lengths, const Tensor& keys) {
  return prepared("AdditiveAttention", memory, lengths, keys);
}

AttentionRead AdditiveAttention::operator()(const Tensor& query, const Tensor& memory, const Tensor& lengths,
                                            const Tensor& keys) {
  constexpr const char* kType = "AdditiveAttention";
  check_memory(kType, memory, memory_);
  TD_CHECK(query.defined() && (query.rank() == 2 || query.rank() == 3) && query.size(0) == memory.size(0) &&
               query.size(-1) == query_,
           kType, ": the query must be (", memory.size(0), ", ", query_, ") or (", memory.size(0), ", T, ",
           query_, "); got ", describe(query), ".");
  const AttentionMemory taken = prepared(kType, memory, lengths, keys);
  const bool one = query.rank() == 2;
  const Tensor q = query_layer(one ? unsqueeze(query, 1) : query);  // (N, T, width)
  const Tensor energies = squeeze(v(tanh(unsqueeze(q, 2) + unsqueeze(taken.keys, 1))), 3);
  AttentionRead result = read(energies, taken);
  if (one) result = {squeeze(result.context, 1), squeeze(result.weights, 1)};
  return result;
}

LocationAttention::LocationAttention(Module* parent, const std::string& name, int64_t query, int64_t memory,
                                     int64_t width, LocationAttentionOptions options)
    : AdditiveAttention(parent, name, query, memory, width),
      location_conv(this, "location_conv", 2, options.filters, options.kernel,
                    {.padding = {(options.kernel - 1) / 2}, .bias = false}),
      location_dense(this, "location_dense", options.filters, width, {.bias = false}) {
  TD_CHECK(options.kernel % 2 == 1, label("LocationAttention", name),
           ": the kernel must be odd, so that it has a middle; got ", options.kernel, ".");
}

AttentionRead LocationAttention::operator()(const Tensor& query, const Tensor& memory, const Tensor& before,
                                            const Tensor& sum_before, const Tensor& lengths,
                                            const Tensor& keys) {
  return (*this)(query, prepared("LocationAttention", memory, lengths, keys), before, sum_before);
}

AttentionRead LocationAttention::operator()(const Tensor& query, const AttentionMemory& memory,
                                            const Tensor& before, const Tensor& sum_before) {
  constexpr const char* kType = "LocationAttention";
  check_memory(kType, memory.values, memory_);
  TD_CHECK(memory.keys.defined(), kType, ": a memory must have keys; got none. Make it by prepare().");
  check_keys(kType, memory.keys, memory.values, width_);
  const Dims steps{memory.values.size(0), memory.values.size(1)};
  TD_CHECK(query.defined() && query.shape() == (Dims{steps[0], query_}), kType, ": the query must be (",
           steps[0], ", ", query_, "); got ", describe(query), ".");
  TD_CHECK(before.defined() && sum_before.defined() && before.shape() == steps && sum_before.shape() == steps,
           kType, ": the weights before and their sum must be ", steps, " each; got ", describe(before),
           " and ", describe(sum_before), ". Begin with zeros.");
  const Tensor places =
      location_dense(transpose(location_conv(stack({before, sum_before}, 1)), 1, 2));  // (N, S, width)
  const Tensor energies = squeeze(v(tanh(unsqueeze(query_layer(query), 1) + places + memory.keys)), 2);
  const AttentionRead result = read(unsqueeze(energies, 1), memory);
  return {squeeze(result.context, 1), squeeze(result.weights, 1)};
}

}  // namespace tandem::nn
