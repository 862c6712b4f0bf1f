#include "tandem/zoo/tacotron2_decoder.h"

#include <span>

#include "tandem/graph/scan.h"
#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

namespace {

/// Zoneout of a step: units keep their old value where `masks` (of h and of c, bool) say so; without masks all keep a `share` of it.
nn::LSTMCell::State zoned_out(const nn::LSTMCell::State& now, const nn::LSTMCell::State& before,
                              std::span<const Tensor> masks, double share) {
  const auto one = [&](const Tensor& new_value, const Tensor& old_value, size_t mask) {
    if (!masks.empty()) return where(masks[mask], old_value, new_value);
    return share == 0 ? new_value : old_value * share + new_value * (1 - share);
  };
  return {one(now.h, before.h, 0), one(now.c, before.c, 1)};
}

}  // namespace

Tacotron2Decoder::Tacotron2Decoder(Module* parent, const std::string& name, const Tacotron2Options& o)
    : Module(parent, name),
      options_(o),
      prenet1_(this, "prenet1", o.mels, o.prenet, {.bias = false}),
      prenet2_(this, "prenet2", o.prenet, o.prenet, {.bias = false}),
      attention_rnn_(this, "attention_rnn", o.prenet + o.embedding, o.attention_rnn),
      attention_(this, "attention", o.attention_rnn, o.embedding, o.attention,
                 {.filters = o.filters, .kernel = o.location_kernel}),
      decoder_rnn_(this, "decoder_rnn", o.attention_rnn + o.embedding, o.decoder_rnn),
      projection_(this, "projection", o.decoder_rnn + o.embedding, o.mels),
      gate_(this, "gate", o.decoder_rnn + o.embedding, 1) {
  namespace init = nn::init;
  const double tanh_gain = init::calculate_gain(init::Nonlinearity::tanh);
  for (const Tensor& plain : {prenet1_.weight, prenet2_.weight, attention_.v.weight,
                              attention_.location_conv.weight, projection_.weight, gate_.weight})
    init::xavier_uniform_(plain);
  for (const Tensor& before_tanh :
       {attention_.query_layer.weight, attention_.memory_layer.weight, attention_.location_dense.weight})
    init::xavier_uniform_(before_tanh, tanh_gain);
}

/// One frame after the other over one text. State: h and c of both LSTMs, the context, the attention's weights and their sum.
struct Tacotron2Decoder::Loop {
  Loop(Tacotron2Decoder& decoder, const Tensor& memory, const Tensor& lengths)
      : d(decoder),
        memory(decoder.attention_.prepare(memory, lengths)),
        frame_weight(slice(decoder.attention_rnn_.weight_ih, 1, 0, decoder.options_.prenet)),
        // In one piece: each step would keep a copy of a view.
        context_weight(tandem::clone(slice(decoder.attention_rnn_.weight_ih, 1, decoder.options_.prenet,
                                           decoder.options_.prenet + decoder.options_.embedding))),
        attention_bias(decoder.attention_rnn_.bias()),
        decoder_bias(decoder.decoder_rnn_.bias()) {}

  std::vector<Tensor> first_state() const {
    const Dim n = memory.values.size(0), steps = memory.values.size(1);
    const Tacotron2Options& o = d.options_;
    std::vector<Tensor> state;
    for (const Dim size :
         {o.attention_rnn, o.attention_rnn, o.decoder_rnn, o.decoder_rnn, o.embedding, steps, steps})
      state.push_back(zeros({n, size}, dtype(), memory.values.device()));
    return state;
  }
  DType dtype() const { return d.attention_rnn_.weight_hh.dtype(); }

  /// What a frame, or all of them, contribute to the first LSTM: (…, mels) -> (…, 4 · attention_rnn).
  Tensor products(const Tensor& frames) const {
    return linear(d.prenet(frames), frame_weight, attention_bias);
  }

  /// product (N, 4 · attention_rnn); masks: units of h and c that keep their values, of the first LSTM and of the second, or
  /// none. Outputs: h of the second LSTM, the context, the weights.
  ScanStep step(const std::vector<Tensor>& state, const Tensor& product,
                std::span<const Tensor> masks) const {
    const Tacotron2Options& o = d.options_;
    const double share = d.training() ? 0 : o.zoneout;  // in evaluation zoneout is its mean
    const auto stepped = [&](const nn::LSTMCell& cell, const Tensor& of_input, size_t at) {
      const nn::LSTMCell::State before = {state[at], state[at + 1]};
      nn::LSTMCell::State made =
          zoned_out(cell.step(of_input, before), before, masks.empty() ? masks : masks.subspan(at, 2), share);
      if (d.training() && o.decoder_dropout > 0) made.h = dropout(made.h, o.decoder_dropout);
      return made;
    };
    const nn::LSTMCell::State first =
        stepped(d.attention_rnn_, product + linear(state[4], context_weight), 0);
    const nn::AttentionRead read = d.attention_(first.h, memory, state[5], state[6]);
    // As they began, under Autocast too.
    const Tensor context = cast(read.context, dtype()), weights = cast(read.weights, dtype());
    const nn::LSTMCell::State second = stepped(
        d.decoder_rnn_, linear(concat({first.h, context}, 1), d.decoder_rnn_.weight_ih, decoder_bias), 2);
    return {{first.h, first.c, second.h, second.c, context, weights, state[6] + weights},
            {second.h, context, weights}};
  }

  Tacotron2Decoder& d;
  nn::AttentionMemory memory;
  Tensor frame_weight, context_weight, attention_bias, decoder_bias;
};

Tensor Tacotron2Decoder::prenet(const Tensor& frames) const {
  Tensor x = frames;
  for (const nn::Linear* layer : {&prenet1_, &prenet2_}) {
    x = relu(linear(x, layer->weight));
    if (options_.prenet_dropout > 0) x = dropout(x, options_.prenet_dropout);
  }
  return x;
}

/// (T, N, …) each.
Tacotron2Decoder::Frames Tacotron2Decoder::projected(const Tensor& hidden, const Tensor& contexts,
                                                     const Tensor& weights) {
  const Tensor both = transpose(concat({hidden, contexts}, 2), 0, 1);
  return {projection_(both), squeeze(gate_(both), 2), transpose(weights, 0, 1)};
}

Tacotron2Decoder::Frames Tacotron2Decoder::forced(const Tensor& memory, const Tensor& lengths,
                                                  const Tensor& mels) {
  const Dim steps = mels.size(1);
  const Tensor frames = transpose(mels, 0, 1);  // (T, N, mels)
  const Tensor first = zeros_like(slice(frames, 0, 0, 1));
  const Tensor before = steps == 1 ? first : concat({first, slice(frames, 0, 0, steps - 1)}, 0);
  const Loop loop(*this, memory, lengths);
  std::vector<Tensor> sequences = {loop.products(before)};
  if (training() && options_.zoneout > 0)
    for (const Dim size :
         {options_.attention_rnn, options_.attention_rnn, options_.decoder_rnn, options_.decoder_rnn})
      sequences.push_back(
          bernoulli({steps, mels.size(0), size}, options_.zoneout, DType::boolean, mels.device()));
  const ScanResult made = scan(
      [&](const std::vector<Tensor>& state, const std::vector<Tensor>& now) {
        return loop.step(state, now[0], std::span(now).subspan(1));
      },
      loop.first_state(), sequences, {.batch_weights = true});
  return projected(made.outputs[0], made.outputs[1], made.outputs[2]);
}

Tacotron2Decoder::Spoken Tacotron2Decoder::spoken(const Tensor& memory, const Tensor& lengths,
                                                  int64_t longest) {
  const Loop loop(*this, memory, lengths);
  std::vector<Tensor> state = loop.first_state(), mels, gates, weights;
  const auto n = static_cast<size_t>(memory.size(0));
  Spoken out{.frames = {}, .lengths = std::vector<int64_t>(n, longest), .ended = std::vector<bool>(n)};
  Tensor frame = zeros({memory.size(0), options_.mels}, loop.dtype(), memory.device());
  size_t open = n;  // samples that go on
  for (int64_t t = 0; t < longest && open > 0; ++t) {
    ScanStep made = loop.step(state, loop.products(frame), {});
    state = std::move(made.state);
    const Frames now = projected(unsqueeze(made.outputs[0], 0), unsqueeze(made.outputs[1], 0),
                                 unsqueeze(made.outputs[2], 0));
    frame = cast(squeeze(now.mels, 1), loop.dtype());
    mels.push_back(now.mels);
    gates.push_back(now.gates);
    weights.push_back(now.weights);
    const std::vector<float> gate = cast(now.gates, DType::f32).to_vector<float>();
    for (size_t i = 0; i < n; ++i) {
      if (out.ended[i] || gate[i] <= 0) continue;
      out.ended[i] = true;
      out.lengths[i] = t + 1;
      --open;
    }
  }
  out.frames = {concat(mels, 1), concat(gates, 1), concat(weights, 1)};
  return out;
}

}  // namespace tandem::zoo
