#include "tandem/nn/recurrent.h"

#include "tandem/core/autocast.h"
#include "tandem/core/function.h"
#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

namespace {

/// The axis in `count` parts of equal size, views as those of chunk(). Their gradients are put together once, where each
/// part of chunk() adds zeros of the whole: of T steps that is time in proportion to T, not to T².
std::vector<Tensor> cut(const Tensor& x, int64_t axis, int64_t count) {
  const CustomFunction parts(
      "LSTM", [=](FunctionContext&, const std::vector<Tensor>& in) { return chunk(in[0], count, axis); },
      [=](const FunctionContext&, std::vector<Tensor> grads) {
        Tensor zero;  // for parts that nobody used
        for (const Tensor& g : grads)
          if (g.defined() && !zero.defined()) zero = zeros(g.shape(), g.dtype(), g.device());
        for (Tensor& g : grads)
          if (!g.defined()) g = zero;
        return std::vector<Tensor>{concat(grads, axis)};
      });
  return parts({x});
}

/// One direction of one layer.
struct Pass {
  std::vector<Tensor> steps;  // h at each step, (N, hidden); beyond a length whatever it was before
  Tensor h, c;                // (N, hidden)
};

/// The implementation `cell`: op by op, one step after the other. x (T, N, in); within (T, N, 1) or undefined. What stands
/// where `within` is false must be finite.
Pass run_cell(const LSTM::Weights& weights, const Tensor& x, const Tensor& h, const Tensor& c,
              const Tensor& within, bool from_end) {
  const Dim count = x.size(0);
  const Tensor bias = weights.bias_ih.defined() ? weights.bias_ih + weights.bias_hh : Tensor();
  const std::vector<Tensor> products = cut(linear(x, weights.ih, bias), 0, count);  // (1, N, 4 · hidden)
  Pass pass{std::vector<Tensor>(static_cast<size_t>(count)), h, c};
  for (Dim i = 0; i < count; ++i) {
    const Dim t = from_end ? count - 1 - i : i;
    const auto at = static_cast<size_t>(t);
    const std::vector<Tensor> gates = cut(squeeze(products[at], 0) + linear(pass.h, weights.hh), 1, 4);
    const Tensor c_next = sigmoid(gates[1]) * pass.c + sigmoid(gates[0]) * tanh(gates[2]);
    const Tensor h_next = sigmoid(gates[3]) * tanh(c_next);
    if (within.defined()) {
      const Tensor is_true = select(within, 0, t);  // (N, 1)
      pass.c = where(is_true, c_next, pass.c);
      pass.h = where(is_true, h_next, pass.h);
    } else {
      pass.c = c_next;
      pass.h = h_next;
    }
    pass.steps[at] = pass.h;
  }
  return pass;
}

}  // namespace

LSTM::LSTM(Module* parent, const std::string& name, int64_t features, int64_t hidden, LSTMOptions options)
    : Module(parent, name),
      features_(features),
      hidden_(hidden),
      directions_(options.bidirectional ? 2 : 1),
      options_(options) {
  const std::string layer = label("LSTM", name);
  TD_CHECK(features >= 1 && hidden >= 1 && options.layers >= 1, layer, ": sizes must be at least 1; got ",
           features, " features, ", hidden, " hidden and ", options.layers, " layers.");
  TD_CHECK(options.dropout >= 0 && options.dropout < 1, layer,
           ": the probability of dropout must be at least 0 and below 1; got ", options.dropout, ".");
  const Dim rows = times_capped(4, hidden), wide = times_capped(directions_, hidden);
  for (int64_t i = 0; i < options.layers; ++i)
    for (const char* direction : {"", "_reverse"}) {
      if (*direction && !options.bidirectional) continue;
      const auto drawn = [&](const char* kind, const Dims& shape) {
        return parameter(cat(kind, "_l", i, direction), uniform_by_fan_in(shape, hidden));
      };
      Weights& row = weights.emplace_back();
      row.ih = drawn("weight_ih", {rows, i == 0 ? features : wide});
      row.hh = drawn("weight_hh", {rows, hidden});
      if (!options.bias) continue;
      row.bias_ih = drawn("bias_ih", {rows});
      row.bias_hh = drawn("bias_hh", {rows});
    }
}

void LSTM::check(const Tensor& x, const LSTMInputs& inputs) const {
  const DType dtype = weights[0].ih.dtype();
  TD_CHECK(x.defined() && x.rank() == 3 && x.size(1) >= 1 && x.size(2) == features_,
           "LSTM: x must be (N, T, ", features_, ") with at least one time step; got ", describe(x),
           ". unsqueeze() a single sequence; transpose() one with another order of axes.");
  TD_CHECK(x.dtype() == dtype || (autocast_is_on() && is_floating(x.dtype())), "LSTM: x must have the type ",
           dtype, " of the weights; got ", describe(x), ". cast() it, or move the layer by to().");
  if (!inputs.h.defined() && !inputs.c.defined()) return;
  const Dims shape{options_.layers * directions_, x.size(0), hidden_};
  const auto fits = [&](const Tensor& state) {
    return state.defined() && state.shape() == shape && state.dtype() == dtype;
  };
  TD_CHECK(fits(inputs.h) && fits(inputs.c),
           "LSTM: initial states are two, h and c, each (layers · directions, N, hidden), here ", dtype, " ",
           shape, "; got h ", describe(inputs.h), " and c ", describe(inputs.c),
           ". Give both or neither; zeros are the default.");
}

LSTMResult LSTM::operator()(const Tensor& x, const LSTMInputs& inputs) {
  std::vector<Tensor> in = {x};
  for (const Tensor& given : {inputs.h, inputs.c, inputs.lengths})
    if (given.defined()) in.push_back(given);
  const std::vector<Tensor> out = call(in, [&](const std::vector<Tensor>& all) {
    size_t next = 1;
    LSTMInputs now;
    if (inputs.h.defined()) now.h = all[next++];
    if (inputs.c.defined()) now.c = all[next++];
    if (inputs.lengths.defined()) now.lengths = all[next];
    const LSTMResult result = forward(all[0], now);
    return std::vector<Tensor>{result.output, result.h, result.c};
  });
  return {out[0], out[1], out[2]};
}

LSTMResult LSTM::forward(const Tensor& x, const LSTMInputs& inputs) {
  check(x, inputs);
  const Dim n = x.size(0);
  Tensor y = transpose(x, 0, 1);  // (T, N, in): the steps lie together
  Tensor within;                  // (T, N, 1)
  if (inputs.lengths.defined()) {
    within = unsqueeze(transpose(within_lengths("LSTM", inputs.lengths, n, x.size(1), 0)), 2);
    y = where(within, y, 0.0);
  }
  const Tensor zero = inputs.h.defined() ? Tensor() : zeros({n, hidden_}, weights[0].hh.dtype(), x.device());
  std::vector<Tensor> h, c;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    const bool is_last = layer + 1 == options_.layers;
    const int time = is_last ? 1 : 0;  // the axis of steps in what the layer gives
    std::vector<Tensor> sides;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      const int64_t row = layer * directions_ + direction;
      const Pass pass =
          run_cell(weights[static_cast<size_t>(row)], y, zero.defined() ? zero : select(inputs.h, 0, row),
                   zero.defined() ? zero : select(inputs.c, 0, row), within, direction == 1);
      sides.push_back(stack(pass.steps, time));
      h.push_back(pass.h);
      c.push_back(pass.c);
    }
    y = sides.size() == 1 ? sides[0] : concat(sides, 2);
    if (within.defined()) y = where(is_last ? transpose(within, 0, 1) : within, y, 0.0);
    if (!is_last && options_.dropout > 0 && training()) y = dropout(y, options_.dropout);
  }
  return {y, stack(h), stack(c)};
}

}  // namespace tandem::nn
