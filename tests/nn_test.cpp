// Modules, layers, initial values, the zoo, and the optimisers' formulas.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/adam.h"
#include "tandem/optim/sgd.h"
#include "tandem/zoo/lenet.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

struct Inner : nn::Module {
  using nn::Module::Module;
  nn::Linear fc{this, "fc", 3, 2};
  nn::Dropout drop{this, "drop", 0.5};
  Tensor forward(const Tensor& x) override { return drop(fc(x)); }
};

struct Net : nn::Module {
  nn::Linear first{this, "first", 4, 3, {.bias = false}};
  Inner inner{this, "inner"};
  const Tensor scale = parameter("scale", ones({2}));
  Tensor forward(const Tensor& x) override { return inner(relu(first(x))) * scale; }
};

std::vector<std::string> names(const nn::NamedTensors& tensors) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors) all.push_back(name);
  return all;
}

std::string message(const std::function<void()>& call) { return testing::message_of<Error>(call); }

TEST(Module, ParametersHaveDottedNamesInOrderOfDeclaration) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"scale", "first.weight", "inner.fc.weight", "inner.fc.bias"}));
  EXPECT_EQ(nn::count_parameters(net), 2 + 12 + 6 + 2);
  for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(Module, TrainingModeReachesEveryChild) {
  Net net;
  EXPECT_TRUE(net.inner.drop.training());
  net.eval();
  EXPECT_FALSE(net.inner.drop.training());
  const Tensor x = ones({5, 4});
  EXPECT_EQ(net(x).to_vector<float>(), net(x).to_vector<float>());
  net.train();
  manual_seed(3);
  const std::vector<float> once = net(x).to_vector<float>();
  EXPECT_NE(once, net(x).to_vector<float>());
  manual_seed(3);
  EXPECT_EQ(once, net(x).to_vector<float>());
}

TEST(Module, ANameMayBeUsedOnceAndHasNoDot) {
  struct Twice : nn::Module {
    nn::Linear a{this, "fc", 1, 1}, b{this, "fc", 1, 1};
    Tensor forward(const Tensor& x) override { return x; }
  };
  EXPECT_EQ(message([] { Twice twice; }), "module: a name must be used once; got a second 'fc'.");
  struct Dotted : nn::Module {
    nn::Linear a{this, "a.b", 1, 1};
    Tensor forward(const Tensor& x) override { return x; }
  };
  EXPECT_EQ(message([] { Dotted dotted; }),
            "module: a name must have at least one character and no dot; got 'a.b'.");
}

TEST(Module, ConvertingToAnotherTypeKeepsHandlesAndGradients) {
  Net net;
  const Tensor weight = net.first.weight;
  const std::vector<float> before = weight.to_vector<float>();
  net.to(DType::f64);
  EXPECT_EQ(weight.dtype(), DType::f64);
  EXPECT_TRUE(weight.requires_grad());
  const std::vector<double> after = weight.to_vector<double>();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], static_cast<double>(before[i]));
  net.eval();
  sum(net(ones({2, 4}, DType::f64))).backward();
  EXPECT_EQ(weight.grad().dtype(), DType::f64);
}

TEST(Module, StateGoesThroughAFileAndBack) {
  const testing::TempFolder folder;
  const std::string path = folder / "state.safetensors";
  manual_seed(1);
  zoo::LeNet a;
  io::save_safetensors(path, a.state());
  zoo::LeNet b;
  EXPECT_NE(io::weights_sha256(a.state()), io::weights_sha256(b.state()));
  b.load_state(io::load_safetensors(path).tensors, "load");
  EXPECT_EQ(io::weights_sha256(a.state()), io::weights_sha256(b.state()));
  EXPECT_TRUE(b.conv1.weight.requires_grad());
}

TEST(Module, LoadingIsStrictAndChangesNothingWhereItFails) {
  Net net;
  const std::string before = io::weights_sha256(net.state());
  const auto load = [&](const std::function<void(nn::NamedTensors&)>& spoil) {
    nn::NamedTensors state;
    for (const auto& [name, tensor] : net.state()) state.emplace_back(name, zeros(tensor.shape()));
    spoil(state);
    return message([&] { net.load_state(state, "load 'a.safetensors'", "The file was saved from lenet."); });
  };
  EXPECT_EQ(load([](nn::NamedTensors& s) {
              s[1].second = zeros({3, 5});
            }),
            "load 'a.safetensors': parameter first.weight is (3, 5) in the file and (3, 4) in the model. "
            "The file was saved from lenet.");
  EXPECT_EQ(load([](nn::NamedTensors& s) { s.erase(s.begin() + 2); }),
            "load 'a.safetensors': parameter inner.fc.weight (2, 3) is not in the file. The file holds: "
            "scale, first.weight, inner.fc.bias. The file was saved from lenet.");
  EXPECT_EQ(
      load([](nn::NamedTensors& s) { s.emplace_back("extra", zeros({7})); }),
      "load 'a.safetensors': parameter extra (7,) is in the file and not in the model. The model holds: "
      "scale, first.weight, inner.fc.weight and 1 more. The file was saved from lenet.");
  EXPECT_EQ(load([](nn::NamedTensors& s) { s[0].second = zeros({2}, DType::i64); }),
            "load 'a.safetensors': parameter scale is i64 in the file and f32 in the model. The file was "
            "saved from lenet.");
  EXPECT_EQ(io::weights_sha256(net.state()), before);
  EXPECT_EQ(load([](nn::NamedTensors&) {}), "");
  EXPECT_NE(io::weights_sha256(net.state()), before);
}

TEST(Init, WeightsAndBiasesAreUniformWithinOneOverRootFanIn) {
  manual_seed(7);
  struct Layers : nn::Module {
    nn::Linear fc{this, "fc", 400, 300};
    nn::Conv2d conv{this, "conv", 8, 64, 3, {.groups = 2}};
    Tensor forward(const Tensor& x) override { return x; }
  } layers;
  const auto expect_uniform = [](const Tensor& tensor, double bound) {
    double low = 1, high = -1, square = 0;
    for (float value : tensor.to_vector<float>()) {
      low = std::min(low, static_cast<double>(value));
      high = std::max(high, static_cast<double>(value));
      square += static_cast<double>(value) * value;
    }
    EXPECT_GE(low, -bound);
    EXPECT_LE(high, bound);
    const double variance = square / static_cast<double>(tensor.size());
    EXPECT_NEAR(variance, bound * bound / 3, bound * bound / 3 * (tensor.size() > 1000 ? 0.05 : 0.3));
  };
  expect_uniform(layers.fc.weight, 1 / std::sqrt(400.0));
  expect_uniform(layers.fc.bias, 1 / std::sqrt(400.0));
  expect_uniform(layers.conv.weight, 1 / std::sqrt(4.0 * 9));
  expect_uniform(layers.conv.bias, 1 / std::sqrt(4.0 * 9));
  EXPECT_EQ(layers.conv.weight.shape(), (Dims{64, 4, 3, 3}));
}

TEST(Zoo, ModelsHaveTheNamesAndSizesOfTheirPyTorchTwins) {
  const auto lenet = zoo::make_model("lenet");
  EXPECT_EQ(
      names(lenet->named_parameters()),
      (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}));
  EXPECT_EQ(nn::count_parameters(*lenet), 61706);
  EXPECT_EQ(nn::count_parameters(*zoo::make_model("mnist_cnn")), 1199882);
  EXPECT_EQ(nn::count_parameters(*zoo::make_model("mlp")), 784 * 256 + 256 + 256 * 128 + 128 + 1290);
}

TEST(Zoo, AnUnknownModelIsNamedWithTheNearest) {
  std::string all;
  for (const zoo::ModelInfo& info : zoo::models()) all += (all.empty() ? "" : ", ") + info.name;
  EXPECT_EQ(message([] { zoo::make_model("lent"); }),
            "model: must be one of " + all + "; got 'lent'. Did you mean lenet?");
  EXPECT_EQ(message([] { zoo::make_model("resnet1001"); }),
            "model: must be one of " + all + "; got 'resnet1001'. 'tandem models' describes them.");
}

TEST(Zoo, DropoutCanBeSwitchedOff) {
  const auto model = zoo::make_model("mnist_cnn", {.dropout = 0.0});
  const Tensor x = uniform({2, 1, 28, 28});
  EXPECT_EQ((*model)(x).to_vector<float>(), (*model)(x).to_vector<float>());
}

/// One parameter of five elements and made-up gradients, for several steps.
struct Problem {
  explicit Problem(DType dtype) : parameter(cast(from_vector<double>(start, {5}), dtype)) {
    parameter.set_requires_grad();
  }
  std::vector<double> gradient(int step) const {
    std::vector<double> g;
    for (int i = 0; i < 5; ++i) g.push_back(std::sin(1.7 * i + 0.9 * step) * (i + 1) * 0.3);
    return g;
  }
  nn::NamedTensors named() const { return {{"w", parameter}}; }
  void update(optim::Optimizer& optimizer, int step) const {
    const std::vector<Tensor> g = {cast(from_vector(gradient(step), {5}), parameter.dtype())};
    optimizer.update(g);
  }

  const std::vector<double> start = {0.5, -1.25, 2.0, 0.0, -0.03};
  Tensor parameter;
};

void expect_close(const Tensor& tensor, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = cast(tensor.detach(), DType::f64).to_vector<double>();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
}

TEST(Sgd, FollowsItsFormulaWithMomentumAndWeightDecay) {
  for (DType dtype : {DType::f64, DType::f32}) {
    const Problem problem(dtype);
    optim::Sgd sgd(problem.named(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    std::vector<double> p = problem.start, v(5, 0.0);
    for (int step = 0; step < 10; ++step) {
      if (step == 6) sgd.set_lr(0.05);
      problem.update(sgd, step);
      const std::vector<double> g = problem.gradient(step);
      for (size_t i = 0; i < 5; ++i) {
        v[i] = 0.9 * v[i] + (g[i] + 0.01 * p[i]);
        p[i] -= (step < 6 ? 0.1 : 0.05) * v[i];
      }
    }
    expect_close(problem.parameter, p, dtype == DType::f64 ? 1e-14 : 2e-6);
    EXPECT_NEAR(sgd.lr(), 0.05, 1e-8);
  }
}

TEST(Sgd, WithoutMomentumKeepsNoState) {
  const Problem problem(DType::f64);
  optim::Sgd sgd(problem.named(), {.lr = 0.5});
  EXPECT_EQ(names(sgd.named_state()), std::vector<std::string>{"lr"});
  problem.update(sgd, 0);
  std::vector<double> p = problem.start;
  for (size_t i = 0; i < 5; ++i) p[i] -= 0.5 * problem.gradient(0)[i];
  expect_close(problem.parameter, p, 1e-15);
}

TEST(Adam, FollowsItsFormulaWithBiasCorrection) {
  for (DType dtype : {DType::f64, DType::f32}) {
    const Problem problem(dtype);
    optim::Adam adam(problem.named(), {.lr = 0.01, .weight_decay = 0.02});
    std::vector<double> p = problem.start, m(5, 0.0), v(5, 0.0);
    for (int step = 0; step < 10; ++step) {
      problem.update(adam, step);
      for (size_t i = 0; i < 5; ++i) {
        const double g = problem.gradient(step)[i] + 0.02 * p[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        const double t = step + 1;
        p[i] -= 0.01 / (1 - std::pow(0.9, t)) * m[i] /
                (std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
      }
    }
    expect_close(problem.parameter, p, dtype == DType::f64 ? 1e-12 : 2e-6);
  }
}

TEST(Optimizer, SixteenBitParametersAddUpStepsThatAreSmallerThanTheirRounding) {
  Tensor weight = cast(ones({1}), DType::bf16);
  weight.set_requires_grad();
  optim::Sgd sgd({{"w", weight}}, {.lr = 0.001});
  const std::vector<Tensor> gradient = {cast(ones({1}), DType::bf16)};
  for (int step = 0; step < 100; ++step) sgd.update(gradient);  // each is a quarter of bf16's rounding at 1
  EXPECT_NEAR(weight.item<float>(), 0.9, 0.004);
}

TEST(Optimizer, StateRoundTripContinuesToTheBit) {
  for (const char* name : {"sgd", "adam"}) {
    const Problem once(DType::f32), again(DType::f32);
    const auto a = optim::make_optimizer(name, once.named(), {});
    for (int step = 0; step < 3; ++step) once.update(*a, step);
    const auto b = optim::make_optimizer(name, again.named(), {});
    nn::copy_named(again.named(), {{"w", once.parameter.detach()}}, "load", "parameter");
    b->load_state(a->named_state(), "load");
    for (int step = 3; step < 6; ++step) {
      once.update(*a, step);
      again.update(*b, step);
    }
    EXPECT_EQ(once.parameter.to_vector<float>(), again.parameter.to_vector<float>()) << name;
  }
}

TEST(Optimizer, WrongInputIsRefusedByName) {
  const Problem problem(DType::f32);
  EXPECT_EQ(message([&] { optim::make_optimizer("lion", problem.named(), {}); }),
            "optimizer: must be one of sgd, nesterov, adam, adamw, adamax, nadam, radam, adadelta, adagrad, "
            "rmsprop, lamb; got 'lion'.");
  EXPECT_EQ(message([&] {
              optim::Sgd({{"w", problem.parameter}}, {.lr = -1});
            }),
            "optimizer: the learning rate must be at least 0; got -1.");
  EXPECT_EQ(message([&] {
              optim::Sgd({{"w", problem.parameter}}, {.momentum = 1});
            }),
            "sgd: momentum must be at least 0 and below 1; got 1.");
  optim::Sgd sgd(problem.named(), {});
  EXPECT_EQ(message([&] { sgd.update({}); }),
            "optimizer update: one gradient a parameter is needed; got 0 for 1 parameters.");
  const std::vector<Tensor> wrong = {zeros({4})};
  EXPECT_EQ(message([&] { sgd.update(wrong); }),
            "optimizer update: the gradient of w must have its shape (5,); got (4,).");
}

}  // namespace
}  // namespace tandem
