// fit() for a program in C++: workers, parameters that the loss does not depend on, exceptions of the program's own data, and
// the options of an optimiser of its own at a resume.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tandem/core/rng.h"
#include "tandem/data/compose.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/lamb.h"
#include "tandem/optim/sgd.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Points of two classes; sample `broken` cannot be had.
class Points final : public data::Dataset {
 public:
  explicit Points(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    data::check_index("get", i, size_);
    if (i == broken_) throw std::runtime_error("cannot decode");
    std::vector<float> x(4);
    for (uint32_t k = 0; k < 4; ++k)
      x[k] = static_cast<float>(hash_value(static_cast<uint32_t>(i) * 4 + k, 1));
    return {from_vector(x, {4}), from_vector<int64_t>({x[0] + x[1] > x[2] ? 1 : 0}, {})};
  }

 private:
  int64_t size_, broken_;
};
const Points kTrain(46), kTest(30);

/// Has a layer that no output depends on, or on some batches only: those of 8 samples.
struct Net : nn::Module {
  nn::Linear first{this, "first", 4, 8}, last{this, "last", 8, 2}, spare{this, "spare", 4, 2};
  enum class Use : uint8_t { never, full_batches } use = Use::never;
  Tensor forward(const Tensor& x) override {
    const Tensor out = last(tanh(first(x)));
    return use == Use::full_batches && x.size(0) == 8 ? out + spare(x) : out;
  }
};

/// A net, the same beginning each time, trained.
nn::NamedTensors trained(FitOptions options, Net::Use use = Net::Use::never,
                         const data::Dataset& set = kTrain) {
  manual_seed(5);
  Net net;
  net.use = use;
  options.batch = 8;
  fit(net, set, options);
  return net.state();
}
nn::NamedTensors untrained() {
  manual_seed(5);
  return Net().state();
}

bool are_same(const nn::NamedTensors& a, const nn::NamedTensors& b, const std::string& part = "") {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i)
    same = a[i].first == b[i].first && (!a[i].first.starts_with(part) || same_bits(a[i].second, b[i].second));
  return same;
}

TEST(FitOptions, AnyNumberOfWorkersGivesTheSameBits) {
  const data::DatasetPtr noisy = data::map_random(
      std::make_shared<Points>(46),
      [](data::Sample sample, data::SampleRandom& random) {
        sample[0] = sample[0] + random.normal();
        return sample;
      },
      3);
  const auto run = [&](std::optional<int64_t> workers) {
    return trained({.test = &kTest, .epochs = 2, .workers = workers, .allow_unused = true}, Net::Use::never,
                   *noisy);
  };
  const nn::NamedTensors usual = run({});
  for (const int64_t workers : {0, 1, 4}) EXPECT_TRUE(are_same(run(workers), usual)) << workers;
  Net net;
  EXPECT_EQ(evaluate(net, kTest, {.workers = 3})["loss"], evaluate(net, kTest, {.workers = 0})["loss"]);
  EXPECT_TRUE(same_bits(predict(net, kTest, {.batch = 7, .workers = 3}), predict(net, kTest)));
  EXPECT_EQ(refusal([&] { run(-1); }), "workers: must be at least 0; got -1.");
  EXPECT_EQ(refusal([&] { run(257); }), "workers: must be at most 256; got 257.");
  EXPECT_EQ(refusal([&] { evaluate(net, kTest, {.workers = 257}); }), "workers: must be 0 to 256; got 257.");
}

TEST(FitOptions, TheDataOfARunIsReadByAsManyThreadsAsWorkersSay) {
  struct Watched final : data::Dataset {
    explicit Watched(int64_t most) : most(most) {}
    int64_t size() const override { return 24; }  // three batches
    std::vector<Tensor> get(int64_t i) const override {
      // Each of the first `most` calls waits until all of them are there: fewer threads would wait for ever.
      if (const int64_t here = ++began; here <= most)
        while (began < most) std::this_thread::yield();
      return kTrain.get(i);
    }
    const int64_t most;
    mutable std::atomic<int64_t> began{0};
  } watched(3);
  trained({.workers = 3, .allow_unused = true}, Net::Use::never, watched);
  EXPECT_EQ(watched.began, 24);
}

TEST(FitOptions, AParameterThatTheLossDoesNotDependOnIsRefusedByNameWithTheWaysOut) {
  for (const Engine engine : {Engine::eager, Engine::graph})
    EXPECT_EQ(refusal([&] { trained({.engine = engine}); }),
              "training step: the loss must depend on every parameter that is trained; it does not depend on "
              "spare.weight, spare.bias. Set `allow_unused` to leave such parameters as they are, freeze() "
              "them, or "
              "take them out of the model.");
  Net net;
  net.spare.freeze();
  EXPECT_EQ(fit(net, kTrain, {.batch = 8}).steps, 6);
}

TEST(FitOptions, UnusedParametersStayAsTheyAreWhateverElseAStepDoes) {
  const nn::NamedTensors before = untrained();
  const std::vector<FitOptions> ways = {
      {.optimizer = "adamw", .weight_decay = 0.1},     {.optimizer = "sgd", .weight_decay = 0.1},
      {.clip_value = 0.01, .clip_norm = 0.1},          {.accumulate = 4, .optimizer = "adamw"},
      {.accumulate = 2, .clip_norm = 0.1, .ema = 0.9}, {.autocast = DType::f16},
      {.accumulate = 2, .autocast = DType::f16}};
  for (size_t k = 0; k < ways.size(); ++k) {
    nn::NamedTensors of_engines[2];
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      FitOptions options = ways[k];
      options.engine = engine;
      options.epochs = 2;
      options.allow_unused = true;
      of_engines[static_cast<int>(engine)] = trained(options);
      // An average of equal numbers is rounded, that of a frozen parameter as well.
      EXPECT_TRUE(options.ema || are_same(of_engines[static_cast<int>(engine)], before, "spare")) << k;
      EXPECT_FALSE(are_same(of_engines[static_cast<int>(engine)], before, "first")) << k;
    }
    EXPECT_TRUE(are_same(of_engines[0], of_engines[1])) << k;
    // The rest is trained as if the unused ones were frozen.
    FitOptions options = ways[k];
    options.epochs = 2;
    options.batch = 8;
    manual_seed(5);
    Net net;
    net.spare.freeze();
    fit(net, kTrain, options);
    EXPECT_TRUE(are_same(net.state(), of_engines[0])) << k;
  }
}

TEST(FitOptions, AParameterThatSomeBatchesOfAStepUseIsTrainedByThese) {
  // 46 samples: five batches of 8 that use the layer, and one of 6 that does not.
  const nn::NamedTensors before = untrained();
  for (const int64_t accumulate : {1, 2, 5}) {
    nn::NamedTensors of_engines[2];
    for (const Engine engine : {Engine::eager, Engine::graph})
      of_engines[static_cast<int>(engine)] = trained({.engine = engine,
                                                      .epochs = 2,
                                                      .accumulate = accumulate,
                                                      .optimizer = "adamw",
                                                      .weight_decay = 0.1,
                                                      .clip_norm = 0.5,
                                                      .allow_unused = true},
                                                     Net::Use::full_batches);
    EXPECT_TRUE(are_same(of_engines[0], of_engines[1])) << accumulate;
    EXPECT_FALSE(are_same(of_engines[0], before, "spare")) << accumulate;
  }
  // The last step of an epoch is the batch of 6 alone: nothing of the layer changes in it, decay and state included.
  const auto after = [&](int64_t steps) {
    return trained(
        {.steps = steps, .accumulate = 5, .optimizer = "adamw", .weight_decay = 0.1, .allow_unused = true},
        Net::Use::full_batches);
  };
  const nn::NamedTensors one = after(1), two = after(2);
  EXPECT_TRUE(are_same(one, two, "spare"));
  EXPECT_FALSE(are_same(one, two, "first"));
}

TEST(FitOptions, ARunWithUnusedParametersResumesToTheBitAndOnlyWithThem) {
  const TempFolder folder;
  const auto run = [&](const std::string& out, int64_t steps, bool resume, bool allow) {
    return trained({.steps = steps,
                    .accumulate = 2,
                    .optimizer = "adamw",
                    .allow_unused = allow,
                    .out = out.empty() ? "" : folder / out,
                    .resume = resume},
                   Net::Use::full_batches);
  };
  run("halves", 2, false, true);
  EXPECT_HAS(
      refusal([&] { run("halves", 3, true, false); }),
      "the run was begun with allow-unused true; got allow-unused none. Give `allow_unused` as it was");
  EXPECT_TRUE(are_same(run("halves", 6, true, true), run("", 6, false, true)));
}

TEST(FitOptions, ALossThatNoParameterIsPartOfIsRefused) {
  Net net;
  const Tensor other = ones({}).set_requires_grad();
  EXPECT_HAS(refusal([&] {
               fit(net, kTrain,
                   {.loss = [&](const Tensor&, const Tensor&) { return other * 2; }, .allow_unused = true});
             }),
             "the loss must depend on at least one parameter that is trained");
}

TEST(FitOptions, AnExceptionOfTheProgramsDataNamesTheSampleAndKeepsItsTextAndKind) {
  const TempFolder folder;
  const Points broken(46, 17);
  for (const bool writes : {false, true})
    for (const int64_t workers : {0, 3}) {
      FitOptions options{.workers = workers, .allow_unused = true};
      if (writes) options.out = folder / std::to_string(workers);
      try {
        trained(options, Net::Use::never, broken);
        ADD_FAILURE() << "no exception";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "sample 17 of 46 samples: cannot decode");
        EXPECT_EQ(error.kind(), ErrorKind::foreign);
      }
    }
  Net net;
  EXPECT_EQ(message_of<Error>([&] { evaluate(net, broken); }), "sample 17 of 46 samples: cannot decode");
}

// --- An optimiser of the program's own at a resume

using Maker = std::function<std::unique_ptr<optim::Optimizer>(const nn::NamedTensors&)>;

template <class T, class Options>
Maker maker(const Options& options, const optim::Groups<Options>& groups = {}) {
  return [=](const nn::NamedTensors& parameters) { return std::make_unique<T>(parameters, options, groups); };
}

struct SignOptions {
  double lr = 0.01, weight_decay = 0;
  bool decoupled = false;
  double slowness = 0.5;
};
/// An optimiser with an option that Tandem has no name for.
class Sign final : public optim::OptimizerWith<SignOptions> {
 public:
  Sign(const nn::NamedTensors& parameters, const SignOptions& options,
       const optim::Groups<SignOptions>& groups)
      : OptimizerWith(parameters, options, groups) {}
  optim::OptionValues settings() const override {
    optim::OptionValues all = OptimizerWith::settings();
    for (size_t g = 0; g < groups(); ++g) all.emplace_back(name_in(g, "slowness"), options()[g].slowness);
    return all;
  }

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override {
    return value - sign(gradient) * lr_tensor(group_of(i)) * options(i).slowness;
  }
};

/// One epoch with the first optimiser, then a resume with the second.
std::string refused_at_resume(const Maker& first, const Maker& second,
                              const std::vector<CallbackPtr>& callbacks = {},
                              const std::vector<CallbackPtr>& other_callbacks = {}) {
  const TempFolder folder;
  const auto run = [&](const Maker& make, int64_t epochs, const std::vector<CallbackPtr>& with) {
    manual_seed(5);
    Net net;
    net.spare.freeze();
    const auto optimizer = make(net.named_parameters());
    fit(net, kTrain,
        {.epochs = epochs,
         .batch = 8,
         .own_optimizer = optimizer.get(),
         .callbacks = with,
         .out = folder / "run",
         .resume = epochs > 1});
  };
  run(first, 1, callbacks);
  EXPECT_EQ(message_of<Error>([&] { run(first, 2, callbacks); }), "") << "the same again";
  return message_of<Error>([&] { run(second, 3, other_callbacks); });
}

TEST(FitOptions, ARunWithAnOptimizerOfItsOwnIsResumedOnlyWithTheOptionsOfThat) {
  using optim::SgdOptions;
  const Maker sgd = maker<optim::Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  EXPECT_HAS(
      refused_at_resume(sgd, maker<optim::Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.5, .weight_decay = 0.01})),
      "the run was begun with optimizer.momentum 0.9; got optimizer.momentum 0.5. Give optimizer.momentum as "
      "it was, or begin a new run in another `out`.");
  EXPECT_HAS(refused_at_resume(sgd, maker<optim::Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9})),
             "the run was begun with optimizer.weight_decay 0.01; got optimizer.weight_decay 0.0.");
  EXPECT_HAS(
      refused_at_resume(sgd, maker<optim::Sgd>(SgdOptions{.lr = 0.2, .momentum = 0.9, .weight_decay = 0.01})),
      "the run was begun with lr 0.1; got lr 0.2.");
  EXPECT_HAS(
      refused_at_resume(maker<optim::AdamW>(optim::AdamWOptions{}), maker<optim::Lamb>(optim::LambOptions{})),
      "the run was begun with optimizer.type \"AdamW\"; got optimizer.type \"Lamb\".");
  const auto grouped = [](const char* names, double lr) {
    return maker<optim::Sgd>(SgdOptions{.lr = 0.1}, {{optim::named(names), SgdOptions{.lr = lr}}});
  };
  EXPECT_HAS(refused_at_resume(grouped("bias", 0.2), grouped("bias", 0.3)),
             "the run was begun with optimizer.lr.1 0.2; got optimizer.lr.1 0.3.");
  EXPECT_HAS(refused_at_resume(grouped("bias", 0.2), grouped("first.bias", 0.2)),
             "got optimizer.parameters.1 \"first.bias\".");
}

TEST(FitOptions, AnOptimizerClassOfTheProgramNamesItsOptionsItself) {
  EXPECT_HAS(refused_at_resume(maker<Sign>(SignOptions{}), maker<Sign>(SignOptions{.slowness = 0.25})),
             "the run was begun with optimizer.slowness 0.5; got optimizer.slowness 0.25.");
}

TEST(FitOptions, ARunIsResumedOnlyWithItsScheduleToTheLastDigit) {
  const Maker sgd = maker<optim::Sgd>(optim::SgdOptions{.lr = 0.1});
  const auto schedule = [](const ScheduleOptions& options) {
    return std::vector<CallbackPtr>{learning_rate(options)};
  };
  const ScheduleOptions before{.kind = "step", .every = 1, .factor = 0.5};
  ScheduleOptions after = before;
  after.factor = 0.50000001;
  EXPECT_HAS(
      refused_at_resume(sgd, sgd, schedule(before), schedule(after)),
      "the run was begun with schedule \"step by epoch, every 1, factor 0.5\"; got schedule \"step by epoch, "
      "every 1, factor 0.50000001\"");
  EXPECT_HAS(refused_at_resume(sgd, sgd, schedule(before), {}), "got schedule none.");
}

}  // namespace
}  // namespace tandem::testing
