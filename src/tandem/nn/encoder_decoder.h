// Models that read one sequence and write another, token by token.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// A model that is trained with teacher forcing: model({source i64 (N, S), their lengths i64 (N), what stands before each target token
/// i64 (N, T)}) gives {logits (N, T, words)}. It writes by itself through read() and write(). The zoo's seq2seq and gnmt are such.
class EncoderDecoder {
 public:
  virtual ~EncoderDecoder() = default;
  /// What the decoder begins with, after the whole source was read. Rows lie along the first axis of each tensor.
  virtual std::vector<Tensor> read(const Tensor& source, const Tensor& lengths) = 0;
  /// One token (N) further: logits of the next (N, words), and the state behind it.
  struct Written {
    Tensor logits;
    std::vector<Tensor> state;
  };
  virtual Written write(const Tensor& tokens, const std::vector<Tensor>& state) = 0;
};

}  // namespace tandem::nn
