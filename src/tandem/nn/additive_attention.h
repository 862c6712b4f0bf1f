// Attention by a small network in place of a product: Bahdanau et al. 2015, and with a look at where it was before, Chorowski et al. 2015.
#pragma once

#include "tandem/nn/conv.h"
#include "tandem/nn/layers.h"

namespace tandem::nn {

/// What was read of a memory, and how much of each of its steps.
struct AttentionRead {
  Tensor context;  ///< (N, memory), or (N, T, memory) of T queries
  Tensor weights;  ///< (N, S), or (N, T, S): 0 and more, 1 in sum
};

/// A memory as reads take it: what a loop of reads need not compute each time.
struct AttentionMemory {
  Tensor values;  ///< (N, S, memory), zeros beyond the lengths
  Tensor keys;    ///< memory_layer(values), (N, S, width)
  Tensor within;  ///< bool (N, S): the true steps; undefined: all are
};

/// energy of step s = v · tanh(query_layer(query) + memory_layer(memory_s)), all without biases; weights are their softmax over
/// the true steps, and the context is the mean of the memory by these weights. Names are those of NVIDIA's Tacotron 2.
class AdditiveAttention : public Module {
 public:
  AdditiveAttention(Module* parent, const std::string& name, int64_t query, int64_t memory, int64_t width);
  /// query (N, query) or (N, T, query), memory (N, S, memory). lengths: i64 (N), how many steps of the memory are true, 1 to S; what
  /// stands beyond is not read. keys: memory_layer(memory), where it was computed before; undefined: now.
  AttentionRead operator()(const Tensor& query, const Tensor& memory, const Tensor& lengths = {},
                           const Tensor& keys = {});
  /// The memory for several reads; lengths and keys as above.
  AttentionMemory prepare(const Tensor& memory, const Tensor& lengths = {}, const Tensor& keys = {});

  Linear query_layer, memory_layer, v;

 protected:
  AttentionMemory prepared(const char* type, const Tensor& memory, const Tensor& lengths, const Tensor& keys);
  int64_t query_, memory_, width_;
};

struct LocationAttentionOptions {
  int64_t filters = 32;
  int64_t kernel = 31;  ///< odd
};
/// The same with location_dense(location_conv({weights before, sum of all weights before})) inside the tanh, so that it moves on step by
/// step. For one query at a time.
class LocationAttention : public AdditiveAttention {
 public:
  using Options = LocationAttentionOptions;
  LocationAttention(Module* parent, const std::string& name, int64_t query, int64_t memory, int64_t width,
                    LocationAttentionOptions options = {});
  /// before, sum_before: (N, S), the weights of the last read and the sum of all: zeros at first.
  AttentionRead operator()(const Tensor& query, const Tensor& memory, const Tensor& before,
                           const Tensor& sum_before, const Tensor& lengths = {}, const Tensor& keys = {});
  /// The same of a memory that prepare() made.
  AttentionRead operator()(const Tensor& query, const AttentionMemory& memory, const Tensor& before,
                           const Tensor& sum_before);

  Conv1d location_conv;
  Linear location_dense;
};

}  // namespace tandem::nn
