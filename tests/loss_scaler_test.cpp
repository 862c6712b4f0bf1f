// Dynamic loss scaling: on overflow nothing changes but the scale, with every optimiser, in both engines.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/tandem.h"
#include "tandem/train/step.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

nn::NamedTensors copies(const nn::NamedTensors& tensors) {
  nn::NamedTensors out = tensors;
  for (auto& [name, tensor] : out) tensor = clone(tensor.detach());
  return out;
}
void expect_same(const nn::NamedTensors& got, const nn::NamedTensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(same_bits(got[i].second.detach(), want[i].second)) << want[i].first;
}

TEST(LossScaler, ScalesAndUnscalesWithoutChangingADigit) {
  const optim::LossScaler scaler;
  const Tensor loss = full({}, 0.3);
  EXPECT_EQ(scaler.scale(loss).item<double>(), loss.item<double>() * 65536);
  const Tensor g = to_tensor(hash_array({50}, 1), DType::f32);
  const std::vector<Tensor> back = scaler.unscale(std::vector<Tensor>{g * 65536.0, Tensor()});
  EXPECT_TRUE(same_bits(back[0], g));
  EXPECT_FALSE(back[1].defined());
  EXPECT_EQ(scaler.unscale(std::vector<Tensor>{cast(g, DType::f16)})[0].dtype(), DType::f32);
}

TEST(LossScaler, FindsInfinitiesAndNaNs) {
  const Tensor fine = ones({3, 4});
  EXPECT_TRUE(optim::all_finite(std::vector<Tensor>{fine, Tensor(), fine}).item<bool>());
  for (const double bad : {kInfinity, -kInfinity, std::nan("")})
    EXPECT_FALSE(
        optim::all_finite(std::vector<Tensor>{fine, concat({fine, full({1, 4}, bad)})}).item<bool>());
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterTheInterval) {
  optim::LossScaler scaler({}, {.first = 8, .interval = 3});
  std::vector<double> scales;
  for (const bool finite : {true, true, true, false, true, true, false, true, true, true}) {
    scaler.update(full({}, finite ? 1 : 0, DType::boolean));
    scales.push_back(scaler.current().item<double>());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 8, 8, 8, 4, 4, 4, 8}));
  EXPECT_EQ(scaler.skipped().item<int64_t>(), 2);
  optim::LossScaler large({}, {.first = 0x1p99, .growth = 1024, .interval = 1});
  for (int i = 0; i < 5; ++i) large.update(ones({}, DType::boolean));
  EXPECT_EQ(large.current().item<double>(), 0x1p119) << "what would be infinite stays";
}

TEST(LossScaler, NeverShrinksToZeroAndGrowsAgain) {
  optim::LossScaler scaler({}, {.first = 1024, .interval = 1});
  for (int i = 0; i < 400; ++i) scaler.update(full({}, 0, DType::boolean));
  const float least = scaler.current().item<float>();
  EXPECT_GE(least, 1e-30f);
  EXPECT_LT(least, 2e-30f);
  scaler.update(full({}, 1, DType::boolean));
  EXPECT_EQ(scaler.current().item<float>(), 2 * least);
}

TEST(LossScaler, RefusesWhatItCannotScaleBy) {
  EXPECT_NE(error_of([] { optim::LossScaler({}, {.first = 0}); }).find("1e-30 to 1e30; got 0"),
            std::string::npos);
  EXPECT_NE(error_of([] { optim::LossScaler({}, {.backoff = 1}); }).find("between 0 and 1"),
            std::string::npos);
  EXPECT_NE(error_of([] { optim::LossScaler({}, {.interval = 0}); }).find("at least 1"), std::string::npos);
  optim::LossScaler scaler;
  EXPECT_NE(error_of([&] { scaler.update(ones({2}, DType::boolean)); }).find("one bool"), std::string::npos);
  EXPECT_NE(error_of([&] { scaler.scale(ones({}, DType::i64)); }).find("floating"), std::string::npos);
}

TEST(LossScaler, StateGoesIntoACheckpointAndBack) {
  optim::LossScaler a({}, {.interval = 3}), b({}, {.interval = 3});
  for (const bool finite : {false, true, true}) a.update(full({}, finite ? 1 : 0, DType::boolean));
  b.load_state(copies(a.named_state()), "test");
  for (optim::LossScaler* scaler : {&a, &b}) scaler->update(ones({}, DType::boolean));
  expect_same(b.named_state(), copies(a.named_state()));
  EXPECT_EQ(b.current().item<double>(), 65536.0);
}

TEST(LossScaler, RefusesAStateThatItCouldNotScaleBy) {
  optim::LossScaler scaler;
  const auto refused = [&](const char* name, double value) {
    nn::NamedTensors state = copies(scaler.named_state());
    for (auto& [key, tensor] : state)
      if (key == name) tensor = full({}, value, tensor.dtype());
    const std::string message = error_of([&] { scaler.load_state(state, "load 'run'"); });
    EXPECT_EQ(scaler.current().item<double>(), 65536.0) << "nothing was loaded";
    return message;
  };
  for (const double value : {std::nan(""), kInfinity, -kInfinity, 0., -1.})
    EXPECT_NE(
        refused("scale", value).find("load 'run': the loss scale must be a finite number above 0; got "),
        std::string::npos);
  EXPECT_EQ(
      refused("steps", -3),
      "load 'run': the steps of the loss scale must be at least 0; got -3. Load another checkpoint, or begin "
      "with a new LossScaler.");
  EXPECT_NE(refused("skipped", -1).find("at least 0; got -1"), std::string::npos);
}

class EveryOptimizer : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryOptimizer, KeepsParametersAndStateWhereAStepOverflows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor w = to_tensor(hash_array({5, 3}, 1), dtype).set_requires_grad();
    Tensor b = to_tensor(hash_array({3}, 2), dtype).set_requires_grad();
    const nn::NamedTensors parameters = {{"w", w}, {"b", b}};
    const optim::Settings settings{
        .lr = 0.1, .weight_decay = 0.01, .dampening = GetParam() == "sgd" ? 0.5 : 0, .amsgrad = true};
    const auto optimizer = optim::make_optimizer(GetParam(), parameters, settings);
    const auto expected = optim::make_optimizer(
        GetParam(),
        {{"w", clone(w.detach()).set_requires_grad()}, {"b", clone(b.detach()).set_requires_grad()}},
        settings);
    optim::Ema ema(parameters, {.warm_up = true});
    const auto gradients = [&](uint32_t i, double bad) {
      const Tensor g = to_tensor(hash_array({5, 3}, 10 + i), DType::f32);
      return std::vector<Tensor>{bad == 0 ? g : where(greater(g, 0.5), bad, g),
                                 to_tensor(hash_array({3}, 20 + i), DType::f32)};
    };
    uint32_t step = 0;
    for (const double bad : {kInfinity, 0.0, 0.0, std::nan(""), 0.0}) {
      const std::vector<Tensor> g = gradients(step++, bad);
      const nn::NamedTensors before = copies(parameters), state = copies(optimizer->named_state()),
                             average = copies(ema.named_state());
      const Tensor finite = optim::all_finite(g);
      optimizer->update(optim::clip_by_value(g, 10), finite);
      ema.update(finite);
      if (bad == 0) {  // as if the others had never been
        expected->update(optim::clip_by_value(g, 10));
        expect_same(copies(parameters), copies(expected->parameters()));
        expect_same(copies(optimizer->named_state()), copies(expected->named_state()));
        continue;
      }
      expect_same(parameters, before);
      expect_same(optimizer->named_state(), state);
      expect_same(ema.named_state(), average);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Names, EveryOptimizer, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& row : optim::optimizers()) names.push_back(row.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

/// A step whose gradients overflow until the scale is small enough.
TEST(LossScaler, FindsItsScaleInATrainingStepWithTheSameBitsInBothEngines) {
  const auto train = [](Engine engine, bool accumulates) {
    manual_seed(3);
    const auto model = nn::make<nn::Linear>(4, 3);
    nn::Linear& layer = *model;
    optim::Adam adam(layer.named_parameters(), {.lr = 0.01});
    optim::Ema ema(layer.named_parameters());
    optim::LossScaler scaler({}, {.first = 0x1p40, .interval = 5});
    TrainingStep step(layer, adam, engine,
                      {.clip_norm = 1.0,
                       .accumulates = accumulates,
                       .ema = &ema,
                       .autocast = DType::f16,
                       .scaler = &scaler});
    const nn::NamedTensors before = copies(layer.named_parameters());
    for (uint32_t i = 0; i < 40; ++i) {
      const Tensor x = to_tensor(hash_array({8, 4}, i), DType::f32);
      const Tensor y = to_tensor(hash_array({8}, 100 + i, 0, 3), DType::i64);
      if (accumulates) step.accumulate({{"input", x}, {"target", y}});
      const Tensor loss = step(x, y);
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
      if (i == 0) expect_same(layer.named_parameters(), before);
    }
    EXPECT_GT(scaler.skipped().item<int64_t>(), 10);
    EXPECT_LT(scaler.skipped().item<int64_t>(), 35);
    EXPECT_LT(scaler.current().item<double>(), 0x1p26);
    EXPECT_EQ(adam.named_state()[1].second.item<int64_t>(), 40 - scaler.skipped().item<int64_t>());
    nn::NamedTensors all = copies(layer.named_parameters());
    for (const nn::NamedTensors& more : {adam.named_state(), ema.named_state(), scaler.named_state()})
      for (const auto& row : copies(more)) all.push_back(row);
    return all;
  };
  for (const bool accumulates : {false, true})
    expect_same(train(Engine::graph, accumulates), train(Engine::eager, accumulates));
}

}  // namespace
}  // namespace tandem::testing
