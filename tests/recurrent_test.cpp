// LSTM, GRU and RNN: PyTorch's values and gradients (golden/make_sequences.py), gradients by differences, the same bits in both
// engines, steps beyond a sample's length, and refusals.
// ctest: asan
#include "tandem/nn/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/reduce.h"
#include "tandem/optim/sgd.h"
#include "tests/support/golden.h"
#include "tests/support/numeric_gradient.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Dim kSamples = 3, kSteps = 4, kFeatures = 3, kHidden = 2;

Tensor values(const Dims& shape, uint32_t salt, DType dtype) {
  return to_tensor(hash_array(shape, salt, -2, 2), dtype);
}

/// x with NaN in every step beyond its sample's length.
Tensor spoiled(const Tensor& x, const std::vector<int64_t>& lengths) {
  Array array = to_array(x);
  each_index(x.shape(), [&](const Dims& at) {
    if (at[1] >= lengths[static_cast<size_t>(at[0])]) array.at(at) = kNan;
  });
  return to_tensor(array, x.dtype());
}

Tensor to_lengths(const std::vector<int64_t>& lengths) {
  return from_vector<int64_t>(lengths, {static_cast<Dim>(lengths.size())});
}

/// What the script differentiates.
Tensor loss_of(const nn::RecurrentLayerResult& result) {
  Tensor total;
  uint32_t salt = 77;
  for (const Tensor& y : {result.output, result.h, result.c}) {
    if (!y.defined()) continue;
    const Tensor part = sum(y * y * to_tensor(hash_array(y.shape(), salt++), y.dtype()));
    total = total.defined() ? total + part : part;
  }
  return total;
}

using Options = nn::RecurrentLayerOptions;
using nn::RecurrentImplementation;
constexpr RecurrentImplementation kImplementations[] = {
    RecurrentImplementation::fused, RecurrentImplementation::block, RecurrentImplementation::cell};
enum Type { lstm, gru, rnn };

std::unique_ptr<nn::RecurrentLayer> make(Type type, const Options& options, int64_t hidden = kHidden) {
  if (type == lstm) return std::make_unique<nn::LSTM>(nullptr, "", kFeatures, hidden, options);
  if (type == gru) return std::make_unique<nn::GRU>(nullptr, "", kFeatures, hidden, options);
  return std::make_unique<nn::RNN>(nullptr, "", kFeatures, hidden, options);
}

struct Case {
  std::string name;
  Type type;
  Options options;
  bool has_states = false;
  std::vector<int64_t> lengths;
};
/// The rows of LAYERS in golden/make_sequences.py.
std::vector<Case> cases() {
  return {
      {"lstm", lstm, {}, false, {}},
      {"lstm_no_bias", lstm, {.bias = false}, true, {}},
      {"lstm_deep", lstm, {.layers = 2}, true, {}},
      {"lstm_both", lstm, {.bidirectional = true}, false, {}},
      {"lstm_lengths", lstm, {}, false, {2, 4, 1}},
      {"lstm_all", lstm, {.layers = 2, .bidirectional = true}, true, {3, 1, 4}},
      {"lstm_projected", lstm, {.projection = 1}, true, {}},
      {"lstm_projected_all", lstm, {.layers = 2, .bidirectional = true, .projection = 1}, true, {3, 1, 4}},
      {"gru", gru, {}, false, {}},
      {"gru_no_bias", gru, {.bias = false}, true, {}},
      {"gru_all", gru, {.layers = 2, .bidirectional = true}, true, {3, 1, 4}},
      {"rnn", rnn, {}, true, {}},
      {"rnn_relu", rnn, {.relu = true}, false, {}},
      {"rnn_all", rnn, {.layers = 2, .bidirectional = true}, true, {3, 1, 4}}};
}
/// Each regulariser by itself, and all at once.
std::vector<Case> regularised() {
  const Options all{.layers = 2,
                    .bidirectional = true,
                    .dropout = 0.2,
                    .zoneout_h = 0.3,
                    .zoneout_c = 0.4,
                    .input_dropout = 0.2,
                    .state_dropout = 0.3,
                    .recurrent_dropout = 0.25,
                    .weight_drop = 0.3};
  Options without_cells = all;
  without_cells.zoneout_c = without_cells.recurrent_dropout = 0;
  const auto normalised = [](Options options, int64_t projection = 0) {
    options.layer_norm = true;
    options.projection = projection;
    return options;
  };
  return {{"zoneout_h", lstm, {.zoneout_h = 0.4}, true, {}},
          {"zoneout_c", lstm, {.zoneout_c = 0.4}, true, {}},
          {"input_dropout", lstm, {.input_dropout = 0.4}, true, {}},
          {"state_dropout", lstm, {.state_dropout = 0.4}, true, {}},
          {"recurrent_dropout", lstm, {.recurrent_dropout = 0.4}, true, {}},
          {"weight_drop", lstm, {.weight_drop = 0.4}, true, {}},
          {"all", lstm, all, true, {3, 0, 4}},
          {"gru_zoneout", gru, {.zoneout_h = 0.4, .state_dropout = 0.3}, true, {}},
          {"gru_all", gru, without_cells, true, {3, 0, 4}},
          {"rnn_all", rnn, without_cells, true, {3, 0, 4}},
          {"layer_norm", lstm, normalised({}), true, {}},
          {"layer_norm_no_bias", lstm, normalised({.bias = false}), false, {2, 4, 1}},
          {"layer_norm_all", lstm, normalised(all), true, {3, 0, 4}},
          {"layer_norm_projected_all", lstm, normalised(all, 1), true, {3, 0, 4}},
          {"gru_layer_norm", gru, normalised({}), true, {}},
          {"gru_layer_norm_all", gru, normalised(without_cells), true, {3, 0, 4}},
          {"rnn_layer_norm_all", rnn, normalised(without_cells), true, {3, 0, 4}}};
}
Case with(Case row, RecurrentImplementation implementation) {
  row.options.implementation = implementation;
  row.name += str(" as ", static_cast<int>(implementation));
  return row;
}

/// A layer with the weights of the script, and what a case calls it with.
struct Fixture {
  Fixture(const Case& row, DType dtype, int64_t hidden = kHidden)
      : layer(make(row.type, row.options, hidden)) {
    layer->to(dtype);
    set_weights(*layer);
    x = values({kSamples, kSteps, kFeatures}, 900, dtype);
    if (!row.lengths.empty()) {
      inputs.lengths = to_lengths(row.lengths);
      x = spoiled(x, row.lengths);
    }
    leaves = {{"x", x.set_requires_grad()}};
    if (row.has_states) {
      const int64_t state = row.options.projection ? row.options.projection : hidden;
      const Dim all = row.options.layers * (row.options.bidirectional ? 2 : 1);
      const Dims shape{all, kSamples, hidden};
      inputs.h = values({all, kSamples, state}, 901, dtype).set_requires_grad();
      leaves.push_back({"h", inputs.h});
      if (row.type == lstm) {
        inputs.c = values(shape, 902, dtype).set_requires_grad();
        leaves.push_back({"c", inputs.c});
      }
    }
    for (const auto& parameter : layer->named_parameters()) leaves.push_back(parameter);
  }
  List tensors() const {
    List all;
    for (const auto& [name, leaf] : leaves) all.push_back(leaf);
    return all;
  }
  /// Always with the same random numbers.
  nn::RecurrentLayerResult run() {
    manual_seed(3);
    return (*layer)(x, inputs);
  }

  std::unique_ptr<nn::RecurrentLayer> layer;
  Tensor x;
  nn::RecurrentLayerInputs inputs;
  nn::NamedTensors leaves;
};

TEST(Recurrent, GivesPyTorchsValuesAndGradientsAlsoWithNansBeyondTheLengths) {
  std::map<std::string, Array> want;
  for (const std::string& line : golden_lines("sequences.txt")) {
    std::istringstream in(line);
    std::string name, part;
    in >> name >> part;
    want[name + " " + part] = read_array(in);
  }
  for (const Case& plain : cases())
    for (const RecurrentImplementation implementation : kImplementations)
      for (const DType dtype : {DType::f64, DType::f32}) {
        const Case row = with(plain, implementation);
        SCOPED_TRACE(str(row.name, " in ", dtype));
        Fixture s(row, dtype);
        const double tolerance = dtype == DType::f64 ? 1e-9 : 1e-5;
        const nn::RecurrentLayerResult result = s.run();
        EXPECT_EQ(result.output.dtype(), dtype);
        EXPECT_TRUE(near(to_array(result.output), want.at(plain.name + " output"), tolerance));
        EXPECT_TRUE(near(to_array(result.h), want.at(plain.name + " h"), tolerance));
        if (plain.type == lstm) {
          EXPECT_TRUE(near(to_array(result.c), want.at(plain.name + " c"), tolerance));
        }
        const List gradients = grad(loss_of(result), s.tensors());
        for (size_t i = 0; i < gradients.size(); ++i)
          EXPECT_TRUE(
              near(to_array(gradients[i]), want.at(plain.name + " d." + s.leaves[i].first), tolerance))
              << s.leaves[i].first;
      }
}

TEST(Recurrent, GradientsAreThoseOfDifferences) {
  std::vector<Case> rows = cases();
  for (const Case& row : regularised()) rows.push_back(row);
  for (const Case& plain : rows)
    for (const RecurrentImplementation implementation : kImplementations) {
      const Case row = with(plain, implementation);
      SCOPED_TRACE(row.name);
      Fixture s(row, DType::f64);
      if (!row.lengths.empty()) {  // differences of a NaN are none; those beyond a length are 0
        const NoGrad off;
        assign(s.x, values(s.x.shape(), 900, DType::f64));
      }
      check_gradients_by_differences([&] { return loss_of(s.run()); }, s.leaves);
    }
}

/// Results and gradients from a fixed place of the random stream, and where the stream stands then.
struct Outcome {
  List tensors;
  GeneratorState after;
};
Outcome outcome(const Case& row, DType dtype, int64_t hidden, bool training) {
  Fixture s(row, dtype, hidden);
  training ? s.layer->train() : s.layer->eval();
  const nn::RecurrentLayerResult result = s.run();
  Outcome out{grad(loss_of(result), s.tensors()), generator_state()};
  for (const Tensor& t : {result.output, result.h, result.c})
    if (t.defined()) out.tensors.push_back(t.detach());
  return out;
}

TEST(Recurrent, TheThreeImplementationsAgreeWithEachRegulariserAndDrawTheSameNumbers) {
  for (const Case& row : regularised())
    for (const bool training : {true, false})
      for (const int64_t hidden : {3, 37}) {
        SCOPED_TRACE(str(row.name, training ? " training" : "", " with ", hidden));
        const Outcome want = outcome(with(row, RecurrentImplementation::cell), DType::f64, hidden, training);
        for (const RecurrentImplementation other :
             {RecurrentImplementation::block, RecurrentImplementation::fused})
          for (const DType dtype : {DType::f64, DType::f32}) {
            const Outcome got = outcome(with(row, other), dtype, hidden, training);
            ASSERT_EQ(got.tensors.size(), want.tensors.size());
            EXPECT_EQ(got.after.offset, want.after.offset);
            for (size_t i = 0; i < got.tensors.size(); ++i)
              EXPECT_LT(relative_distance(to_array(got.tensors[i]), to_array(want.tensors[i])),
                        dtype == DType::f64      ? 1e-12
                        : row.options.layer_norm ? 1e-3
                                                 : 1e-5)  // it divides by small deviations
                  << i;
          }
      }
}

TEST(Recurrent, ZoneoutKeepsWhatItDrawsAndTakesTheMeanInTestMode) {
  manual_seed(1);
  nn::LSTM keeps(nullptr, "", kFeatures, 64, {.zoneout_h = 0.999}), plain(nullptr, "", kFeatures, 64);
  keeps.load_state(plain.state());
  const NoGrad off;
  const Tensor x = values({1, 1, kFeatures}, 1, DType::f32), h = values({1, 1, 64}, 2, DType::f32),
               c = h * 0.5;
  const nn::LSTMInputs states{.h = h, .c = c};
  const Tensor kept = keeps(x, states).h;
  int same = 0;
  for (int64_t i = 0; i < 64; ++i) same += to_array(kept)[i] == to_array(h)[i];
  EXPECT_GE(same, 60);
  keeps.eval();
  EXPECT_TRUE(near(to_array(keeps(x, states).h), to_array(h * 0.999 + plain(x, states).h * 0.001), 1e-6));
}

TEST(Recurrent, GradientsOfGradientsAreTheCellsAlone) {
  for (const RecurrentImplementation implementation : kImplementations) {
    Fixture s(with(cases()[0], implementation), DType::f64);
    const auto twice = [&] {
      const Tensor first = grad(loss_of(s.run()), {s.x}, {}, {.create_graph = true})[0];
      return grad(sum(first * first), {s.x})[0];
    };
    if (implementation == RecurrentImplementation::cell)
      EXPECT_TRUE(isfinite(sum(twice())).item<bool>());
    else
      EXPECT_HAS(refusal([&] { twice(); }), "its gradient must not be differentiated again");
  }
}

/// Losses and final weights of some training steps.
std::vector<Tensor> trained(const Case& row, bool compiled) {
  manual_seed(5);
  const std::unique_ptr<nn::RecurrentLayer> layer = make(row.type, row.options);
  optim::Sgd sgd(layer->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  const auto step = [&](const List& in) {
    nn::RecurrentLayerInputs inputs;
    if (row.has_states) inputs.h = in[1];
    if (row.has_states && row.type == lstm) inputs.c = in[2];
    if (!row.lengths.empty()) inputs.lengths = in.back();
    const Tensor loss = loss_of((*layer)(in[0], inputs));
    sgd.update(grad(loss, layer->parameters()));
    return List{loss.detach()};
  };
  Compiled graph = compile(step);
  List out;
  for (uint32_t i = 0; i < 4; ++i) {
    List in = {values({kSamples, kSteps, kFeatures}, 10 + i, DType::f32)};
    const Dim states = row.options.layers * (row.options.bidirectional ? 2 : 1);
    if (row.has_states) {
      const int64_t size = row.options.projection ? row.options.projection : kHidden;
      in.push_back(values({states, kSamples, size}, 20 + i, DType::f32));
      in.push_back(values({states, kSamples, kHidden}, 30 + i, DType::f32));
    }
    if (!row.lengths.empty()) {
      std::vector<int64_t> lengths = row.lengths;  // others at each step
      lengths[i % 3] = i;
      in[0] = spoiled(in[0], lengths);
      in.push_back(to_lengths(lengths));
    }
    out.push_back(compiled ? graph(in)[0] : step(in)[0]);
    EXPECT_TRUE(std::isfinite(out.back().item<float>())) << "step " << i;
  }
  EXPECT_EQ(graph.reports().size(), compiled ? 1u : 0u);
  for (const Tensor& weight : layer->parameters()) out.push_back(weight.detach());
  return out;
}

TEST(Recurrent, TrainingHasTheSameBitsInBothEngines) {
  std::vector<Case> rows = cases();
  rows.push_back({"dropout", lstm, {.layers = 3, .dropout = 0.4}, false, {}});
  for (const Case& row : regularised()) rows.push_back(row);
  for (const Case& plain : rows)
    for (const RecurrentImplementation implementation : kImplementations) {
      const Case row = with(plain, implementation);
      SCOPED_TRACE(row.name);
      const List eager = trained(row, false), graph = trained(row, true);
      ASSERT_EQ(eager.size(), graph.size());
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
    }
}

TEST(Recurrent, HasTheSameBitsWithAnyNumberOfThreads) {
  const int before = threads();
  for (const Case& row : regularised()) {
    SCOPED_TRACE(row.name);
    List first;
    for (const int count : {1, 2, 5}) {
      set_threads(count);
      const List now = outcome(row, DType::f32, 200, true).tensors;
      for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(first[i], now[i])) << i;
      first = now;
    }
  }
  set_threads(before);
}

TEST(LSTM, StepsBeyondTheLengthsChangeNothingAndGiveZeros) {
  for (const bool bidirectional : {false, true}) {
    manual_seed(4);
    nn::LSTM lstm(nullptr, "", kFeatures, kHidden, {.layers = 2, .bidirectional = bidirectional});
    const std::vector<int64_t> lengths = {4, 0, 2};
    const Tensor x = values({3, 4, kFeatures}, 1, DType::f32);
    const Tensor dirty = spoiled(x, lengths).set_requires_grad();
    const Dim rows = bidirectional ? 4 : 2;
    const Tensor h0 = values({rows, 3, kHidden}, 2, DType::f32),
                 c0 = values({rows, 3, kHidden}, 3, DType::f32);
    const nn::LSTMResult all = lstm(dirty, {.h = h0, .c = c0, .lengths = to_lengths(lengths)});
    for (size_t n = 0; n < lengths.size(); ++n) {
      SCOPED_TRACE(n);
      const auto at = static_cast<Dim>(n);
      const Tensor own = select(all.output.detach(), 0, at), h = select(all.h.detach(), 1, at),
                   c = select(all.c.detach(), 1, at);
      const Tensor beyond = slice(own, 0, lengths[n], 4);
      EXPECT_TRUE(same_bits(clone(beyond), zeros(beyond.shape())));
      if (lengths[n] == 0) {
        EXPECT_TRUE(same_bits(clone(h), clone(select(h0, 1, at))));
        EXPECT_TRUE(same_bits(clone(c), clone(select(c0, 1, at))));
        continue;
      }
      // The sample alone, cut to its length.
      const nn::LSTMResult cut =
          lstm(slice(slice(x, 0, at, at + 1), 1, 0, lengths[n]),
               {.h = clone(slice(h0, 1, at, at + 1)), .c = clone(slice(c0, 1, at, at + 1))});
      EXPECT_TRUE(
          near(to_array(slice(own, 0, 0, lengths[n])), to_array(select(cut.output.detach(), 0, 0)), 1e-6));
      EXPECT_TRUE(near(to_array(h), to_array(select(cut.h.detach(), 1, 0)), 1e-6));
      EXPECT_TRUE(near(to_array(c), to_array(select(cut.c.detach(), 1, 0)), 1e-6));
    }
    loss_of(all).backward();
    EXPECT_TRUE(isfinite(sum(dirty.grad())).item<bool>());
    for (const auto& [name, weight] : lstm.named_parameters())
      EXPECT_TRUE(isfinite(sum(weight.grad())).item<bool>()) << name;
    const Array g = to_array(dirty.grad());
    each_index(g.shape, [&](const Dims& at) {
      if (at[1] >= lengths[static_cast<size_t>(at[0])]) {
        EXPECT_EQ(g.at(at), 0);
      }
    });
  }
}

TEST(LSTM, StatesCarryASequenceOn) {
  manual_seed(4);
  nn::LSTM lstm(nullptr, "", kFeatures, kHidden, {.layers = 2});
  const NoGrad off;
  const Tensor x = values({2, 6, kFeatures}, 1, DType::f32);
  const nn::LSTMResult whole = lstm(x), first = lstm(slice(x, 1, 0, 4)),
                       second = lstm(slice(x, 1, 4, 6), {.h = first.h, .c = first.c});
  EXPECT_TRUE(near(to_array(concat({first.output, second.output}, 1)), to_array(whole.output), 1e-6));
  EXPECT_TRUE(near(to_array(second.h), to_array(whole.h), 1e-6));
  EXPECT_TRUE(near(to_array(second.c), to_array(whole.c), 1e-6));
  EXPECT_TRUE(same_bits(clone(select(whole.output, 1, 5)), clone(select(whole.h, 0, 1))));
}

TEST(LSTM, DropsBetweenLayersWhileTrainingOnly) {
  manual_seed(4);
  nn::LSTM lstm(nullptr, "", kFeatures, 8, {.layers = 2, .dropout = 0.5});
  nn::LSTM one(nullptr, "", kFeatures, 8, {.dropout = 0.5});
  const NoGrad off;
  const Tensor x = values({2, 3, kFeatures}, 1, DType::f32);
  const nn::LSTMResult a = lstm(x), b = lstm(x);
  EXPECT_FALSE(same_bits(a.output, b.output));
  EXPECT_TRUE(same_bits(clone(select(a.h, 0, 0)), clone(select(b.h, 0, 0))));  // of the first layer
  EXPECT_TRUE(same_bits(one(x).output, one(x).output));
  lstm.eval();
  EXPECT_TRUE(same_bits(lstm(x).output, lstm(x).output));
}

TEST(LSTM, StandsInContainersAndIsClonedAndCounted) {
  manual_seed(4);
  nn::Sequential net{nn::make<nn::LSTM>(kFeatures, kHidden, {.bidirectional = true}),
                     nn::make<nn::Linear>(2 * kHidden, 5)};
  const Tensor x = values({2, 3, kFeatures}, 1, DType::f32);
  const Tensor y = net(x).detach();
  EXPECT_EQ(y.shape(), (Dims{2, 3, 5}));
  EXPECT_TRUE(same_bits((*net.clone())(x).detach(), y));
  EXPECT_EQ(nn::summary(net, {2, 3, kFeatures}).parameters, 2 * (8 * 3 + 8 * 2 + 16) + 5 * 4 + 5);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0",
                                      "0.weight_ih_l0_reverse", "0.weight_hh_l0_reverse",
                                      "0.bias_ih_l0_reverse", "0.bias_hh_l0_reverse", "1.weight", "1.bias"}));
  nn::LSTM deep(nullptr, "", 4, 3, {.layers = 2});
  EXPECT_EQ(deep.state()[4].first, "weight_ih_l1");
  EXPECT_EQ(deep.state()[4].second.shape(), (Dims{12, 3}));
  EXPECT_TRUE(deep.weights[1].ih.same(deep.named_parameters()[4].second));
}

TEST(LSTM, HooksSeeTheInputsAndTheThreeResults) {
  nn::LSTM lstm(nullptr, "", kFeatures, kHidden);
  size_t inputs = 0, outputs = 0;
  lstm.add_forward_hook([&](nn::Module&, const List& in, List& out) {
    inputs = in.size(), outputs = out.size();
    out[1] = out[1] * 0.0;
  });
  const NoGrad off;
  const nn::LSTMResult result =
      lstm(values({2, 3, kFeatures}, 1, DType::f32), {.lengths = to_lengths({1, 2})});
  EXPECT_EQ(inputs, 2u);
  EXPECT_EQ(outputs, 3u);
  EXPECT_TRUE(near(to_array(result.h), Array(Dims{1, 2, kHidden}), 0));
}

TEST(LSTM, ComputesUnderAutocastWithStatesInF32) {
  manual_seed(4);
  nn::LSTM lstm(nullptr, "", kFeatures, 8, {.layers = 2});
  const Tensor x = values({2, 3, kFeatures}, 1, DType::f32);
  const auto step = [&](const List& in) {
    nn::LSTMResult result;
    {
      const Autocast autocast(DType::bf16);
      result = lstm(in[0], {.lengths = in[1]});
    }
    List out = grad(loss_of(result), lstm.parameters());
    out.insert(out.end(), {result.output.detach(), result.h.detach(), result.c.detach()});
    return out;
  };
  const List in = {x, to_lengths({3, 2})}, eager = step(in), graph = compile(step)(in);
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_EQ(eager[i].dtype(), DType::f32);
    EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
  }
  const NoGrad off;
  EXPECT_LT(relative_distance(to_array(eager[8]), to_array(lstm(x, {.lengths = in[1]}).output)), 0.02);
}

TEST(LSTM, TakesABatchOfNoSamples) {
  nn::LSTM lstm(nullptr, "", kFeatures, kHidden, {.bidirectional = true});
  const nn::LSTMResult result = lstm(zeros({0, 4, kFeatures}));
  EXPECT_EQ(result.output.shape(), (Dims{0, 4, 2 * kHidden}));
  EXPECT_EQ(result.h.shape(), (Dims{2, 0, kHidden}));
}

TEST(LSTM, RefusesWhatCannotBe) {
  EXPECT_HAS(refusal([] { nn::LSTM(nullptr, "", 3, 4, {.projection = 4}); }),
             "smaller than its 4 hidden units; got 4");
  EXPECT_HAS(refusal([] { nn::GRU(nullptr, "", 3, 4, {.projection = 2}); }),
             "a projection is of an LSTM alone");
  EXPECT_HAS(refusal([] { nn::LSTM(nullptr, "encoder", 0, 3); }),
             "LSTM encoder: sizes must be at least 1; got 0 features, 3 hidden and 1 layers.");
  refusal([] { nn::LSTM(nullptr, "", 3, 3, {.layers = 0}); });
  refusal([] { nn::LSTM(nullptr, "", 3, INT64_MAX); });
  EXPECT_HAS(refusal([] { nn::LSTM(nullptr, "", 3, 3, {.dropout = 1}); }), "below 1; got 1");
  EXPECT_HAS(refusal([] { nn::LSTM(nullptr, "", 3, 3, {.zoneout_h = -0.1}); }), "probability of zoneout_h");
  EXPECT_HAS(refusal([] { nn::GRU(nullptr, "", 3, 3, {.zoneout_c = 0.1}); }),
             "GRU: zoneout_c and recurrent_dropout are of an LSTM alone");
  EXPECT_HAS(refusal([] { nn::LSTM(nullptr, "", 3, 3, {.relu = true}); }), "relu is of an RNN alone");
  EXPECT_HAS(refusal([] {
               nn::GRU(nullptr, "", 3, 3)(ones({2, 4, 3}), {.h = ones({1, 2, 3}), .c = ones({1, 2, 3})});
             }),
             "GRU: has one state, h; got c besides");
  refusal([] { nn::RNN(nullptr, "", 3, 3)(ones({2, 4, 3}), {.h = ones({1, 2, 4})}); });
  nn::LSTM lstm(nullptr, "", kFeatures, kHidden);
  const Tensor x = ones({2, 4, kFeatures}), state = ones({1, 2, kHidden});
  EXPECT_HAS(refusal([&] {
               lstm(ones({4, kFeatures}));
             }),
             "LSTM: x must be (N, T, 3) with at least one time step; got f32 (4, 3)");
  refusal([&] { lstm(ones({2, 4, 5})); });
  refusal([&] { lstm(ones({2, 0, kFeatures})); });
  refusal([&] { lstm(Tensor()); });
  EXPECT_HAS(refusal([&] { lstm(cast(x, DType::f64)); }),
             "LSTM: x must have the type f32 of the weights; got f64");
  EXPECT_HAS(refusal([&] { lstm(x, {.h = state}); }), "Give both or neither");
  EXPECT_HAS(refusal([&] {
               lstm(x, {.h = state, .c = ones({2, 2, kHidden})});
             }),
             "here f32 (1, 2, 2); got h f32 (1, 2, 2) on cpu and c f32 (2, 2, 2)");
  refusal([&] { lstm(x, {.h = state, .c = cast(state, DType::f64)}); });
  EXPECT_HAS(refusal([&] { lstm(x, {.lengths = ones({2})}); }),
             "LSTM: the lengths must be i64, one for each of 2 samples; got f32 (2,)");
  refusal([&] { lstm(x, {.lengths = to_lengths({1, 2, 3})}); });
  EXPECT_HAS(refusal([&] {
               lstm(x, {.lengths = to_lengths({4, 5})});
             }),
             "LSTM: every length must be from 0 to 4, the size of the padded axis; got 5 for sample 1.");
  refusal([&] { lstm(x, {.lengths = to_lengths({-1, 4})}); });
}

TEST(LSTM, ACompiledCallableRefusesLengthsOutOfRangeWhenItRuns) {
  nn::LSTM lstm(nullptr, "", kFeatures, kHidden);
  const NoGrad off;
  Compiled run = compile([&](const List& in) { return List{lstm(in[0], {.lengths = in[1]}).output}; });
  const Tensor x = ones({2, 4, kFeatures});
  EXPECT_TRUE(same_bits(run({x, to_lengths({0, 4})})[0], lstm(x, {.lengths = to_lengths({0, 4})}).output));
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{5, 4}, {1, -1}})
    refusal([&] { run({x, to_lengths(wrong)})[0].to_vector<float>(); });
}

/// Whether numbers too small to be normal ones are still numbers to this thread.
bool knows_tiny_numbers() {
  volatile float least = std::numeric_limits<float>::min();
  return least / 2 > 0;
}

TEST(Recurrence, GradientsThatHaveDiedAwayAreZeroAndTheThreadsComputeAsBefore) {
  const Dim steps = 300;
  for (const bool with_rows : {false, true})
    for (const int count : {1, 3}) {
      SCOPED_TRACE(str(with_rows ? "projection, " : "", count, " threads"));
      const int before = threads();
      set_threads(count);
      manual_seed(1);
      nn::LSTM lstm(nullptr, "", kFeatures, 16, {.projection = with_rows ? 8 : 0});
      Tensor x = values({5, steps, kFeatures}, 3, DType::f32);
      x.set_requires_grad(true);
      // The gradient of the last step's output halves from step to step.
      const std::vector<float> g = grad(sum(lstm(x).h), {x})[0].to_vector<float>();
      int64_t tiny = 0, zeros = 0, others = 0;
      for (const float value : g) {
        const int kind = std::fpclassify(value);
        ++(kind == FP_SUBNORMAL ? tiny : kind == FP_ZERO ? zeros : others);
      }
      EXPECT_GT(zeros, 0);
      EXPECT_GT(others, 0);
#if defined( \
    __x86_64__)  // but those of the product with the input's weights, where the last normal ones go in
      EXPECT_LE(tiny, 5 * kFeatures * 10);
#endif
      EXPECT_TRUE(knows_tiny_numbers());
      parallel_for(64, [&](int64_t) { EXPECT_TRUE(knows_tiny_numbers()); });
      set_threads(before);
    }
}

}  // namespace
}  // namespace tandem::testing
