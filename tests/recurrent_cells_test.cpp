// One step of a recurrent layer as a module: step by step it computes what the layer computes of the sequence.
// ctest: asan
#include "tandem/nn/recurrent_cells.h"

#include <gtest/gtest.h>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr int64_t kFeatures = 3, kHidden = 5;

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_TRUE(same_bits(a, b)) << what;
}

/// h after each of the steps of x (N, T, features), (N, T, hidden), and the gradients of the weights for a loss of all of it.
template <class Cell>
List by_steps(Cell& cell, const Tensor& x) {
  List steps;
  if constexpr (std::is_same_v<Cell, nn::LSTMCell>) {
    nn::LSTMCell::State state;
    for (Dim t = 0; t < x.size(1); ++t) {
      state = cell(select(x, 1, t), state);
      steps.push_back(state.h);
    }
  } else {
    Tensor h;
    for (Dim t = 0; t < x.size(1); ++t) steps.push_back(h = cell(select(x, 1, t), h));
  }
  const Tensor output = stack(steps, 1);
  List all = grad(sum(square(output)), cell.parameters());
  all.insert(all.begin(), output.detach());
  return all;
}
List by_layer(nn::RecurrentLayer& layer, const Tensor& x) {
  const Tensor output = layer(x).output;
  List all = grad(sum(square(output)), layer.parameters());
  all.insert(all.begin(), output.detach());
  return all;
}

template <class Cell, class Layer>
void expect_the_layer(bool bias, bool relu) {
  manual_seed(3);
  Layer layer(nullptr, "", kFeatures, kHidden, {.bias = bias, .relu = relu});
  Cell cell(nullptr, "", kFeatures, kHidden, {.bias = bias, .relu = relu});
  layer.to(DType::f64);
  cell.to(DType::f64);
  nn::NamedTensors weights;
  for (const auto& [name, value] : layer.state())
    weights.emplace_back(name.substr(0, name.size() - 3), value);  // "_l0"
  cell.load_state(weights, "the layer");
  const Tensor x = to_tensor(hash_array({2, 6, kFeatures}, 9), DType::f64);
  const List expected = by_layer(layer, x), got = by_steps(cell, x);
  ASSERT_EQ(got.size(), bias ? 5u : 3u);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(max(abs(got[i] - expected[i])).template item<double>(), 1e-13) << cell.type_name() << " " << i;
}

TEST(RecurrentCells, ALoopGivesTheOutputsAndGradientsOfTheLayer) {
  for (const bool bias : {true, false}) {
    expect_the_layer<nn::LSTMCell, nn::LSTM>(bias, false);
    expect_the_layer<nn::GRUCell, nn::GRU>(bias, false);
    expect_the_layer<nn::RNNCell, nn::RNN>(bias, false);
    expect_the_layer<nn::RNNCell, nn::RNN>(bias, true);
  }
}

template <class Cell>
void expect_same_bits_in_both_engines(DType dtype) {
  manual_seed(4);
  Cell cell(nullptr, "", kFeatures, kHidden);
  cell.to(dtype);
  const Tensor x = to_tensor(hash_array({2, 4, kFeatures}, 1), dtype);
  for (const std::optional<DType> low : {std::optional<DType>(), std::optional(DType::bf16)}) {
    const TensorFunction function = [&](const List& in) {
      const Autocast precision(low);
      return by_steps(cell, in[0]);
    };
    const List eager = function({x});
    Compiled compiled = compile(function);
    for (int call = 0; call < 2; ++call) {
      const List graph = compiled({x});
      for (size_t i = 0; i < eager.size(); ++i) expect_same_bits(eager[i], graph[i], cell.type_name());
    }
    EXPECT_EQ(eager[0].dtype(), dtype) << "a state keeps the weights' type under Autocast";
  }
}

TEST(RecurrentCells, HaveTheSameBitsInBothEnginesUnderAutocastToo) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    expect_same_bits_in_both_engines<nn::LSTMCell>(dtype);
    expect_same_bits_in_both_engines<nn::GRUCell>(dtype);
    expect_same_bits_in_both_engines<nn::RNNCell>(dtype);
  }
}

TEST(RecurrentCells, HaveTheNamesAndShapesOfPyTorch) {
  const nn::LSTMCell lstm(nullptr, "", 3, 5);
  const nn::GRUCell gru(nullptr, "", 3, 5, {.bias = false});
  const nn::RNNCell rnn(nullptr, "", 3, 5);
  const auto listed = [](const nn::Module& module) {
    std::string text;
    for (const auto& [name, value] : module.named_parameters()) text += str(name, value.shape(), " ");
    return text;
  };
  EXPECT_EQ(listed(lstm), "weight_ih(20, 3) weight_hh(20, 5) bias_ih(20,) bias_hh(20,) ");
  EXPECT_EQ(listed(gru), "weight_ih(15, 3) weight_hh(15, 5) ");
  EXPECT_EQ(listed(rnn), "weight_ih(5, 3) weight_hh(5, 5) bias_ih(5,) bias_hh(5,) ");
}

TEST(RecurrentCells, StateAndProductMayBeGivenAndHooksSeeTheCall) {
  manual_seed(5);
  nn::LSTMCell cell(nullptr, "", 3, 5);
  const Tensor x = to_tensor(hash_array({2, 3}, 1), DType::f32), zero = zeros({2, 5});
  const nn::LSTMCell::State begun = cell(x), given = cell(x, {zero, zero});
  expect_same_bits(begun.h, given.h, "h");
  expect_same_bits(begun.c, given.c, "c");
  const nn::LSTMCell::State stepped = cell.step(linear(x, cell.weight_ih, cell.bias()), {});
  expect_same_bits(begun.h, stepped.h, "by the product");
  size_t inputs = 0, outputs = 0;
  cell.add_forward_hook([&](nn::Module&, const List& in, List& out) {
    inputs = in.size();
    outputs = out.size();
  });
  cell(x, begun);
  EXPECT_EQ(inputs, 3u);
  EXPECT_EQ(outputs, 2u);
  nn::Sequential net{nn::make<nn::GRUCell>(3, 5), nn::make<nn::RNNCell>(5, 2)};
  EXPECT_EQ(net(x).shape(), (Dims{2, 2}));
  EXPECT_EQ((*net.clone())(x).to_vector<float>(), net(x).to_vector<float>());
}

TEST(RecurrentCells, WhatDoesNotFitIsRefusedByName) {
  nn::LSTMCell lstm(nullptr, "", 3, 5);
  nn::GRUCell gru(nullptr, "", 3, 5, {.bias = false});
  const Tensor x = zeros({2, 3});
  EXPECT_HAS(refusal([&] { lstm(zeros({2, 4})); }), "LSTMCell: x must be (N, 3); got f32 (2, 4)");
  EXPECT_HAS(refusal([&] { gru(zeros({3})); }), "GRUCell: x must be (N, 3)");
  EXPECT_HAS(refusal([&] { gru(zeros({2, 3}, DType::f64)); }), "GRUCell: x must have the type f32");
  EXPECT_HAS(refusal([&] { gru(Tensor()); }), "GRUCell: x must be (N, 3)");
  EXPECT_HAS(refusal([&] { gru(x, zeros({2, 4})); }), "GRUCell: the state h must be f32 (2, 5)");
  EXPECT_HAS(refusal([&] { lstm(x, {zeros({2, 5}), Tensor()}); }), "got one of them. Give both or neither");
  EXPECT_HAS(refusal([&] { lstm(x, {zeros({2, 5}), zeros({1, 5})}); }), "LSTMCell: the state c must be");
  EXPECT_HAS(refusal([&] { lstm.step(x, {}); }), "LSTMCell: the product of the input must be (N, 20)");
  EXPECT_HAS(refusal([] { nn::LSTMCell(nullptr, "", 3, 5, {.bias = false}).bias(); }), "has biases");
  EXPECT_HAS(refusal([] { nn::GRUCell(nullptr, "", 3, 5, {.relu = true}); }), "relu is of an RNNCell alone");
  EXPECT_HAS(refusal([] { nn::RNNCell(nullptr, "memory", 0, 5); }),
             "RNNCell memory: sizes must be at least 1");
  refusal([] { nn::LSTMCell(nullptr, "", 1, int64_t{1} << 62); });
}

}  // namespace
}  // namespace tandem::testing
