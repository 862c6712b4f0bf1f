// Recurrent layers, with PyTorch's names, meanings and layouts of weights, and the batch as the first axis.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct LSTMOptions {
  int64_t layers = 1;          ///< the output of one is the input of the next
  bool bidirectional = false;  ///< a second pass from the end, beside the first in the output
  bool bias = true;
  double dropout = 0;  ///< while training, on the output of every layer but the last
};

/// What a call may be given besides the sequence.
struct LSTMInputs {
  /// Initial states, (layers · directions, N, hidden) each; both or neither. Zeros where none are given.
  Tensor h = {}, c = {};
  /// i64 (N): how many steps of each sample are true, from 0 to T. Those beyond are not read and give zeros, and a
  /// direction from the end begins at the last true step. A length out of range is refused: at once where its value can be
  /// read, in a compiled callable when it runs, on a GPU at the next synchronisation.
  Tensor lengths = {};
};

struct LSTMResult {
  Tensor output;  ///< h of the last layer at every step, (N, T, hidden · directions)
  Tensor h, c;    ///< the states after the last true step, (layers · directions, N, hidden)
};

/// Hochreiter and Schmidhuber 1997, with forget gates: x (N, T, features) -> output (N, T, hidden · directions). At each step
///   i, f, g, o = weight_ih · x + bias_ih + weight_hh · h + bias_hh
///   c = sigmoid(f) · c + sigmoid(i) · tanh(g),  h = sigmoid(o) · tanh(c)
/// Parameters are uniform in ±1/√hidden; weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, then those of the direction from
/// the end, weight_ih_l0_reverse …, then the next layer's, weight_ih_l1 …
class LSTM : public Module {
 public:
  using Options = LSTMOptions;
  LSTM(Module* parent, const std::string& name, int64_t features, int64_t hidden, LSTMOptions options = {});
  using Module::forward;
  /// The output alone. What a container calls.
  Tensor forward(const Tensor& x) override { return forward(x, {}).output; }
  LSTMResult forward(const Tensor& x, const LSTMInputs& inputs);
  LSTMResult operator()(const Tensor& x, const LSTMInputs& inputs = {});

  /// Of one direction of one layer.
  struct Weights {
    Tensor ih, hh, bias_ih,
        bias_hh;  // (4 · hidden, in), (4 · hidden, hidden), (4 · hidden) twice, or undefined
  };
  std::vector<Weights> weights;  ///< layer by layer; of two directions the one from the start first

 private:
  void check(const Tensor& x, const LSTMInputs& inputs) const;

  int64_t features_, hidden_, directions_;
  LSTMOptions options_;
};

}  // namespace tandem::nn
