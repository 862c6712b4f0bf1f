// Optimisers, clipping and schedules: PyTorch's values (golden/make_golden.py writes optim.txt), the same bits in
// both engines, and state that continues to the bit. LAMB, which PyTorch lacks, is compared with a plain loop.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/accumulate.h"
#include "tandem/optim/adadelta.h"
#include "tandem/optim/adagrad.h"
#include "tandem/optim/adam.h"
#include "tandem/optim/adamax.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/clip.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/lamb.h"
#include "tandem/optim/lbfgs.h"
#include "tandem/optim/nadam.h"
#include "tandem/optim/radam.h"
#include "tandem/optim/rmsprop.h"
#include "tandem/optim/schedule.h"
#include "tandem/optim/sgd.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using namespace optim;
using Maker = std::function<std::unique_ptr<Optimizer>(nn::NamedTensors)>;

template <class T, class Options>
Maker maker(const Options& options) {
  return [options](nn::NamedTensors p) { return std::make_unique<T>(std::move(p), options); };
}

/// The second of the two parameters has options of its own.
template <class T, class Options>
Maker grouped(const Options& options, const Options& second) {
  return [options, second](nn::NamedTensors p) {
    return std::make_unique<T>(std::move(p), options, Groups<Options>{{named("p1"), second}});
  };
}

/// The runs of make_golden.py, by name.
const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table = {
      {"sgd", maker<Sgd>(SgdOptions{.lr = 0.05})},
      {"sgd_momentum", maker<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1})},
      {"sgd_nesterov",
       maker<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true})},
      {"adam", maker<Adam>(AdamOptions{})},
      {"adam_decay", maker<Adam>(AdamOptions{0.02, 0.8, 0.95, 1e-4, 0.1})},
      {"adamw", maker<AdamW>(AdamWOptions{})},
      {"adamw_decay", maker<AdamW>(AdamWOptions{0.02, 0.8, 0.95, 1e-4, 0.3})},
      {"adamax", maker<Adamax>(AdamaxOptions{})},
      {"adamax_decay", maker<Adamax>(AdamaxOptions{0.02, 0.8, 0.95, 1e-4, 0.1})},
      {"adadelta", maker<Adadelta>(AdadeltaOptions{})},
      {"adadelta_decay",
       maker<Adadelta>(AdadeltaOptions{.lr = 0.7, .rho = 0.8, .epsilon = 1e-4, .weight_decay = 0.1})},
      {"adagrad", maker<Adagrad>(AdagradOptions{})},
      {"adagrad_decay",
       maker<Adagrad>(AdagradOptions{
           .lr = 0.1, .lr_decay = 0.2, .initial_sum = 0.3, .epsilon = 1e-4, .weight_decay = 0.1})},
      {"rmsprop", maker<RmsProp>(RmsPropOptions{})},
      {"rmsprop_momentum",
       maker<RmsProp>(
           RmsPropOptions{.lr = 0.02, .alpha = 0.9, .epsilon = 1e-4, .momentum = 0.7, .weight_decay = 0.1})},
      {"rmsprop_centered", maker<RmsProp>(RmsPropOptions{.centered = true})},
      {"rmsprop_all",
       maker<RmsProp>(RmsPropOptions{.lr = 0.02, .alpha = 0.9, .momentum = 0.7, .centered = true})},
      {"adam_decoupled", maker<Adam>(AdamOptions{.lr = 0.02, .weight_decay = 0.3, .decoupled = true})},
      {"sgd_groups",
       grouped<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1}, SgdOptions{.lr = 0.2})},
      {"adamw_groups", grouped<AdamW>(AdamWOptions{.lr = 0.02, .weight_decay = 0.3},
                                      AdamWOptions{0.05, 0.7, 0.9, 1e-3, 0.0})},
      {"rmsprop_groups", grouped<RmsProp>(RmsPropOptions{.lr = 0.02},
                                          RmsPropOptions{.lr = 0.05, .alpha = 0.8, .centered = true})},
      {"adagrad_groups",
       grouped<Adagrad>(AdagradOptions{.lr = 0.02}, AdagradOptions{.lr = 0.05, .lr_decay = 0.3})},
      {"sgd_dampening",
       maker<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .dampening = 0.3})},
      {"adam_amsgrad",
       maker<Adam>(AdamOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.5, .epsilon = 1e-4, .amsgrad = true})},
      {"adamw_amsgrad", maker<AdamW>(AdamWOptions{
                            .lr = 0.02, .beta1 = 0.8, .beta2 = 0.5, .weight_decay = 0.3, .amsgrad = true})},
      {"nadam", maker<NAdam>(NAdamOptions{})},
      {"nadam_decay", maker<NAdam>(NAdamOptions{0.02, 0.8, 0.95, 1e-4, 0.1, 0.2})},
      {"nadam_decoupled", maker<NAdam>(NAdamOptions{.lr = 0.02, .weight_decay = 0.3, .decoupled = true})},
      {"nadam_groups",
       grouped<NAdam>(NAdamOptions{.lr = 0.02}, NAdamOptions{0.05, 0.7, 0.9, 1e-8, 0.0, 0.1})},
      {"radam", maker<RAdam>(RAdamOptions{})},
      {"radam_decay", maker<RAdam>(RAdamOptions{0.02, 0.8, 0.95, 1e-4, 0.1})},
      {"radam_never", maker<RAdam>(RAdamOptions{0.02, 0.8, 0.5, 1e-4})},
      {"radam_decoupled", maker<RAdam>(RAdamOptions{.lr = 0.02, .weight_decay = 0.3, .decoupled = true})},
  };
  return table;
}

const std::vector<Dims> kShapes = {{3, 4}, {5}};

/// Two parameters, and gradients that depend on them.
struct Problem {
  explicit Problem(DType dtype, const Maker& make) {
    for (uint32_t i = 0; i < kShapes.size(); ++i)
      parameters.emplace_back(str("p", i), to_tensor(hash_array(kShapes[i], 40 + i), dtype));
    optimizer = make(parameters);
  }
  std::vector<Tensor> inputs(uint32_t step) const {
    std::vector<Tensor> noise;
    for (uint32_t i = 0; i < kShapes.size(); ++i)
      noise.push_back(to_tensor(hash_array(kShapes[i], 500 + 10 * step + i), parameters[i].second.dtype()));
    return noise;
  }
  TensorFunction function(double max_norm = 0) {
    return [this, max_norm](const std::vector<Tensor>& noise) {
      std::vector<Tensor> gradients;
      for (size_t i = 0; i < noise.size(); ++i) gradients.push_back(noise[i] + parameters[i].second * 0.5);
      if (max_norm > 0) gradients = clip_by_norm(gradients, max_norm);
      optimizer->update(gradients);
      return std::vector<Tensor>{};
    };
  }

  nn::NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
};

/// The lines of optim.txt that begin with `kind`, without that word.
std::vector<std::string> golden(const std::string& kind) {
  std::ifstream in(source_dir() / "tests" / "golden" / "optim.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(kind + " ")) lines.push_back(line.substr(kind.size() + 1));
  EXPECT_FALSE(lines.empty()) << kind;
  return lines;
}

Array read_array(std::istringstream& in, const Dims& shape) {
  std::string shape_text;
  in >> shape_text;
  Array array(shape);
  for (double& v : array.values) in >> v;
  EXPECT_FALSE(in.fail()) << "the file is cut short";
  return array;
}

TEST(Optim, TenStepsMatchPyTorchInBothTypes) {
  std::map<std::string, std::map<std::pair<uint32_t, size_t>, Array>> runs;
  for (const std::string& line : golden("run")) {
    std::istringstream in(line);
    std::string name;
    uint32_t step = 0;
    size_t i = 0;
    in >> name >> step >> i;
    runs[name][{step, i}] = read_array(in, kShapes.at(i));
  }
  ASSERT_EQ(runs.size(), makers().size());
  for (const auto& [name, wants] : runs) {
    ASSERT_EQ(wants.size(), 4u) << name;
    for (const DType dtype : {DType::f64, DType::f32}) {
      Problem problem(dtype, makers().at(name));
      const TensorFunction update = problem.function();
      for (uint32_t step = 0; step < 10; ++step) {
        update(problem.inputs(step));
        for (size_t i = 0; i < kShapes.size(); ++i) {
          const auto want = wants.find({step, i});
          if (want == wants.end()) continue;
          EXPECT_TRUE(
              near(to_array(problem.parameters[i].second), want->second, dtype == DType::f64 ? 1e-9 : 5e-6))
              << name << " in " << dtype << ", step " << step << ", parameter " << i;
        }
      }
    }
  }
}

std::map<std::string, Maker> all_makers() {
  std::map<std::string, Maker> all = makers();
  all["lamb"] = maker<Lamb>(LambOptions{});
  all["groups of adam, one with amsgrad"] =
      grouped<Adam>(AdamOptions{}, AdamOptions{.lr = 0.05, .amsgrad = true});
  all["groups of sgd, one with dampening"] =
      grouped<Sgd>(SgdOptions{.lr = 0.05}, SgdOptions{.lr = 0.05, .momentum = 0.8, .dampening = 0.3});
  for (const OptimizerInfo& info : optimizers())
    all["by name: " + info.name] = [info](nn::NamedTensors p) {
      return make_optimizer(info.name, std::move(p), {.lr = info.lr});
    };
  for (const OptimizerInfo& info : optimizers())
    all["groups: " + info.name] = [info](nn::NamedTensors p) {
      return make_optimizer(info.name, std::move(p), {.lr = info.lr, .weight_decay = 0.1, .decoupled = false},
                            {{named("p1"), {.lr = info.lr / 2, .weight_decay = 0.2, .decoupled = true}}});
    };
  return all;
}

TEST(Optim, EveryOptimizerGivesTheSameBitsInBothEnginesWithClippingToo) {
  for (const auto& [name, make] : all_makers())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      SCOPED_TRACE(str(name, " in ", dtype));
      Problem eager(dtype, make), graph(dtype, make);
      const TensorFunction call = eager.function(0.9);
      Compiled compiled = compile(graph.function(0.9));
      for (uint32_t step = 0; step < 6; ++step) {
        if (step == 4) {
          eager.optimizer->set_lr(0.003);
          graph.optimizer->set_lr(0.003);
        }
        call(eager.inputs(step));
        compiled(graph.inputs(step));
      }
      EXPECT_EQ(compiled.reports().size(), 1u);
      for (size_t i = 0; i < kShapes.size(); ++i)
        EXPECT_TRUE(same_bits(eager.parameters[i].second, graph.parameters[i].second)) << i;
      const nn::NamedTensors a = eager.optimizer->named_state(), b = graph.optimizer->named_state();
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i].second, b[i].second)) << a[i].first;
    }
}

TEST(Optim, EveryOptimizersStateContinuesToTheBit) {
  for (const auto& [name, make] : all_makers()) {
    SCOPED_TRACE(name);
    Problem once(DType::f32, make), again(DType::f32, make);
    for (uint32_t step = 0; step < 4; ++step) once.function()(once.inputs(step));
    nn::copy_named(again.parameters, once.parameters, "load", "parameter");
    again.optimizer->load_state(once.optimizer->named_state(), "load");
    for (uint32_t step = 4; step < 8; ++step) {
      once.function()(once.inputs(step));
      again.function()(again.inputs(step));
    }
    for (size_t i = 0; i < kShapes.size(); ++i)
      EXPECT_TRUE(same_bits(once.parameters[i].second, again.parameters[i].second)) << i;
  }
}

TEST(Optim, ByNameIsTheClassWithItsOwnDefaults) {
  const std::map<std::string, Maker> classes = {
      {"sgd", maker<Sgd>(SgdOptions{.momentum = 0.9})},
      {"nesterov", maker<Sgd>(SgdOptions{.momentum = 0.9, .nesterov = true})},
      {"adam", maker<Adam>(AdamOptions{})},
      {"adamw", maker<AdamW>(AdamWOptions{})},
      {"adamax", maker<Adamax>(AdamaxOptions{})},
      {"nadam", maker<NAdam>(NAdamOptions{})},
      {"radam", maker<RAdam>(RAdamOptions{})},
      {"adadelta", maker<Adadelta>(AdadeltaOptions{})},
      {"adagrad", maker<Adagrad>(AdagradOptions{})},
      {"rmsprop", maker<RmsProp>(RmsPropOptions{})},
      {"lamb", maker<Lamb>(LambOptions{})},
  };
  ASSERT_EQ(classes.size(), optimizers().size());
  for (const OptimizerInfo& info : optimizers()) {
    Problem a(DType::f64, classes.at(info.name));
    Problem b(DType::f64,
              [&](nn::NamedTensors p) { return make_optimizer(info.name, std::move(p), {.lr = info.lr}); });
    for (uint32_t step = 0; step < 3; ++step) {
      a.function()(a.inputs(step));
      b.function()(b.inputs(step));
    }
    for (size_t i = 0; i < kShapes.size(); ++i)
      EXPECT_TRUE(same_bits(a.parameters[i].second, b.parameters[i].second)) << info.name;
  }
}

TEST(Lamb, FollowsItsFormula) {
  const LambOptions o{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1};
  for (const DType dtype : {DType::f64, DType::f32}) {
    Problem problem(dtype, maker<Lamb>(o));
    for (uint32_t k = 0; k < kShapes.size(); ++k) {
      Array p = hash_array(kShapes[k], 40 + k), m(kShapes[k]), v(kShapes[k]), d(kShapes[k]);
      for (uint32_t step = 0; step < 10; ++step) {
        if (k == 0) problem.function()(problem.inputs(step));
        const Array noise = hash_array(kShapes[k], 500 + 10 * step + k);
        double size = 0, length = 0;
        for (int64_t i = 0; i < p.size(); ++i) {
          const double g = noise[i] + 0.5 * p[i];
          m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
          v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
          const double mean = m[i] / (1 - std::pow(o.beta1, step + 1));
          const double square = v[i] / (1 - std::pow(o.beta2, step + 1));
          d[i] = mean / (std::sqrt(square) + o.epsilon) + o.weight_decay * p[i];
          size += p[i] * p[i];
          length += d[i] * d[i];
        }
        for (int64_t i = 0; i < p.size(); ++i) p[i] -= o.lr * std::sqrt(size) / std::sqrt(length) * d[i];
      }
      EXPECT_TRUE(near(to_array(problem.parameters[k].second), p, dtype == DType::f64 ? 1e-12 : 5e-6)) << k;
    }
  }
}

TEST(Lamb, AParameterOrADirectionOfZeroTakesTheRatioOne) {
  const Tensor zero = zeros({3}, DType::f64), still = zeros({2}, DType::f64);
  Lamb lamb({{"zero", zero}, {"still", still}}, {.lr = 0.5, .epsilon = 0.25});
  lamb.update(std::vector<Tensor>{ones({3}, DType::f64), zeros({2}, DType::f64)});
  EXPECT_TRUE(near(to_array(zero), Array({3}, {-0.4, -0.4, -0.4}), 1e-12));  // 0.5 · 1 / (1 + 0.25)
  EXPECT_TRUE(near(to_array(still), Array({2}, {0, 0}), 0));
}

TEST(Optim, DecayIsAddedToTheGradientOrTakenOffTheValueForEveryOptimizer) {
  for (const OptimizerInfo& info : optimizers()) {
    const auto after = [&](const Settings& settings, double shrink, double added) {
      Tensor p = to_tensor(hash_array({6}, 3), DType::f64);
      if (shrink > 0) p = p * shrink;
      const auto optimizer = make_optimizer(info.name, {{"p", p}}, settings);
      optimizer->update(std::vector<Tensor>{to_tensor(hash_array({6}, 4), DType::f64) + p * added});
      return to_array(p);
    };
    const double lr = 0.25, decay = 0.5;
    const Settings none{.lr = lr, .weight_decay = 0.0};
    EXPECT_TRUE(near(after({.lr = lr, .weight_decay = decay, .decoupled = false}, 0, 0),
                     after(none, 0, decay), 1e-15))
        << info.name;
    if (info.name == "lamb") continue;  // its decoupled decay is part of the direction: FollowsItsFormula
    // Shrunk first, by hand: then the step of a run without decay.
    EXPECT_TRUE(near(after({.lr = lr, .weight_decay = decay, .decoupled = true}, 0, 0),
                     after(none, 1 - lr * decay, 0), 1e-15))
        << info.name;
  }
}

TEST(Optim, TheRatesOfGroupsAreScaledTogetherOrSetAlone) {
  const nn::NamedTensors p = {{"a.weight", zeros({2})}, {"a.bias", zeros({2})}};
  Sgd sgd(p, {.lr = 0.5}, {{named("bias"), {.lr = 0.25}}});
  EXPECT_EQ(sgd.groups(), 2u);
  EXPECT_EQ(sgd.group_of(0), 0u);
  EXPECT_EQ(sgd.group_of(1), 1u);
  sgd.set_lr(1);
  EXPECT_EQ(sgd.lr(), 1);
  EXPECT_EQ(sgd.lr(1), 0.5);
  sgd.set_lr(3, 1);
  EXPECT_EQ(sgd.lr(0), 1);
  EXPECT_EQ(sgd.lr(1), 3);
  sgd.set_lr(0.5);
  EXPECT_EQ(sgd.lr(1), 0.25);
  EXPECT_EQ(error_of([&] { sgd.set_lr(1, 2); }), "set_lr: the group must be below 2; got 2.");
  Sgd still(p, {.lr = 0}, {{named("bias"), {.lr = 0.25}}});
  EXPECT_EQ(error_of([&] { still.set_lr(1); }),
            "set_lr: the first group's rate must be above 0 to scale the others by it; got 0. Set each "
            "group's rate by itself.");
}

TEST(Ema, MatchesPyTorchWithTwoGroupsUnderOneSchedule) {
  std::map<std::string, std::map<std::pair<uint32_t, size_t>, Array>> runs;
  for (const std::string& line : golden("ema")) {
    std::istringstream in(line);
    std::string decay;
    uint32_t step = 0;
    size_t i = 0;
    in >> decay >> step >> i;
    runs[decay][{step, i}] = read_array(in, kShapes.at(i));
  }
  ASSERT_EQ(runs.size(), 2u);
  for (const auto& [decay, wants] : runs)
    for (const bool compiled : {false, true}) {
      Problem problem(DType::f64, grouped<Sgd>(SgdOptions{.lr = 0.05}, SgdOptions{.lr = 0.2}));
      Ema ema(problem.parameters, {.decay = std::stod(decay)});
      const TensorFunction update = problem.function();
      TensorFunction step_of = [&](const std::vector<Tensor>& in) {
        update(in);
        ema.update();
        return std::vector<Tensor>{};
      };
      if (compiled)
        step_of = [run = std::make_shared<Compiled>(compile(step_of))](const auto& in) { return (*run)(in); };
      for (uint32_t step = 0; step < 10; ++step) {
        problem.optimizer->set_lr(exponential_decay(0.05, step, 0.8));
        step_of(problem.inputs(step));
        for (size_t i = 0; i < kShapes.size(); ++i)
          if (const auto want = wants.find({step, i}); want != wants.end()) {
            EXPECT_TRUE(near(to_array(ema.averages()[i].second), want->second, 1e-9)) << decay << " " << step;
          }
      }
    }
}

TEST(Ema, TheScopeLendsTheAveragesAndTheStateContinues) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor p = to_tensor(hash_array({5}, 1), dtype);
    Ema ema({{"p", p}}, {.decay = 0.75, .warm_up = true});
    double want = 0;
    for (int t = 0; t < 8; ++t) {
      assign(p, full({5}, t, dtype));
      ema.update();
      const double decay = t == 0 ? 0 : std::min(0.75, (1.0 + t) / (10.0 + t));
      want = decay * want + (1 - decay) * t;
    }
    EXPECT_NEAR(to_array(ema.averages()[0].second)[0], want, 1e-6);
    {
      const Ema::Scope averaged(ema);
      EXPECT_NEAR(to_array(p)[0], want, dtype == DType::f32 ? 1e-6 : 1e-1);
    }
    EXPECT_TRUE(same_bits(p, full({5}, 7, dtype)));
    Ema again({{"p", p}}, {.decay = 0.75, .warm_up = true});
    again.load_state(ema.named_state(), "load");
    assign(p, full({5}, 30, dtype));
    ema.update();
    again.update();
    EXPECT_TRUE(same_bits(ema.averages()[0].second, again.averages()[0].second));
  }
  EXPECT_EQ(error_of([] {
              Ema({{"p", zeros({1})}}, {.decay = 1});
            }),
            "ema: the decay must be at least 0 and below 1; got 1.");
}

TEST(GradientSum, BatchesOfAnySizesGiveTheMeanOverAllSamplesInBothEngines) {
  std::vector<Tensor> parameters = {to_tensor(hash_array({3, 4}, 92), DType::f64),
                                    to_tensor(hash_array({3}, 93), DType::f64)};
  for (Tensor& p : parameters) p.set_requires_grad();
  const nn::NamedTensors names = {{"weight", parameters[0]}, {"bias", parameters[1]}};
  const Tensor x = to_tensor(hash_array({10, 4}, 90), DType::f64),
               y = to_tensor(hash_array({10, 3}, 91), DType::f64);
  std::vector<std::vector<Tensor>> means;
  for (const bool compiled : {false, true}) {
    GradientSum sums(names);
    TensorFunction add = [&](const std::vector<Tensor>& in) {
      sums.add(grad(mse_loss(linear(in[0], parameters[0], parameters[1]), in[1]), parameters), in[0].size(0));
      return std::vector<Tensor>{};
    };
    TensorFunction take = [&](const std::vector<Tensor>&) { return sums.take(); };
    if (compiled) {
      add = [run = std::make_shared<Compiled>(compile(add))](const auto& in) { return (*run)(in); };
      take = [run = std::make_shared<Compiled>(compile(take))](const auto& in) { return (*run)(in); };
    }
    for (int round = 0; round < 2; ++round) {  // the second begins anew
      for (const auto& [begin, end] : {std::pair{0, 4}, {4, 8}, {8, 10}}) {
        add({contiguous(slice(x, 0, begin, end)), contiguous(slice(y, 0, begin, end))});
        if (begin == 4) {  // a checkpoint in between
          GradientSum other(names);
          other.load_state(sums.named_state(), "load");
          sums.load_state(other.named_state(), "load");
        }
      }
      means.push_back(take({}));
    }
  }
  for (const std::string& line : golden("accumulate")) {
    std::istringstream in(line);
    size_t i = 0;
    in >> i;
    EXPECT_TRUE(near(to_array(means[0].at(i)), read_array(in, parameters.at(i).shape()), 1e-9)) << i;
    for (const auto& other : means) EXPECT_TRUE(same_bits(means[0][i], other.at(i))) << i;
  }
}

TEST(Clip, MatchesPyTorch) {
  for (const std::string& line : golden("clip")) {
    std::istringstream in(line);
    std::string name;
    size_t i = 0;
    in >> name >> i;
    const Array want = read_array(in, kShapes.at(i));
    for (const DType dtype : {DType::f64, DType::f32}) {
      std::vector<Tensor> gradients;
      for (uint32_t k = 0; k < kShapes.size(); ++k)
        gradients.push_back(to_tensor(hash_array(kShapes[k], 80 + k), dtype));
      const double limit = std::stod(name.substr(name.find('_') + 1));
      const std::vector<Tensor> got =
          name.starts_with("norm") ? clip_by_norm(gradients, limit) : clip_by_value(gradients, limit);
      EXPECT_TRUE(near(to_array(got.at(i)), want, dtype == DType::f64 ? 1e-9 : 1e-6)) << line;
      EXPECT_EQ(got[i].dtype(), dtype);
    }
  }
}

TEST(Clip, TheNormOfSixteenBitGradientsDoesNotOverflow) {
  const std::vector<Tensor> gradients = {cast(full({4}, 30000), DType::f16)};
  EXPECT_EQ(global_norm(gradients).item<double>(), 60000);
  const std::vector<Tensor> clipped = clip_by_norm(gradients, 2);
  EXPECT_EQ(clipped[0].dtype(), DType::f16);
  EXPECT_NEAR(to_array(clipped[0])[0], 1, 1e-2);
  EXPECT_EQ(error_of([&] { clip_by_norm(gradients, 0); }), "clip_by_norm: max_norm must be above 0; got 0.");
  EXPECT_EQ(error_of([&] { clip_by_value(gradients, -1); }),
            "clip_by_value: the limit must be above 0; got -1.");
}

TEST(Schedule, MatchesPyTorchAtEveryStep) {
  using Function = std::function<double(int64_t)>;
  const auto plateau = [](const PlateauOptions& options) -> Function {
    return [p = Plateau(0.4, options)](int64_t step) mutable {
      if (step == 0) return p.lr();
      const double rate = p.measure(hash_value(static_cast<uint32_t>(step - 1), 60, 0.5, 1.5));
      Plateau resumed = p;  // a run that goes on from the state
      resumed.load_state(p.state());
      p = resumed;
      return rate;
    };
  };
  std::map<std::string, Function> functions = {
      {"step", [](int64_t s) { return step_decay(0.4, s, 7); }},
      {"step_factor", [](int64_t s) { return step_decay(0.4, s, 4, 0.6); }},
      {"exponential", [](int64_t s) { return exponential_decay(0.4, s, 0.9); }},
      {"cosine", [](int64_t s) { return cosine(0.4, s, 20); }},
      {"cosine_least", [](int64_t s) { return cosine(0.4, s, 29, 0.05); }},
      {"warm_up", [](int64_t s) { return warm_up(0.4, s, 5); }},
      {"warm_up_slow", [](int64_t s) { return warm_up(0.4, s, 12, 0.01); }},
      {"one_cycle", [](int64_t s) { return one_cycle(0.4, s, 30); }},
      {"one_cycle_linear",
       [](int64_t s) {
         return one_cycle(0.4, s, 30, {.rise = 0.25, .divisor = 10, .final_divisor = 100, .linear = true});
       }},
      {"one_cycle_three", [](int64_t s) { return one_cycle(0.4, s, 30, {.three_phases = true}); }},
      {"plateau", plateau({.patience = 2})},
      {"plateau_cooldown", plateau({.factor = 0.5,
                                    .patience = 1,
                                    .cooldown = 3,
                                    .threshold = 0.05,
                                    .relative = false,
                                    .least = 0.06})},
      {"plateau_max", plateau({.factor = 0.3, .patience = 3, .threshold = 0.1, .higher_is_better = true})},
  };
  const std::vector<std::string> lines = golden("schedule");
  ASSERT_EQ(lines.size(), functions.size());
  for (const std::string& line : lines) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    ASSERT_TRUE(functions.contains(name)) << name;
    int64_t step = 0;
    for (double want; in >> want; ++step)
      EXPECT_NEAR(functions[name](step), want, 1e-13) << name << ' ' << step;
    EXPECT_EQ(step, 30) << name;
  }
}

TEST(Optim, WrongSettingsAreRefusedByName) {
  const nn::NamedTensors p = {{"w", zeros({2})}};
  EXPECT_EQ(error_of([&] { Sgd(p, {.nesterov = true}); }), "sgd: nesterov needs a momentum above 0; got 0.");
  EXPECT_EQ(error_of([&] { Sgd(p, {.dampening = 0.5}); }),
            "sgd: dampening needs a momentum above 0, and not nesterov; got dampening 0.5, momentum 0.");
  EXPECT_EQ(error_of([&] { Sgd(p, {.momentum = 0.9, .nesterov = true, .dampening = 0.5}); }),
            "sgd: dampening needs a momentum above 0, and not nesterov; got dampening 0.5, momentum 0.9 and "
            "nesterov.");
  EXPECT_EQ(error_of([&] { Sgd(p, {.momentum = 0.9, .dampening = 2}); }),
            "sgd: dampening must be between 0 and 1; got 2.");
  EXPECT_EQ(error_of([&] { NAdam(p, {.momentum_decay = -1}); }),
            "nadam: momentum_decay must be at least 0; got -1.");
  EXPECT_EQ(error_of([&] { RAdam(p, {.beta2 = 1}); }),
            "radam: beta1 and beta2 must be at least 0 and below 1; got 0.9 and 1.");
  EXPECT_EQ(error_of([&] { AdamW(p, {.weight_decay = -1}); }),
            "optimizer: weight_decay must be at least 0; got -1.");
  EXPECT_EQ(error_of([&] { Adadelta(p, {.rho = 2}); }), "adadelta: rho must be between 0 and 1; got 2.");
  EXPECT_EQ(error_of([&] { RmsProp(p, {.momentum = 1}); }),
            "rmsprop: momentum must be at least 0 and below 1; got 1.");
  EXPECT_EQ(error_of([] { one_cycle(1, 30, 30); }),
            "one_cycle: the step must be below the total of 30; got 30.");
  EXPECT_EQ(error_of([] { step_decay(1, 0, 0); }), "step_decay: every must be at least 1; got 0.");
}

TEST(Optim, TheSettingsByNameReachAmsgradAndDampening) {
  const auto after = [](const Maker& make) {
    Problem problem(DType::f64, make);
    for (uint32_t step = 0; step < 4; ++step) problem.function()(problem.inputs(step));
    return problem.parameters[0].second;
  };
  const auto named = [](const char* name, const Settings& settings) -> Maker {
    return [=](nn::NamedTensors p) { return make_optimizer(name, std::move(p), settings); };
  };
  EXPECT_TRUE(same_bits(after(named("adamw", {.lr = 0.02, .beta2 = 0.5, .amsgrad = true})),
                        after(maker<AdamW>(AdamWOptions{.lr = 0.02, .beta2 = 0.5, .amsgrad = true}))));
  EXPECT_TRUE(same_bits(after(named("sgd", {.lr = 0.02, .momentum = 0.8, .dampening = 0.5})),
                        after(maker<Sgd>(SgdOptions{.lr = 0.02, .momentum = 0.8, .dampening = 0.5}))));
}

/// How many members a struct of options has.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T, class... Members>
constexpr size_t members_of() {
  if constexpr (requires { T{Members{}..., Anything{}}; })
    return members_of<T, Members..., Anything>();
  else
    return sizeof...(Members);
}

template <class T, class Options>
void expect_every_option_in_settings(Options options) {
  const Tensor p = ones({2}).set_requires_grad();
  const auto settings_of = [&](const Options& o) { return T({{"p", p}}, o).settings(); };
  const OptionValues before = settings_of(options);
  const auto differing = [&](const Options& other) {
    const OptionValues after = settings_of(other);
    EXPECT_EQ(after.size(), before.size());
    std::vector<std::string> names;
    for (size_t i = 0; i < before.size(); ++i)
      if (after[i] != before[i]) names.push_back(after[i].first);
    return names;
  };
  size_t count = 3;  // lr, weight_decay and decoupled, which Optimizer lists
  optim::detail::list_options(options, [&](const std::string& name, const auto& value) {
    ++count;
    auto& member = const_cast<std::remove_cvref_t<decltype(value)>&>(value);
    const auto kept = member;
    member = std::is_same_v<decltype(value), const bool&> ? !member : member / 2 + 0.01;
    EXPECT_EQ(differing(options), std::vector<std::string>{name});
    member = kept;
  });
  EXPECT_EQ(count, members_of<Options>()) << before[0].first << ": add the option to detail::list_options";
  options.weight_decay += 0.5;
  EXPECT_EQ(differing(options), std::vector<std::string>{"weight_decay"});
}

TEST(Optim, SettingsNameEveryOptionOfEveryOptimizer) {
  expect_every_option_in_settings<Sgd>(SgdOptions{.momentum = 0.9});
  expect_every_option_in_settings<Adam>(AdamOptions{});
  expect_every_option_in_settings<AdamW>(AdamWOptions{});
  expect_every_option_in_settings<Adamax>(AdamaxOptions{});
  expect_every_option_in_settings<NAdam>(NAdamOptions{});
  expect_every_option_in_settings<RAdam>(RAdamOptions{});
  expect_every_option_in_settings<Adadelta>(AdadeltaOptions{});
  expect_every_option_in_settings<Adagrad>(AdagradOptions{});
  expect_every_option_in_settings<RmsProp>(RmsPropOptions{});
  expect_every_option_in_settings<Lamb>(LambOptions{});
  EXPECT_EQ(optimizers().size(), 11u) << "a new one belongs here, too (nesterov is an option of Sgd)";
}

TEST(Optim, AParameterThatIsNotUsedKeepsItsValueAndState) {
  for (const auto& [name, make] : makers()) {
    Problem problem(DType::f32, make);
    problem.function()(problem.inputs(0));
    const auto copies = [&] {
      nn::NamedTensors all = problem.optimizer->named_state();
      all.insert(all.end(), problem.parameters.begin(), problem.parameters.end());
      for (auto& [key, tensor] : all) tensor = clone(tensor.detach());
      return all;
    };
    const nn::NamedTensors before = copies();
    std::vector<Tensor> gradients;
    for (const auto& row : problem.parameters) gradients.push_back(ones_like(row.second.detach()));
    const Tensor no = full({}, 0, DType::boolean);
    problem.optimizer->update(gradients, {}, std::vector<Tensor>{Tensor(), no});
    const nn::NamedTensors after = copies();
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].first.ends_with("p1")) {
        EXPECT_TRUE(same_bits(before[i].second, after[i].second)) << name << " " << before[i].first;
      }
      if (before[i].first == "p0") {
        EXPECT_FALSE(same_bits(before[i].second, after[i].second)) << name;
      }
    }
  }
}

// --- L-BFGS

/// The valley of make_golden.py's lbfgs_loss, and where it begins.
struct Valley {
  explicit Valley(DType dtype) : target(to_tensor(hash_array({5}, 90), dtype)) {
    for (uint32_t i = 0; i < kShapes.size(); ++i) {
      parameters.emplace_back(str("p", i), to_tensor(hash_array(kShapes[i], 40 + i), dtype));
      parameters.back().second.set_requires_grad();
    }
  }
  Tensor loss() const {
    const Tensor &p = parameters[0].second, &q = parameters[1].second;
    const Tensor a = slice(p, 1, 0, 2), b = slice(p, 1, 2, 4);
    return sum(square(b - a * a) * 10.0 + square(1.0 - a)) + sum(square(square(q - target)));
  }

  Tensor target;
  nn::NamedTensors parameters;
};

const std::map<std::string, LbfgsOptions>& lbfgs_runs() {
  static const std::map<std::string, LbfgsOptions> runs = {
      {"plain", {.lr = 0.1, .max_iterations = 3}},
      {"first_step", {.lr = 0.5, .max_iterations = 1, .history = 2}},
      {"wolfe", {.max_iterations = 4, .history = 3, .strong_wolfe = true}},
      {"wolfe_far", {.lr = 40, .max_iterations = 3, .strong_wolfe = true}},
      {"wolfe_short", {.lr = 0.001, .max_iterations = 2, .max_evaluations = 6, .strong_wolfe = true}}};
  return runs;
}

TEST(Lbfgs, TenStepsMatchPyTorchInValuesAndCounts) {
  std::map<std::string, std::map<std::pair<int, size_t>, Array>> wants;
  for (const std::string& line : golden("lbfgs")) {
    std::istringstream in(line);
    std::string name;
    int step = 0;
    size_t i = 0;
    in >> name >> step >> i;
    wants[name][{step, i}] = read_array(in, kShapes.at(i));
  }
  std::map<std::pair<std::string, int>, std::array<double, 3>> counts;
  for (const std::string& line : golden("lbfgs_counts")) {
    std::istringstream in(line);
    std::string name;
    int step = 0;
    in >> name >> step;
    for (double& value : counts[{name, step}]) in >> value;
  }
  ASSERT_EQ(wants.size(), lbfgs_runs().size());
  for (const auto& [name, options] : lbfgs_runs()) {
    Valley valley(DType::f64);
    Lbfgs lbfgs(valley.parameters, options);
    for (int step = 0; step < 10; ++step) {
      SCOPED_TRACE(str(name, " step ", step));
      const double loss = lbfgs.step([&] { return valley.loss(); });
      const std::array<double, 3>& want = counts.at({name, step});
      EXPECT_NEAR(loss, want[0], 1e-7 * (1 + std::abs(want[0])));
      EXPECT_EQ(static_cast<double>(lbfgs.iterations()), want[1]);
      EXPECT_EQ(static_cast<double>(lbfgs.evaluations()), want[2]);
      for (size_t i = 0; i < kShapes.size(); ++i)
        if (const auto at = wants[name].find({step, i}); at != wants[name].end()) {
          EXPECT_TRUE(near(to_array(valley.parameters[i].second), at->second, 1e-7));
        }
    }
  }
}

TEST(Lbfgs, ACompiledLossGivesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [name, options] : lbfgs_runs()) {
      Valley eager(dtype), graph(dtype);
      Lbfgs a(eager.parameters, options), b(graph.parameters, options);
      Compiled loss = compile([&](const std::vector<Tensor>&) { return std::vector<Tensor>{graph.loss()}; });
      for (int step = 0; step < 4; ++step)
        EXPECT_EQ(a.step([&] { return eager.loss(); }), b.step([&] { return loss({})[0]; })) << name << dtype;
      for (size_t i = 0; i < kShapes.size(); ++i)
        EXPECT_TRUE(same_bits(eager.parameters[i].second.detach(), graph.parameters[i].second.detach()))
            << name;
      EXPECT_EQ(a.evaluations(), b.evaluations());
    }
}

TEST(Lbfgs, TheStateContinuesToTheBit) {
  for (const auto& [name, options] : lbfgs_runs()) {
    Valley once(DType::f32), again(DType::f32);
    Lbfgs a(once.parameters, options), b(again.parameters, options);
    for (const int steps : {0, 3}) {  // before the first iteration, too
      for (int step = 0; step < steps; ++step) a.step([&] { return once.loss(); });
      {
        const NoGrad off;
        nn::copy_named(again.parameters, once.parameters, "load", "parameter");
      }
      b.load_state(a.named_state(), "load");
    }
    a.set_lr(a.lr() / 2);
    b.load_state(a.named_state(), "load");
    EXPECT_EQ(b.lr(), a.lr());
    for (int step = 0; step < 3; ++step) {
      a.step([&] { return once.loss(); });
      b.step([&] { return again.loss(); });
    }
    for (size_t i = 0; i < kShapes.size(); ++i)
      EXPECT_TRUE(same_bits(once.parameters[i].second.detach(), again.parameters[i].second.detach())) << name;
    EXPECT_EQ(a.iterations(), b.iterations());
    EXPECT_EQ(a.evaluations(), b.evaluations());
  }
}

TEST(Lbfgs, StopsWhereNothingIsLeftToGain) {
  Tensor p = from_vector<double>({3, -2}, {2});
  p.set_requires_grad();
  Lbfgs lbfgs({{"p", p}}, {.max_iterations = INT64_MAX, .strong_wolfe = true});
  EXPECT_EQ(lbfgs.step([&] { return sum(square(p - 1.0)); }), 13);
  EXPECT_TRUE(near(to_array(p), Array({2}, {1, 1}), 1e-8));
  const int64_t iterations = lbfgs.iterations(), evaluations = lbfgs.evaluations();
  EXPECT_LT(iterations, 10);
  lbfgs.step([&] { return sum(square(p - 1.0)); });
  EXPECT_EQ(lbfgs.iterations(), iterations);
  EXPECT_EQ(lbfgs.evaluations(), evaluations + 1);
}

TEST(Lbfgs, WrongUseIsRefusedWithTheReason) {
  Tensor p = ones({2});
  EXPECT_EQ(error_of([&] {
              Lbfgs({{"p", p}});
            }),
            "lbfgs: every parameter must want gradients; got 'p', which is frozen. Leave it out "
            "(trainable_parameters() does).");
  p.set_requires_grad();
  const nn::NamedTensors parameters = {{"p", p}};
  Tensor half = ones({2}, DType::bf16);
  half.set_requires_grad();
  EXPECT_EQ(
      error_of([&] {
        Lbfgs({{"p", half}});
      }),
      "lbfgs: the parameters must be f32 or f64; got bf16, whose products of vectors are too coarse. Convert "
      "the model first: net.to(DType::f32).");
  EXPECT_EQ(error_of([&] { Lbfgs(parameters, {.lr = -1}); }),
            "lbfgs: the learning rate must be at least 0; got -1.");
  EXPECT_EQ(
      error_of([&] { Lbfgs(parameters, {.history = 0}); }),
      "lbfgs: max_iterations and history must be at least 1, max_evaluations at least 0; got 20, 0 and 0.");
  EXPECT_EQ(error_of([&] { Lbfgs(parameters, {.change_tolerance = -1}); }),
            "lbfgs: tolerances must be at least 0; got 1e-07 and -1.");
  Lbfgs lbfgs(parameters);
  EXPECT_EQ(error_of([&] { lbfgs.step([&] { return p * 2.0; }); }),
            "lbfgs step: the loss must be a 0-d tensor; got f32 (2,) on cpu.");
  Compiled compiled = compile([&](const std::vector<Tensor>&) {
    lbfgs.step([&] { return sum(p * p); });
    return std::vector<Tensor>{};
  });
  EXPECT_EQ(error_of([&] { compiled({}); }),
            "lbfgs step: must be called outside of compile(): how often it evaluates the loss depends on the "
            "loss's "
            "values, and a compiled callable does the same operations at every call. Compile the loss and "
            "call it in "
            "the function that step() takes.");
  Lbfgs full({{"p", p}}, {.history = 3}), narrow({{"p", p}}, {.history = 1});
  for (int i = 0; i < 3; ++i) full.step([&] { return sum(square(square(p))); });
  EXPECT_EQ(error_of([&] { narrow.load_state(full.named_state(), "load 'x'"); }),
            "load 'x': the history must have at most 1 rows; the file has 3. Make the optimiser with "
            ".history = 3 or "
            "more.");
}

TEST(Optim, TakesOnlyLeavesEachOnce) {
  Tensor w = ones({2, 3}), v = ones({2, 3});
  w.set_requires_grad();
  v.set_requires_grad();
  const auto refusal = [](const nn::NamedTensors& parameters) {
    return error_of([&] { Sgd(parameters, {.lr = 0.1}); });
  };
  EXPECT_NO_THROW(Sgd({{"w", w}, {"v", v}}, {.lr = 0.1}));
  EXPECT_EQ(
      refusal({{"w", w}, {"twice", w * 2.0}}),
      "optimizer: every parameter must be a leaf, which no operation computed; got 'twice', f32 (2, 3) on "
      "cpu, the "
      "result of an operation. Give what it was computed from, or detach() it and set_requires_grad().");
  EXPECT_NE(refusal({{"row", w[0]}}).find("must be a leaf"), std::string::npos);
  EXPECT_EQ(refusal({{"w", w}, {"none", Tensor()}}),
            "optimizer: every parameter must be a tensor; got an undefined handle for 'none'. Make it first, "
            "or leave it "
            "out.");
  EXPECT_EQ(refusal({{"w", w}, {"again", w}}),
            "optimizer: every parameter must be given once; got 'w' and 'again', which are one tensor. Leave "
            "one out "
            "(named_parameters() gives each once).");
  EXPECT_NE(refusal({{"w", w}, {"again", w.detach()}}).find("which are one tensor"), std::string::npos);
  EXPECT_NE(refusal({{"w", w}, {"w", v}}).find("must have a name of its own; got two of 'w'"),
            std::string::npos);
  const NoGrad off;  // what is computed here is a leaf, and may be trained
  EXPECT_NO_THROW(Sgd({{"made", w * 2.0}}, {.lr = 0.1}));
}

}  // namespace
}  // namespace tandem::testing
