// What a model has besides tensors, and who may change it: parameters that are frozen and unfrozen between steps, and modes
// that an evaluation must leave as they were.
#include <gtest/gtest.h>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/arrays.h"
#include "tandem/data/compose.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/mode_scope.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

struct Net : nn::Module {
  nn::Linear body{this, "body", 4, 6};
  nn::BatchNorm1d norm{this, "norm", 6};
  nn::Linear head{this, "head", 6, 3};
  bool fails = false;
  Tensor forward(const Tensor& x) override {
    TD_CHECK(!fails, "net: must not fail.");
    return head(relu(norm(body(x))));
  }
};

Named batch(uint32_t i) {
  return {{"input", to_tensor(hash_array({8, 4}, i), DType::f32)},
          {"target", to_tensor(hash_array({8}, 100 + i, 0, 3), DType::i64)}};
}

const data::TensorSet& points() {
  static const data::TensorSet& set = *new data::TensorSet(
      {to_tensor(hash_array({40, 4}, 1), DType::f32), to_tensor(hash_array({40}, 2, 0, 3), DType::i64)});
  return set;
}

std::vector<std::vector<std::byte>> bits(const nn::NamedTensors& tensors) {
  std::vector<std::vector<std::byte>> out;
  for (const auto& [name, tensor] : tensors) out.push_back(host_bytes(tensor.detach()));
  return out;
}

std::vector<bool> modes(nn::Module& net) {
  std::vector<bool> out;
  for (const auto& [name, module] : net.named_modules()) out.push_back(module->training());
  return out;
}

// ---- frozen parameters

/// 12 steps, in which the body is frozen and unfrozen. anew: with another TrainingStep after each change.
std::vector<std::vector<std::byte>> switched(const char* optimizer, Engine engine, bool accumulates,
                                             bool anew) {
  manual_seed(4);
  Net net;
  const auto own =
      optim::make_optimizer(optimizer, net.named_parameters(), {.lr = 0.05, .weight_decay = 0.1});
  const auto make = [&] {
    return std::make_unique<TrainingStep>(net, *own, engine,
                                          StepOptions{.clip_norm = 0.5, .accumulates = accumulates});
  };
  auto step = make();
  net.body.freeze();
  for (uint32_t i = 0; i < 12; ++i) {
    if (i == 3 || i == 9) net.body.unfreeze();
    if (i == 6) net.body.freeze();
    if (anew && i % 3 == 0) step = make();
    const std::vector<float> before = net.body.weight.to_vector<float>();
    if (accumulates) step->accumulate(batch(50 + i));
    (*step)(batch(i));
    EXPECT_EQ(net.body.weight.to_vector<float>() == before, !net.body.weight.requires_grad()) << i;
  }
  nn::NamedTensors all = net.state();
  for (const auto& row : own->named_state()) all.push_back(row);
  return bits(all);
}

TEST(Freezing, BetweenStepsIsHeededAsByAStepThatIsMadeAnew) {
  for (const char* optimizer : {"sgd", "adam", "lamb"})
    for (const bool accumulates : {false, true}) {
      SCOPED_TRACE(str(optimizer, accumulates ? " accumulates" : ""));
      const auto expected = switched(optimizer, Engine::eager, accumulates, true);
      EXPECT_EQ(switched(optimizer, Engine::eager, accumulates, false), expected);
      EXPECT_EQ(switched(optimizer, Engine::graph, accumulates, false), expected);
      EXPECT_EQ(switched(optimizer, Engine::graph, accumulates, true), expected);
    }
}

TEST(Freezing, WithinTheBatchesOfOneStepLeavesNothingForALaterOne) {
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    const auto after = [&](bool frozen_between) {
      manual_seed(4);
      Net net;
      const auto sgd = optim::make_optimizer("sgd", net.named_parameters(), {.lr = 0.1, .momentum = 0});
      TrainingStep step(net, *sgd, engine, {.accumulates = true});
      const std::vector<float> before = net.body.weight.to_vector<float>();
      if (!frozen_between) net.body.freeze();
      step.accumulate(batch(0));
      net.body.freeze();
      step(batch(1));
      EXPECT_EQ(net.body.weight.to_vector<float>(), before);
      net.body.unfreeze();
      step.accumulate(batch(2));
      step(batch(3));
      EXPECT_NE(net.body.weight.to_vector<float>(), before);
      return bits(net.state());
    };
    EXPECT_EQ(after(true), after(false));
  }
}

TEST(Freezing, AllOfAModelIsRefusedInTheNextStep) {
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    Net net;
    const auto sgd = optim::make_optimizer("sgd", net.named_parameters(), {});
    TrainingStep step(net, *sgd, engine);
    step(batch(0));
    net.freeze();
    EXPECT_EQ(refusal([&] { step(batch(1)); }),
              "training step: at least one parameter must not be frozen; all 6 are. unfreeze() some.");
    net.unfreeze();
    step(batch(1));
  }
}

TEST(Freezing, UnfreezingWhatTheOptimizerDoesNotHoldIsRefused) {
  Net net;
  net.body.freeze();
  const auto sgd = optim::make_optimizer("sgd", net.trainable_parameters(), {});
  TrainingStep step(net, *sgd, Engine::graph);
  step(batch(0));
  net.body.unfreeze();
  EXPECT_EQ(refusal([&] { step(batch(1)); }),
            "training step: the optimiser must hold every parameter that is unfrozen; it was made without "
            "body.weight. "
            "Make it with named_parameters(), which has the frozen ones as well.");
  net.body.freeze();
  step(batch(1));
}

TEST(Freezing, TheGradientsOfABatchAreOfWhatIsNotFrozen) {
  manual_seed(4);
  Net net;
  const nn::NamedTensors all = loss_gradients(net, {}, batch(0));
  net.body.freeze();
  const nn::NamedTensors some = loss_gradients(net, {}, batch(0));
  ASSERT_EQ(some.size(), all.size() - 2);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].first, all[i + 2].first);
    EXPECT_TRUE(same_bits(some[i].second, all[i + 2].second));
  }
  net.freeze();
  EXPECT_TRUE(loss_gradients(net, {}, batch(0)).empty());
}

/// Unfreezes the body after the first epoch and freezes the head after the second.
struct Gradual final : Callback {
  void on_epoch(Training& run) override {
    Net& net = dynamic_cast<Net&>(run.model());
    if (run.state().epoch == 1) net.body.unfreeze();
    if (run.state().epoch == 2) net.head.freeze();
  }
};

TEST(Freezing, ByACallbackIsHeededAndAResumedRunGoesOnWithIt) {
  const TempFolder folder;
  const auto run = [&](Engine engine, std::optional<int64_t> steps, const std::string& out, bool resume) {
    manual_seed(4);
    Net net;
    net.body.freeze();
    net.norm.eval();
    const std::vector<float> body = net.body.weight.to_vector<float>(),
                             mean = net.named_buffers()[0].second.to_vector<float>();
    const FitResult result = fit(net, points(),
                                 {.engine = engine,
                                  .epochs = 4,
                                  .steps = steps,
                                  .batch = 8,
                                  .accumulate = 2,
                                  .optimizer = "adam",
                                  .ema = 0.9,
                                  .callbacks = {std::make_shared<Gradual>()},
                                  .out = out.empty() ? "" : folder / out,
                                  .resume = resume});
    if (!steps) {
      EXPECT_NE(net.body.weight.to_vector<float>(), body);
    }
    EXPECT_EQ(net.named_buffers()[0].second.to_vector<float>(), mean)
        << "a part in evaluation mode stays there";
    return result.weights_sha256;
  };
  const std::string expected = run(Engine::eager, {}, "", false);
  EXPECT_EQ(run(Engine::graph, {}, "", false), expected);
  for (const int64_t steps : {2, 5, 8}) {
    const std::string out = str("run", steps);
    run(Engine::graph, steps, out, false);
    std::filesystem::remove(folder / out + "/model.safetensors");
    EXPECT_EQ(run(Engine::graph, {}, out, true), expected) << steps;
  }
}

// ---- modes

TEST(Modes, AScopeGivesEachPartItsOwnModeBack) {
  Net net;
  net.norm.eval();
  const std::vector<bool> before = modes(net);
  for (const bool training : {false, true}) {
    const nn::ModeScope scope(net, training);
    EXPECT_EQ(modes(net), std::vector<bool>(before.size(), training));
    { const nn::ModeScope inner(net, !training); }
    EXPECT_EQ(modes(net), std::vector<bool>(before.size(), training));
  }
  EXPECT_EQ(modes(net), before);
}

TEST(Modes, AScopeHeedsPartsThatComeAndGo) {
  nn::Sequential net{nn::make<nn::Linear>(2, 2), nn::make<nn::Linear>(2, 2)};
  net[1].eval();
  {
    const nn::ModeScope scope(net, false);
    net.add(nn::make<nn::Linear>(2, 2));
  }
  EXPECT_EQ(modes(net), (std::vector<bool>{true, true, false, true}));
}

TEST(Modes, TestingAndPredictingLeaveEachPartInItsOwn) {
  for (const bool outermost : {true, false})
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      manual_seed(4);
      Net net;
      net.norm.eval();
      net.set_training(outermost);
      const std::vector<bool> before = modes(net);
      evaluate(net, points(), {.engine = engine});
      EXPECT_EQ(modes(net), before);
      predict(net, points(), {.engine = engine});
      EXPECT_EQ(modes(net), before);
      loss_gradients(net, {}, batch(0));
      EXPECT_EQ(modes(net), before);
      net.fails = true;
      refusal([&] { evaluate(net, points(), {.engine = engine}); });
      EXPECT_EQ(modes(net), before);
      refusal([&] { predict(net, points(), {.engine = engine}); });
      EXPECT_EQ(modes(net), before);
      refusal([&] { loss_gradients(net, {}, batch(0)); });
      EXPECT_EQ(modes(net), before);
    }
}

TEST(Modes, GoingOnWithATextLeavesEachPartInItsOwnAlsoWhereItFails) {
  struct Words final : nn::Module {
    nn::Linear fc{this, "fc", 1, 5};
    nn::BatchNorm1d norm{this, "norm", 5};
    bool fails = false;
    using Module::forward;
    std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
      TD_CHECK(!fails, "words: must not fail.");
      return {fc(unsqueeze(cast(in[0], DType::f32), 2))};
    }
  };
  manual_seed(4);
  Words net;
  net.norm.eval();
  const std::vector<bool> before = modes(net);
  const std::vector<int64_t> begin = {1, 2};
  generate(net, begin, {.count = 3}, Engine::eager);
  EXPECT_EQ(modes(net), before);
  net.fails = true;
  refusal([&] { generate(net, begin, {.count = 3}, Engine::eager); });
  EXPECT_EQ(modes(net), before);
}

TEST(Modes, AModelInEvaluationModeIsTrainedAsAWhole) {
  Net net;
  net.eval();
  const auto sgd = optim::make_optimizer("sgd", net.named_parameters(), {});
  TrainingStep step(net, *sgd, Engine::graph);
  step(batch(0));
  EXPECT_EQ(modes(net), std::vector<bool>(4, true));
}

}  // namespace
}  // namespace tandem::testing
