// One step of a recurrent layer as a module, for loops of your own: with PyTorch's names, formulas and layouts of weights. A whole
// sequence is many times faster by LSTM, GRU and RNN (recurrent.h).
//   nn::LSTMCell cell{this, "cell", 10, 20};
//   nn::LSTMCell::State state;                        // zeros
//   for (const Tensor& x : steps) state = cell(x, state);
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct RecurrentCellOptions {
  bool bias = true;
  bool relu = false;  ///< in place of tanh. RNNCell only
};

/// What the cells share: the weights, uniform in ±1/√hidden. Each cell takes x (N, features) and gives states (N, hidden).
class RecurrentCell : public Module {
 public:
  using Options = RecurrentCellOptions;
  const Tensor weight_ih, weight_hh;  ///< (gates · hidden, features) and (gates · hidden, hidden)
  const Tensor bias_ih, bias_hh;      ///< (gates · hidden); undefined without bias

 protected:
  RecurrentCell(Module* parent, const std::string& name, const char* type, int64_t gates, int64_t features,
                int64_t hidden, const Options& options);
  /// Throws Error unless x is (N, features) of the weights' type.
  void check_input(const Tensor& x) const;
  /// A state as it is given, zeros where it is not. Throws Error unless it is (samples, hidden) of the weights' type.
  Tensor checked_state(const char* what, const Tensor& state, Dim samples) const;
  int64_t features() const { return weight_ih.size(1); }
  int64_t hidden() const { return weight_hh.size(1); }

 private:
  Tensor drawn(const char* name, const Dims& shape, int64_t hidden, bool is_there = true);
  const char* type_;
};

/// i, f, g, o = weight_ih · x + bias_ih + weight_hh · h + bias_hh;  c = sigmoid(f) · c + sigmoid(i) · tanh(g),  h = sigmoid(o) · tanh(c)
class LSTMCell : public RecurrentCell {
 public:
  struct State {
    Tensor h, c;  // (N, hidden); undefined before the first step: zeros
  };
  LSTMCell(Module* parent, const std::string& name, int64_t features, int64_t hidden,
           const Options& options = {})
      : RecurrentCell(parent, name, "LSTMCell", 4, features, hidden, options) {}
  using Module::forward;
  State forward(const Tensor& x, const State& before);
  State operator()(const Tensor& x, const State& before = {});
  /// The same from what the input contributes, weight_ih · x and both biases, (N, 4 · hidden): for loops that compute it for all steps
  /// at once, or of several inputs.
  State step(const Tensor& product, const State& before) const;
  /// Both biases added up. Refused without bias.
  Tensor bias() const;
};

/// r, z = sigmoid(weight_ih · x + bias_ih + weight_hh · h + bias_hh), two thirds of the rows;
/// n = tanh(weight_ih · x + bias_ih + r · (weight_hh · h + bias_hh)), the last third;  h = (1 - z) · n + z · h
class GRUCell : public RecurrentCell {
 public:
  GRUCell(Module* parent, const std::string& name, int64_t features, int64_t hidden,
          const Options& options = {})
      : RecurrentCell(parent, name, "GRUCell", 3, features, hidden, options) {}
  using Module::forward;
  /// From a state of zeros.
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

/// h = tanh(weight_ih · x + bias_ih + weight_hh · h + bias_hh), or relu of it.
class RNNCell : public RecurrentCell {
 public:
  RNNCell(Module* parent, const std::string& name, int64_t features, int64_t hidden,
          const Options& options = {})
      : RecurrentCell(parent, name, "RNNCell", 1, features, hidden, options), relu_(options.relu) {}
  using Module::forward;
  /// From a state of zeros.
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor operator()(const Tensor& x, const Tensor& h = {});

 private:
  bool relu_;
};

}  // namespace tandem::nn
