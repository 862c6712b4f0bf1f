// The f32 values behind parameters of 16 bits, and state that follows its parameters: who else writes a parameter is heard,
// and a model may be converted after its optimiser was made.
#include <gtest/gtest.h>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/lbfgs.h"
#include "tandem/optim/loss_scaler.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/step.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using namespace optim;
const std::vector<Dims> kShapes = {{3, 4}, {5}};

/// Two parameters under one optimiser; the second is in a group of its own.
struct Problem {
  Problem(const std::string& name, DType dtype, bool compiled) {
    for (uint32_t i = 0; i < kShapes.size(); ++i)
      parameters.emplace_back(str("p", i), to_tensor(hash_array(kShapes[i], 40 + i), dtype));
    const Settings settings{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1};
    optimizer =
        make_optimizer(name, parameters, settings,
                       {{named("p1"), Settings{.lr = 0.02, .weight_decay = 0.05, .decoupled = true}}});
    function = [this](const std::vector<Tensor>& gradients) {
      optimizer->update(std::span(gradients).first(kShapes.size()),
                        gradients.size() > kShapes.size() ? gradients.back() : Tensor());
      return std::vector<Tensor>{};
    };
    if (compiled)
      function = [run = std::make_shared<Compiled>(compile(function))](const auto& in) { return (*run)(in); };
  }
  void step(uint32_t i, const Tensor& finite = {}) {
    std::vector<Tensor> in;
    for (uint32_t k = 0; k < kShapes.size(); ++k)
      in.push_back(to(to_tensor(hash_array(kShapes[k], 500 + 10 * i + k), parameters[k].second.dtype()),
                      parameters[k].second.device()));
    if (finite.defined()) in.push_back(finite);
    function(in);
  }
  /// What each parameter is now, in f32.
  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& [name, tensor] : parameters)
      for (const float v : cast(tensor, DType::f32).to_vector<float>()) all.push_back(v);
    return all;
  }
  void convert(DType dtype) {
    for (auto& [name, tensor] : parameters) tensor.rebind(cast(tensor.detach(), dtype));
  }

  nn::NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
  TensorFunction function;
};

nn::NamedTensors copies(const nn::NamedTensors& tensors) {
  nn::NamedTensors out = tensors;
  for (auto& [name, tensor] : out) tensor = clone(tensor.detach());
  return out;
}

void expect_same(const nn::NamedTensors& a, const nn::NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_EQ(a[i].second.dtype(), b[i].second.dtype()) << a[i].first;
    EXPECT_TRUE(same_bits(a[i].second, b[i].second)) << a[i].first;
  }
}

/// Every optimiser, both 16-bit types, both engines.
void for_all(const std::function<void(const std::string& name, DType dtype, bool compiled)>& check) {
  for (const OptimizerInfo& info : optimizers())
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const bool compiled : {false, true}) {
        SCOPED_TRACE(str(info.name, " ", dtype, compiled ? " compiled" : ""));
        check(info.name, dtype, compiled);
      }
}

TEST(Masters, AStepBeginsFromWhatSomebodyElseWroteIntoTheParameters) {
  for_all([](const std::string& name, DType dtype, bool compiled) {
    Problem p(name, dtype, compiled);
    Ema ema(p.parameters);
    ema.update();
    uint32_t step = 0;
    const auto kept = [&](const std::function<void()>& write) {
      for (int i = 0; i < 3; ++i) p.step(step++);
      write();
      const std::vector<float> written = p.values();
      p.optimizer->set_lr(0, 0);  // a step that moves nothing
      p.optimizer->set_lr(0, 1);
      p.step(step++);
      EXPECT_EQ(p.values(), written);
      p.optimizer->set_lr(0.01, 0);
      p.optimizer->set_lr(0.02, 1);
    };
    kept([&] {
      for (const auto& [name, tensor] : p.parameters) assign(tensor, full_like(tensor, 5));
    });
    kept([&] {  // one element alone
      assign(slice(p.parameters[1].second, 0, 1, 2), full({1}, -3, dtype));
    });
    kept([&] {
      for (const auto& [name, tensor] : p.parameters) nn::init::uniform_(tensor, 0, 1);
    });
    kept([&] { ema.copy_to_parameters(); });
    kept([&] {
      nn::NamedTensors given;
      for (const auto& [name, tensor] : p.parameters) given.emplace_back(name, full(tensor.shape(), 0.25));
      nn::copy_named(p.parameters, given, "load", "parameter");
    });
  });
}

TEST(Masters, AStepThatIsLeftOutKeepsAllBitsAndTheNextBeginsFromWhatWasLoaded) {
  for_all([](const std::string& name, DType dtype, bool compiled) {
    Problem p(name, dtype, compiled);
    for (uint32_t i = 0; i < 3; ++i) p.step(i, full({}, 1, DType::boolean));
    for (const auto& [name, tensor] : p.parameters) assign(tensor, full_like(tensor, 5));
    const nn::NamedTensors before = copies(p.parameters), state = copies(p.optimizer->named_state());
    p.step(3, full({}, 0, DType::boolean));
    expect_same(p.parameters, before);
    expect_same(p.optimizer->named_state(), state);
    p.optimizer->set_lr(0, 0);
    p.optimizer->set_lr(0, 1);
    p.step(4, full({}, 1, DType::boolean));
    expect_same(p.parameters, before);
  });
}

TEST(Masters, EvaluatingWithTheAverageChangesNoBit) {
  for_all([](const std::string& name, DType dtype, bool compiled) {
    Problem plain(name, dtype, compiled), tested(name, dtype, compiled);
    Ema ema(tested.parameters);
    for (uint32_t i = 0; i < 6; ++i) {
      plain.step(i);
      tested.step(i);
      ema.update();
      const Ema::Scope averaged(ema);
    }
    expect_same(plain.parameters, tested.parameters);
    expect_same(plain.optimizer->named_state(), tested.optimizer->named_state());
  });
}

TEST(Masters, BothEnginesHaveTheSameBitsWithWritesInBetween) {
  for (const OptimizerInfo& info : optimizers())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(str(info.name, " ", dtype));
      Problem eager(info.name, dtype, false), graph(info.name, dtype, true);
      for (uint32_t i = 0; i < 8; ++i)
        for (Problem* p : {&eager, &graph}) {
          if (i == 4) assign(p->parameters[0].second, full_like(p->parameters[0].second, 0.3));
          p->step(i);
        }
      expect_same(eager.parameters, graph.parameters);
      expect_same(eager.optimizer->named_state(), graph.optimizer->named_state());
    }
}

TEST(Masters, AStateThatHoldsThemContinuesToTheBit) {
  for_all([](const std::string& name, DType dtype, bool compiled) {
    Problem once(name, dtype, compiled), again(name, dtype, compiled);
    for (uint32_t i = 0; i < 4; ++i) once.step(i);
    for (uint32_t i = 0; i < 2; ++i) again.step(9 + i);  // masters of its own
    nn::copy_named(again.parameters, once.parameters, "load", "parameter");
    again.optimizer->load_state(once.optimizer->named_state(), "load");
    for (uint32_t i = 4; i < 8; ++i) {
      once.step(i);
      again.step(i);
    }
    expect_same(once.parameters, again.parameters);
    expect_same(once.optimizer->named_state(), again.optimizer->named_state());
  });
}

TEST(Optim, OneMadeBeforeTheModelIsConvertedIsAsOneMadeAfterwards) {
  for (const OptimizerInfo& info : optimizers())
    for (const auto& [from, to] : {std::pair(DType::f32, DType::bf16),
                                   {DType::f32, DType::f16},
                                   {DType::f32, DType::f64},
                                   {DType::f64, DType::f32},
                                   {DType::f64, DType::bf16},
                                   {DType::bf16, DType::f32},
                                   {DType::bf16, DType::f64}})
      for (const bool compiled : {false, true}) {
        SCOPED_TRACE(str(info.name, " ", from, " to ", to, compiled ? " compiled" : ""));
        Problem early(info.name, from, compiled), late(info.name, to, compiled);
        early.convert(to);
        for (size_t i = 0; i < kShapes.size(); ++i)
          assign(late.parameters[i].second, early.parameters[i].second);
        for (uint32_t i = 0; i < 4; ++i) {
          early.step(i);
          late.step(i);
        }
        expect_same(early.parameters, late.parameters);
        expect_same(early.optimizer->named_state(), late.optimizer->named_state());
        EXPECT_EQ(early.optimizer->lr(), late.optimizer->lr());
      }
}

TEST(Optim, AModelMayBeConvertedBetweenStepsWithTheSameBitsInBothEngines) {
  for (const OptimizerInfo& info : optimizers()) {
    SCOPED_TRACE(info.name);
    Problem eager(info.name, DType::f32, false), graph(info.name, DType::f32, true);
    for (uint32_t i = 0; i < 10; ++i)
      for (Problem* p : {&eager, &graph}) {
        if (i % 2 == 0)
          p->convert(std::array{DType::f32, DType::bf16, DType::f64, DType::f16, DType::f32}[i / 2]);
        p->step(i);
      }
    expect_same(eager.parameters, graph.parameters);
    expect_same(eager.optimizer->named_state(), graph.optimizer->named_state());
  }
}

TEST(Optim, AModelMayBeMovedBeforeAndBetweenStepsWithoutChangingABit) {
  for (const OptimizerInfo& info : optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool compiled : {false, true}) {
        SCOPED_TRACE(str(info.name, " ", dtype, compiled ? " compiled" : ""));
        Problem stays(info.name, dtype, compiled), moves(info.name, dtype, compiled);
        for (uint32_t i = 0; i < 6; ++i) {
          stays.step(i);
          const Device device{DeviceKind::cpu, static_cast<uint8_t>(i / 2 == 1 ? 0 : 1)};
          for (auto& [name, tensor] : moves.parameters) tensor.rebind(to(tensor.detach(), device));
          moves.step(i);
        }
        expect_same(stays.parameters, moves.parameters);
        for (const auto& [name, tensor] : moves.optimizer->named_state())
          EXPECT_EQ(tensor.device().index, 1) << name;
        expect_same(stays.optimizer->named_state(), moves.optimizer->named_state());
      }
}

TEST(Optim, TheStateHasItsMastersAsSoonAsTheModelIsConverted) {
  Problem p("adam", DType::f32, false), q("adam", DType::f32, false);
  p.step(0);
  p.convert(DType::bf16);
  q.convert(DType::bf16);
  const nn::NamedTensors saved = copies(p.optimizer->named_state());
  EXPECT_EQ(std::count_if(saved.begin(), saved.end(),
                          [](const auto& row) { return row.first.starts_with("master."); }),
            2);
  q.optimizer->load_state(saved, "load");
  expect_same(q.optimizer->named_state(), saved);
}

TEST(Optim, ParametersOfDifferentTypesAreRefusedInTheNextStep) {
  Problem p("sgd", DType::f32, false);
  p.parameters[1].second.rebind(cast(p.parameters[1].second, DType::bf16));
  EXPECT_EQ(refusal([&] { p.step(0); }),
            "optimizer: all parameters must have one floating type; got p1 as bf16 and p0 as f32.");
}

TEST(TrainingStep, SmallStepsAddUpInAModelThatWasConvertedAfterwards) {
  struct One : nn::Module {
    Tensor w = parameter("w", ones({1}));
    Tensor forward(const Tensor& x) override { return x * w; }
  };
  for (const Engine engine : {Engine::eager, Engine::graph})
    for (const bool step_first : {false, true}) {
      One net;
      const auto sgd = make_optimizer("sgd", net.named_parameters(), {.lr = 1e-4, .momentum = 0});
      const StepOptions options{.loss = [](const Tensor& out, const Tensor&) { return mean(out); }};
      if (!step_first) net.to(DType::bf16);
      TrainingStep step(net, *sgd, engine, options);
      if (step_first) net.to(DType::bf16);
      for (int i = 0; i < 1000; ++i) step(ones({1, 1}), zeros({1}, DType::i64));
      EXPECT_NEAR(net.w.item<float>(), 0.9f, 0.005f) << name(engine) << step_first;
    }
}

TEST(TrainingStep, SumsAndAveragesThatWereMadeBeforeTheModelWasConvertedAndMovedAreAsThoseMadeAfterwards) {
  constexpr Device kThere{DeviceKind::cpu, 1};
  for (const DType dtype : {DType::f64, DType::bf16})
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      const auto run = [&](bool late) {
        manual_seed(3);
        const auto net = nn::make<nn::Linear>(4, 3);
        if (late) net->to(dtype), net->to(kThere);
        const auto adam = make_optimizer("adam", net->named_parameters(), {.lr = 0.01});
        Ema ema(net->named_parameters());
        TrainingStep step(*net, *adam, engine, {.accumulates = true, .ema = &ema});
        if (!late) net->to(dtype), net->to(kThere);
        for (uint32_t i = 0; i < 6; i += 2) {
          const auto batch = [&](uint32_t k) {
            return Named{{"input", to(to_tensor(hash_array({8, 4}, k), DType::f32), kThere)},
                         {"target", to(to_tensor(hash_array({8}, 100 + k, 0, 3), DType::i64), kThere)}};
          };
          step.accumulate(batch(i));
          step(batch(i + 1));
        }
        net->to(Device{});
        ema.copy_to_parameters();
        nn::NamedTensors all = copies(net->state());
        for (const nn::NamedTensors& more : {adam->named_state(), ema.named_state()})
          for (const auto& row : copies(more)) all.push_back(row);
        return all;
      };
      expect_same(run(false), run(true));
    }
}

TEST(Lbfgs, FollowsItsParametersAndRefusesWhatItCannotFollow) {
  const auto run = [](bool converted) {
    Tensor p = from_vector<float>({3, -2, 0.5f}, {3});
    if (!converted) p = cast(p, DType::f64);
    p.set_requires_grad();
    Lbfgs lbfgs({{"p", p}}, {.max_iterations = 3});
    if (converted) p.rebind(cast(p.detach(), DType::f64));
    for (int i = 0; i < 3; ++i) lbfgs.step([&] { return sum(square(square(p - 1.0))); });
    return p.detach();
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
  Tensor p = from_vector<float>({3, -2}, {2});
  p.set_requires_grad();
  Lbfgs lbfgs({{"p", p}}, {.max_iterations = 3});
  const auto step = [&] { lbfgs.step([&] { return sum(square(square(p - 1.0))); }); };
  step();
  p.rebind(cast(p.detach(), DType::f64));
  step();  // with a history
  p.set_requires_grad(false);
  EXPECT_EQ(refusal(step),
            "lbfgs step: every parameter must want gradients; 'p' was frozen after the optimiser was made. "
            "unfreeze() it, or make an optimiser of the others.");
  p.set_requires_grad();
  p.rebind(cast(p.detach(), DType::bf16));
  EXPECT_HAS(refusal(step), "lbfgs: the parameters must be f32 or f64; got bf16");
}

}  // namespace
}  // namespace tandem::testing
