// Layers with normed weights: PyTorch's values, gradients and names (golden/make_parametrized.py), both engines, clones and
// files.
// ctest: asan
#include "tandem/nn/parametrized.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/sgd.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;

template <class Linear, class Conv2d, class ConvTranspose1d>
nn::ModulePtr layer_named(const std::string& name) {
  if (name == "Linear") return nn::make<Linear>(5, 4);
  if (name == "Conv2d") return nn::make<Conv2d>(2, 4, 3, nn::ConvLayerOptions{.padding = 1, .groups = 2});
  return nn::make<ConvTranspose1d>(3, 2, 3, nn::ConvTransposeLayerOptions{.stride = 2, .bias = false});
}

/// The rows of the script.
nn::ModulePtr made(const std::string& wrap, const std::string& layer) {
  using namespace nn;
  if (wrap == "weight")
    return layer_named<WeightNorm<Linear>, WeightNorm<Conv2d>, WeightNorm<ConvTranspose1d>>(layer);
  if (wrap == "weight1")
    return layer_named<WeightNorm<Linear, 1>, WeightNorm<Conv2d, 1>, WeightNorm<ConvTranspose1d, 1>>(layer);
  if (wrap == "spectral")
    return layer_named<SpectralNorm<Linear>, SpectralNorm<Conv2d>, SpectralNorm<ConvTranspose1d>>(layer);
  return layer_named<SpectralNorm<Linear, 3>, SpectralNorm<Conv2d, 3>, SpectralNorm<ConvTranspose1d, 3>>(
      layer);
}

struct Case {
  std::string wrap, layer, mode;
  Dims shape;
  std::vector<std::pair<std::string, Array>> values, state;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& line : golden_lines("parametrized.txt")) {
    std::istringstream in(line);
    std::string word, name;
    in >> word;
    if (word == "case") {
      Case& row = out.emplace_back();
      std::string shape;
      in >> row.wrap >> row.layer >> row.mode >> shape;
      row.shape = parse_shape(shape);
      continue;
    }
    in >> name;
    (word == "value" ? out.back().values : out.back().state).emplace_back(name, read_array(in));
  }
  return out;
}

/// Output, then the gradients of the input and of all parameters.
List forward_and_gradients(nn::Module& layer, const Tensor& x, const Tensor& weights) {
  Tensor leaf;
  {
    const NoGrad off;
    leaf = x * 1.0;
  }
  leaf.set_requires_grad();
  const Tensor y = layer(leaf);
  List leaves = {leaf};
  for (const auto& [name, parameter] : layer.named_parameters()) leaves.push_back(parameter);
  List out = grad(sum(y * y * weights), leaves);
  out.insert(out.begin(), y.detach());
  return out;
}

TEST(Parametrized, MatchPyTorchInNamesValuesGradientsAndVectors) {
  const std::vector<Case> rows = cases();
  ASSERT_EQ(rows.size(), 15u);
  for (const DType dtype : {DType::f64, DType::f32}) {
    nn::ModulePtr layer;
    for (const Case& row : rows) {
      SCOPED_TRACE(str(row.wrap, " ", row.layer, " ", row.mode, " ", dtype));
      if (row.mode == "train") {  // evaluation goes on with the vectors that training left
        layer = made(row.wrap, row.layer);
        layer->to(dtype);
        const NoGrad off;
        for (const auto& [name, tensor] : layer->state())
          assign(tensor, to_tensor(hash_array(tensor.shape(), name_salt(name), 0.1, 1), dtype));
      }
      layer->train(row.mode == "train");
      const Tensor x = to_tensor(hash_array(row.shape, 900), dtype);
      const Tensor weights = to_tensor(hash_array(row.values[0].second.shape, 77), dtype);
      const List got = forward_and_gradients(*layer, x, weights);
      const nn::NamedTensors parameters = layer->named_parameters(), state = layer->state();
      const double tolerance = dtype == DType::f64 ? 1e-9 : 2e-5;
      ASSERT_EQ(got.size(), row.values.size());
      for (size_t i = 0; i < got.size(); ++i) {
        if (i >= 2) {
          EXPECT_EQ(parameters[i - 2].first, row.values[i].first);
        }
        EXPECT_TRUE(near(to_array(got[i]), row.values[i].second, tolerance)) << row.values[i].first;
      }
      ASSERT_EQ(state.size(), row.state.size());
      for (size_t i = 0; i < state.size(); ++i) {
        EXPECT_EQ(state[i].first, row.state[i].first);
        EXPECT_TRUE(near(to_array(state[i].second), row.state[i].second, tolerance)) << state[i].first;
      }
    }
  }
}

TEST(Parametrized, TrainingStepsGiveTheSameBitsInBothEngines) {
  for (const char* wrap : {"weight", "spectral", "spectral3"})
    for (const char* name : {"Linear", "Conv2d", "ConvTranspose1d"}) {
      SCOPED_TRACE(str(wrap, " ", name));
      const Dims shape = *name == 'L'                    ? Dims{3, 5}
                         : name == std::string("Conv2d") ? Dims{1, 2, 3, 4}
                                                         : Dims{1, 3, 4};
      manual_seed(4);
      const nn::ModulePtr eager = made(wrap, name), graph = eager->clone();
      const auto step = [](nn::Module& layer, optim::Sgd& sgd) {
        return [&layer, &sgd](const List& in) {
          const Tensor y = layer(in[0]), loss = sum(y * y);
          sgd.update(grad(loss, layer.parameters()));
          return List{loss.detach()};
        };
      };
      optim::Sgd a(eager->named_parameters(), {.lr = 0.01}), b(graph->named_parameters(), {.lr = 0.01});
      const auto plain = step(*eager, a);
      Compiled compiled = compile(step(*graph, b));
      for (uint32_t i = 0; i < 3; ++i) {
        const Tensor x = to_tensor(hash_array(shape, 900 + i), DType::f32);
        EXPECT_TRUE(same_bits(plain({x})[0], compiled({x})[0])) << i;
      }
      const nn::NamedTensors left = eager->state(), right = graph->state();
      for (size_t i = 0; i < left.size(); ++i)
        EXPECT_TRUE(same_bits(left[i].second, right[i].second)) << left[i].first;
    }
}

TEST(Parametrized, BeginWithTheWeightOfTheLayerAndWithOneAsLargestSingularValue) {
  manual_seed(7);
  nn::Linear plain(nullptr, "", 5, 4);
  manual_seed(7);
  nn::WeightNorm<nn::Linear> normed(nullptr, "", 5, 4);
  EXPECT_TRUE(near(to_array(normed.computed_weight()), to_array(plain.weight), 1e-6));
  EXPECT_FALSE(normed.weight.defined());
  EXPECT_EQ(normed.type_name(), "WeightNorm");
  nn::SpectralNorm<nn::Linear> spectral(nullptr, "", 5, 4);
  for (int i = 0; i < 200; ++i) spectral(ones({1, 5}));
  const Tensor w = spectral.computed_weight().detach();
  EXPECT_NEAR(to_array(svd(w).s)[0], 1, 1e-4);
  EXPECT_FALSE(spectral.weight.defined());
}

TEST(Parametrized, AreMembersAreSavedAndLoadedAndLookedUpToo) {
  struct Net : nn::Module {
    nn::WeightNorm<nn::Conv2d> conv{this, "conv", 1, 2, 3, {.padding = 1}};
    nn::SpectralNorm<nn::Linear> fc{this, "fc", 8, 3};
    Tensor forward(const Tensor& x) override { return fc(flatten(conv(x), 1)); }
  };
  manual_seed(1);
  Net a, b;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : a.state()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"conv.bias", "conv.parametrizations.weight.original0",
                                      "conv.parametrizations.weight.original1", "fc.bias",
                                      "fc.parametrizations.weight.original",
                                      "fc.parametrizations.weight.0._u", "fc.parametrizations.weight.0._v"}));
  b.load_state(a.state());
  a.eval();
  b.eval();
  const Tensor x = to_tensor(hash_array({1, 1, 2, 2}, 1), DType::f32);
  EXPECT_TRUE(same_bits(a(x).detach(), b(x).detach()));
  a.to(DType::f64);
  EXPECT_EQ(a(cast(x, DType::f64)).dtype(), DType::f64);
  nn::WeightNorm<nn::Embedding> table(nullptr, "", 6, 4);
  EXPECT_EQ(table(zeros({2}, DType::i64)).shape(), (Dims{2, 4}));
}

TEST(Parametrized, AGradientOfAnEarlierCallIsNotChangedByALaterOne) {
  manual_seed(2);
  nn::SpectralNorm<nn::Linear> layer(nullptr, "", 3, 2), again(nullptr, "", 3, 2);
  again.load_state(layer.state());
  const Tensor x = to_tensor(hash_array({4, 3}, 1), DType::f32);
  const Tensor y = layer(x), z = again(x);
  layer(x);  // changes the vectors
  const List parameters = layer.parameters();
  const List one = grad(sum(y * y), parameters), other = grad(sum(z * z), again.parameters());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], other[i]));
}

TEST(Parametrized, AnErrorNamesTheLayerAndLeavesItUsable) {
  nn::WeightNorm<nn::Linear> layer(nullptr, "", 3, 2);
  EXPECT_NE(error_of([&] { layer(ones({1, 4})); }).find("linear"), std::string::npos);
  EXPECT_FALSE(layer.weight.defined());
  EXPECT_EQ(layer(ones({1, 3})).shape(), (Dims{1, 2}));
  EXPECT_EQ(error_of([] { nn::WeightNorm<nn::Linear, 2>(nullptr, "", 3, 2); }),
            "WeightNorm: the axis must be one of the weight's 2; got 2.");
}

}  // namespace
}  // namespace tandem::testing
