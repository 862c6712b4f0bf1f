// From the probabilities of a model to sequences of tokens: greedy, by beams, drawn; and out of the steps of a network that was
// trained with ctc_loss. Choices are made on the host, in a fixed order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem {

/// What a model makes of one token for each row: logits or log-probabilities of the next, (rows, vocabulary), and its new state.
struct DecodeStep {
  Tensor logits;
  std::vector<Tensor> state;
};
/// tokens: i64 (rows). Rows of state tensors lie along DecodeOptions::state_axis.
using DecodeFunction = std::function<DecodeStep(const Tensor& tokens, const std::vector<Tensor>& state)>;

struct DecodeOptions {
  int64_t first = 0;      ///< the token that begins every sequence; it is not part of the result
  int64_t end = -1;       ///< the token that ends one, not part of the result either; -1: none does
  int64_t longest = 100;  ///< tokens at most
  int64_t state_axis = 0;
  int64_t beams = 1;  ///< sequences that are followed at a time, for each sample; 1 is greedy
  /// Sequences are compared by log-probability / length^length_penalty: 0 favours short ones.
  double length_penalty = 1;
  /// decode(): the tokens of each sample at most, from 1 to `longest`; empty: `longest` for all.
  std::vector<int64_t> longest_each = {};
};
struct Decoded {
  std::vector<int64_t> tokens;
  double log_probability = 0;
};
/// For each sample its `beams` best sequences, the best first (greedy: one). `state`: of the samples, before the first token.
std::vector<std::vector<Decoded>> decode(const DecodeFunction& step, int64_t samples,
                                         const std::vector<Tensor>& state, const DecodeOptions& options = {});

struct SampleOptions {
  double temperature = 1;  ///< above 0: logits are divided by it
  int64_t top_k = 0;       ///< draws among so many of the likeliest tokens; 0: among all
  double top_p = 1;        ///< draws among the likeliest tokens that together have this probability
  uint64_t seed = 0;       ///< the same seed draws the same tokens
};
/// One drawn sequence for each sample. `beams` and `length_penalty` must be left alone.
std::vector<Decoded> decode_sampled(const DecodeFunction& step, int64_t samples,
                                    const std::vector<Tensor>& state, const SampleOptions& sampling,
                                    const DecodeOptions& options = {});

/// The labels of a path, the class of each step: repetitions and blanks are taken out.
std::vector<int64_t> ctc_collapse(std::span<const int64_t> path, int64_t blank = 0);
/// The labels that the steps (T, N, C) of log-probabilities read as: the likeliest class of each step, with repetitions and blanks
/// taken out. lengths: i64 (N), or undefined.
std::vector<std::vector<int64_t>> ctc_greedy(const Tensor& log_probabilities, const Tensor& lengths = {},
                                             int64_t blank = 0);
/// The likeliest labels over all their paths, as far as `beams` beginnings of them show.
std::vector<std::vector<int64_t>> ctc_beams(const Tensor& log_probabilities, const Tensor& lengths,
                                            int64_t beams, int64_t blank = 0);

}  // namespace tandem
