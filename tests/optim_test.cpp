// Optimisers, clipping and schedules: PyTorch's values (golden/make_golden.py writes optim.txt), the same bits in
// both engines, and state that continues to the bit. LAMB, which PyTorch lacks, is compared with a plain loop.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tandem/graph/compile.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/optim/adadelta.h"
#include "tandem/optim/adagrad.h"
#include "tandem/optim/adam.h"
#include "tandem/optim/adamax.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/clip.h"
#include "tandem/optim/lamb.h"
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
           RmsPropOptions{.lr = 0.02, .alpha = 0.9, .epsilon = 1e-4, .weight_decay = 0.1, .momentum = 0.7})},
      {"rmsprop_centered", maker<RmsProp>(RmsPropOptions{.centered = true})},
      {"rmsprop_all",
       maker<RmsProp>(RmsPropOptions{.lr = 0.02, .alpha = 0.9, .momentum = 0.7, .centered = true})},
  };
  return table;
}

const std::vector<Dims> kShapes = {{3, 4}, {5}};

/// Two parameters, and gradients that depend on them.
struct Problem {
  explicit Problem(DType dtype, const Maker& make) {
    for (uint32_t i = 0; i < kShapes.size(); ++i)
      parameters.emplace_back(cat("p", i), to_tensor(hash_array(kShapes[i], 40 + i), dtype));
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
  for (const OptimizerInfo& info : optimizers())
    all["by name: " + info.name] = [info](nn::NamedTensors p) {
      return make_optimizer(info.name, std::move(p), {.lr = info.lr});
    };
  return all;
}

TEST(Optim, EveryOptimizerGivesTheSameBitsInBothEnginesWithClippingToo) {
  for (const auto& [name, make] : all_makers())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      SCOPED_TRACE(cat(name, " in ", dtype));
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
  EXPECT_EQ(error_of([&] { AdamW(p, {.weight_decay = -1}); }),
            "adamw: weight_decay must be at least 0; got -1.");
  EXPECT_EQ(error_of([&] { Adadelta(p, {.rho = 2}); }), "adadelta: rho must be between 0 and 1; got 2.");
  EXPECT_EQ(error_of([&] { RmsProp(p, {.momentum = 1}); }),
            "rmsprop: momentum must be at least 0 and below 1; got 1.");
  EXPECT_EQ(error_of([] { one_cycle(1, 30, 30); }),
            "one_cycle: the step must be below the total of 30; got 30.");
  EXPECT_EQ(error_of([] { step_decay(1, 0, 0); }), "step_decay: every must be at least 1; got 0.");
}

}  // namespace
}  // namespace tandem::testing
