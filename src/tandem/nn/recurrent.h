// Recurrent layers, with PyTorch's names, meanings and layouts of weights, and the batch as the first axis.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/recurrent.h"

namespace tandem::nn {

/// How the steps are computed. Parameters, results and random numbers are the same in all three; sums may be rounded otherwise.
enum class RecurrentImplementation : uint8_t {
  fused,  ///< the whole sequence is one op
  block,  ///< one op per step
  cell,   ///< made of single ops: slow, and the one with gradients of every order
};

/// "fused", "block" or "cell".
const char* name(RecurrentImplementation implementation);
/// Throws Error with the names that there are.
RecurrentImplementation parse_recurrent_implementation(std::string_view name);

struct RecurrentLayerOptions {
  int64_t layers = 1;          ///< the output of one is the input of the next
  bool bidirectional = false;  ///< a second pass from the end, beside the first in the output
  bool bias = true;
  int64_t projection = 0;  ///< h is projected to so many elements; 0: not at all. LSTM only
  /// Layer norm (Ba et al. 2016) of the input's and of the state's products, and of the c that h is made of.
  bool layer_norm = false;
  double dropout = 0;  ///< while training, on the output of every layer but the last
  // Regularisers of every layer and direction, by their probabilities; all but zoneout act while training alone.
  double zoneout_h =
      0;  ///< a unit of h keeps its old value (Krueger et al. 2017); in test mode it takes the mean
  double zoneout_c = 0;  ///< the same for c. LSTM only
  double input_dropout =
      0;  ///< on the input, with one mask for all steps (variational, Gal and Ghahramani 2016)
  double state_dropout = 0;      ///< the same on h as it enters the product
  double recurrent_dropout = 0;  ///< on tanh(g), anew at each step (Semeniuta et al. 2016). LSTM only
  double weight_drop = 0;        ///< on weight_hh, once per call (Merity et al. 2018)
  bool relu = false;             ///< in place of tanh. RNN only
  RecurrentImplementation implementation = RecurrentImplementation::fused;
};

/// What a call may be given besides the sequence.
struct RecurrentLayerInputs {
  /// Initial states, (layers · directions, N, hidden) each (h with a projection: its size in place of hidden); all or none. Zeros
  /// where none are given. c: LSTM only.
  Tensor h = {}, c = {};
  /// i64 (N): how many steps of each sample are true, from 0 to T. Those beyond are not read and give zeros, and a
  /// direction from the end begins at the last true step. A length out of range is refused: at once where its value can be
  /// read, in a compiled callable when it runs, on a GPU at the next synchronisation.
  Tensor lengths = {};
};

struct RecurrentLayerResult {
  Tensor
      output;  ///< h of the last layer at every step, (N, T, hidden · directions), or the projection's size for hidden
  Tensor h, c;  ///< the states after the last true step, (layers · directions, N, hidden). c: LSTM only
};

/// What LSTM, GRU and RNN share: x (N, T, features) -> output (N, T, hidden · directions). Parameters are uniform in ±1/√hidden;
/// weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, [weight_hr_l0 of a projection, norm_ih_l0, norm_hh_l0, norm_c_l0 and
/// norm_c_bias_l0 of layer norm,] then those of the direction from the end, weight_ih_l0_reverse …, then the next layer's,
/// weight_ih_l1 … A step is that of ops/recurrent.h.
class RecurrentLayer : public Module {
 public:
  using Module::forward;
  /// The output alone. What a container calls.
  Tensor forward(const Tensor& x) override { return forward(x, {}).output; }
  RecurrentLayerResult forward(const Tensor& x, const RecurrentLayerInputs& inputs);
  RecurrentLayerResult operator()(const Tensor& x, const RecurrentLayerInputs& inputs = {});

  RecurrentImplementation implementation() const {
    return static_cast<RecurrentImplementation>(read_switch(implementation_));
  }
  /// From the next call on. A compiled callable is traced again.
  void set_implementation(RecurrentImplementation implementation);

  /// Of one direction of one layer.
  struct Weights {
    Tensor ih, hh, bias_ih,
        bias_hh;  // (gates · hidden, in), (gates · hidden, P), (gates · hidden) twice, or undefined
    Tensor hr;    // (P, hidden), or undefined
    Tensor norm_ih, norm_hh, norm_c, norm_c_bias;  // (gates · hidden) twice, (hidden) twice, or undefined
  };
  const std::vector<Weights> weights;  ///< layer by layer; of two directions the one from the start first

 protected:
  RecurrentLayer(Module* parent, const std::string& name, const char* type, Recurrence kind, int64_t features,
                 int64_t hidden, const RecurrentLayerOptions& options);

 private:
  struct Masks;
  struct Pass;
  /// Draws all of them, once the options are seen to be right.
  std::vector<Weights> first_weights(const std::string& layer, Recurrence kind, int64_t features,
                                     int64_t hidden, const RecurrentLayerOptions& options);
  void check(const Tensor& x, const RecurrentLayerInputs& inputs) const;
  Masks draw(Dim steps, Dim samples, Dim features, DType dtype, Device device) const;
  Pass run_whole(const Weights& row, const Tensor& x, const Tensor& h, const Tensor& c, bool from_end) const;
  Pass run_steps(const Weights& row, const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& lengths,
                 const Tensor& within, const Masks& masks, bool from_end) const;
  Pass run_cell(const Weights& row, const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& within,
                const Masks& masks, bool from_end) const;
  Pass run_block(const Weights& row, const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& lengths,
                 const Masks& masks, bool from_end) const;
  Pass run_fused(const Weights& row, const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& lengths,
                 const Masks& masks, bool from_end) const;
  bool has_cells() const { return kind_ == Recurrence::lstm; }

  const char* type_;
  Recurrence kind_;
  int64_t features_, hidden_, directions_;
  int64_t state_;  // elements of h
  RecurrentLayerOptions options_;
  std::shared_ptr<uint64_t> implementation_;  // a switch: compiled callables ask for it
};

using LSTMOptions = RecurrentLayerOptions;
using LSTMInputs = RecurrentLayerInputs;
using LSTMResult = RecurrentLayerResult;

/// Hochreiter and Schmidhuber 1997, with forget gates:
///   i, f, g, o = weight_ih · x + bias_ih + weight_hh · h + bias_hh
///   c = sigmoid(f) · c + sigmoid(i) · tanh(g),  h = sigmoid(o) · tanh(c)
class LSTM : public RecurrentLayer {
 public:
  using Options = RecurrentLayerOptions;
  LSTM(Module* parent, const std::string& name, int64_t features, int64_t hidden, const Options& options = {})
      : RecurrentLayer(parent, name, "LSTM", Recurrence::lstm, features, hidden, options) {}
};

/// Cho et al. 2014, as PyTorch has it:
///   r, z = sigmoid(weight_ih · x + bias_ih + weight_hh · h + bias_hh), two thirds of the rows
///   n = tanh(weight_ih · x + bias_ih + r · (weight_hh · h + bias_hh)), the last third;  h = (1 - z) · n + z · h
class GRU : public RecurrentLayer {
 public:
  using Options = RecurrentLayerOptions;
  GRU(Module* parent, const std::string& name, int64_t features, int64_t hidden, const Options& options = {})
      : RecurrentLayer(parent, name, "GRU", Recurrence::gru, features, hidden, options) {}
};

/// Elman 1990: h = tanh(weight_ih · x + bias_ih + weight_hh · h + bias_hh), or relu of it.
class RNN : public RecurrentLayer {
 public:
  using Options = RecurrentLayerOptions;
  RNN(Module* parent, const std::string& name, int64_t features, int64_t hidden, const Options& options = {})
      : RecurrentLayer(parent, name, "RNN", options.relu ? Recurrence::rnn_relu : Recurrence::rnn_tanh,
                       features, hidden, options) {}
};

}  // namespace tandem::nn
