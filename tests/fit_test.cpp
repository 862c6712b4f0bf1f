// fit(), evaluate() and predict() for models and data of your own; metrics, callbacks, and that every combination of
// optimiser, schedule, average, accumulation and callback resumes to the bit.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/data/labels.h"
#include "tandem/data/split.h"
#include "tandem/io/image.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/tensorboard.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/sgd.h"
#include "tandem/train/environment.h"
#include "tandem/train/plot.h"
#include "tandem/train/train.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Points of three classes that a line can almost tell apart, or a number to fit.
class Points final : public data::Dataset {
 public:
  Points(int64_t size, uint32_t salt, bool regression = false)
      : size_(size), salt_(salt), regression_(regression) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    data::check_index("get", i, size_);
    std::vector<float> x(4);
    float total = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      x[k] = static_cast<float>(hash_value(static_cast<uint32_t>(i) * 4 + k, salt_));
      total += static_cast<float>(k + 1) * x[k];
    }
    const Tensor input = from_vector(x, {4});
    if (regression_) return {input, from_vector<float>({total}, {1})};
    const int64_t cls = total < -1 ? 0 : total < 1 ? 1 : 2;
    return {input, from_vector<int64_t>({cls}, {})};
  }

 private:
  int64_t size_;
  uint32_t salt_;
  bool regression_;
};

struct Net : nn::Module {
  explicit Net(int64_t out = 3, double p = 0.25) : last(this, "last", 8, out), drop(this, "drop", p) {}
  nn::Linear first{this, "first", 4, 8};
  nn::Linear last;
  nn::Dropout drop;
  Tensor forward(const Tensor& x) override { return last(drop(relu(first(x)))); }
};

const Points kTrain(46, 1), kTest(30, 2);

/// A run of the small net: the same beginning each time.
FitResult run_small(FitOptions options, nn::NamedTensors* weights = nullptr) {
  manual_seed(5);
  Net net;
  if (options.batch == 100) options.batch = 8;
  if (!options.test) options.test = &kTest;
  const FitResult result = fit(net, kTrain, options);
  if (weights) *weights = net.state();
  return result;
}

void expect_same(const FitResult& a, const FitResult& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  EXPECT_EQ(a["train_loss"], b["train_loss"]) << what;
  EXPECT_EQ(a["test_loss"], b["test_loss"]) << what;
  EXPECT_EQ(a["test_accuracy"], b["test_accuracy"]) << what;
  EXPECT_EQ(a.steps, b.steps) << what;
  EXPECT_EQ(a.stopped, b.stopped) << what;
  ASSERT_EQ(a.history.size(), b.history.size()) << what;
  for (size_t i = 0; i < a.history.size(); ++i) {
    EXPECT_EQ(a.history[i]["train_loss"], b.history[i]["train_loss"]) << what << ", epoch " << i + 1;
    EXPECT_EQ(a.history[i]["test_loss"], b.history[i]["test_loss"]) << what << ", epoch " << i + 1;
    EXPECT_EQ(a.history[i].lr, b.history[i].lr) << what << ", epoch " << i + 1;
  }
}

TEST(Fit, AFewLinesTrainTestAndPredict) {
  manual_seed(3);
  Net net(3, 0);
  const Points train_set(300, 1), test_set(100, 2);
  const FitResult result =
      fit(net, train_set, {.test = &test_set, .epochs = 20, .batch = 25, .optimizer = "adam", .lr = 0.02});
  ASSERT_EQ(result.history.size(), 20u);
  EXPECT_GT(result["test_accuracy"], 0.85);
  EXPECT_LT(result.history.back()["train_loss"], result.history.front()["train_loss"] / 2);
  EXPECT_EQ(result.steps, 20 * 12);
  EXPECT_EQ(result.out, "");

  const Metrics metrics = evaluate(net, test_set);
  EXPECT_EQ(metrics["loss"], result["test_loss"]);
  EXPECT_EQ(metrics["accuracy"], result["test_accuracy"]);
  const Tensor logits = predict(net, test_set, {.engine = Engine::eager, .batch = 7});
  EXPECT_EQ(logits.shape(), (Dims{100, 3}));
  EXPECT_TRUE(same_bits(logits, predict(net, test_set)));
  int64_t right = 0;
  const std::vector<int64_t> guesses = argmax(logits, 1).to_vector<int64_t>();
  for (int64_t i = 0; i < 100; ++i)
    right += guesses[static_cast<size_t>(i)] == test_set.get(i)[1].item<int64_t>();
  EXPECT_EQ(static_cast<double>(right) / 100, metrics["accuracy"]);
  EXPECT_TRUE(net.training());
}

TEST(Fit, ALossOfYourOwnFitsNumbers) {
  const auto squared_error = [](const Tensor& out, const Tensor& y) { return mse_loss(out, y); };
  const Points train_set(200, 1, true), test_set(50, 2, true);
  manual_seed(3);
  Net net(1, 0);
  const FitResult result = fit(net, train_set,
                               {.test = &test_set,
                                .epochs = 15,
                                .batch = 20,
                                .optimizer = "adam",
                                .lr = 0.02,
                                .loss = squared_error,
                                .callbacks = {early_stopping({.monitor = "train_loss"})}});
  EXPECT_LT(result["test_loss"], 0.3);
  EXPECT_TRUE(std::isnan(result["test_accuracy"]));
  const Metrics metrics = evaluate(net, test_set, {.loss = squared_error});
  EXPECT_EQ(metrics["loss"], result["test_loss"]);
  EXPECT_EQ(metrics.confusion.classes(), 0);
  EXPECT_EQ(error_of([&] {
              fit(net, train_set, {.loss = [](const Tensor& out, const Tensor& y) { return out - y; }});
            }),
            "loss: must be one number, 0-d, of a floating type; got f32 (100, 1). Take its mean().");
}

TEST(Fit, IsTheLoopOfTheCommand) {
  const TempFolder folder;
  TrainConfig config;
  config.model = "mlp";
  config.data = "digits";
  config.limit = 60;
  config.batch = 20;
  config.out = folder / "run";
  const DoneEvent named = train(config);
  manual_seed(0);
  const auto model = zoo::make_model("mlp");
  const data::Splits digits = data::open_dataset("digits");
  const auto drawn = [](const data::DatasetPtr& set) {
    return data::subset(set, data::draw_indices(data::class_labels(*set), 60, 0));
  };
  const auto some = drawn(digits.train), others = drawn(digits.test);
  const FitResult own = fit(*model, *some, {.test = others.get(), .batch = 20});
  expect_same(named, own, "fit and train");
}

TEST(Fit, WithoutAValidationSetItTrainsAndSaysWhatCannotBeMonitored) {
  manual_seed(1);
  Net net;
  const FitResult result = fit(net, kTrain, {.epochs = 2});
  EXPECT_TRUE(std::isnan(result["test_loss"]));
  EXPECT_GT(result["train_loss"], 0);
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.callbacks = {early_stopping({.monitor = "test_loss"})}}); }),
            "monitor: must be one of train_loss; got 'test_loss'.");
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.callbacks = {csv_log()}}); }),
            "csv: a run without a folder has no place for it. Give the callback a path, or the run an out.");
  EXPECT_EQ(error_of([&] {
              fit(net, kTrain, {.callbacks = {early_stopping(), early_stopping()}});
            }),
            "callbacks: each must have a name of its own; got two of 'early-stop'.");
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.resume = true}); }),
            "fit: resume needs the run's folder. Give it as out.");
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.accumulate = 0}); }), "accumulate: must be at least 1; got 0.");
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.ema = 1.0}); }),
            "ema: must be at least 0 and below 1; got 1. Try 0.999.");
  EXPECT_EQ(error_of([&] { fit(net, kTrain, {.clip_norm = 0.0}); }),
            "clip-norm: must be a number above 0; got 0.");
}

TEST(Fit, AnOptimizerOfYourOwnIsUsed) {
  manual_seed(5);
  Net net;
  optim::Sgd sgd(net.named_parameters(), {.lr = 0.02, .momentum = 0.9});
  const FitResult own = fit(net, kTrain, {.test = &kTest, .batch = 8, .own_optimizer = &sgd});
  expect_same(own, run_small({.lr = 0.02}), "own sgd");
}

TEST(Fit, AccumulationIsOneLargeBatchAndTheSameInBothEngines) {
  // 46 samples: six batches of 8, the last of 6. In fours: steps of 32 and of 14 samples.
  const FitOptions pieces{.epochs = 3, .batch = 8, .accumulate = 4};
  FitOptions eager = pieces;
  eager.engine = Engine::eager;
  const FitResult graph = run_small(pieces);
  EXPECT_EQ(graph.steps, 6);
  expect_same(graph, run_small(eager), "eager");
  // Without dropout, one batch of 32 makes the same step, up to rounding.
  const auto weights = [](const FitOptions& options) {
    manual_seed(5);
    Net net(3, 0);
    fit(net, kTrain, options);
    return to_array(net.first.weight);
  };
  EXPECT_TRUE(
      near(weights({.epochs = 3, .batch = 8, .accumulate = 4}), weights({.epochs = 3, .batch = 32}), 1e-6));
  EXPECT_FALSE(near(weights({.epochs = 3, .batch = 8}), weights({.epochs = 3, .batch = 32}), 1e-3));
}

TEST(Fit, TheAverageIsTestedAndKept) {
  nn::NamedTensors plain, averaged;
  const FitOptions options{.epochs = 3, .ema = 0.8};
  const FitResult result = run_small(options, &averaged);
  run_small({.epochs = 3}, &plain);
  EXPECT_FALSE(near(to_array(plain[0].second), to_array(averaged[0].second), 1e-4));
  Net net;
  net.load_state(averaged, "load");
  EXPECT_EQ(evaluate(net, kTest)["loss"], result["test_loss"]);
  FitOptions eager = options;
  eager.engine = Engine::eager;
  expect_same(result, run_small(eager), "eager");
}

// ---- metrics

TEST(Metrics, MatchPlainReferences) {
  const int64_t classes = 5, n = 300;
  ConfusionMatrix matrix(classes);
  std::vector<int64_t> actual, predicted;
  for (uint32_t i = 0; i < n; ++i) {
    actual.push_back(static_cast<int64_t>(hash_value(i, 1, 0, 4)));     // class 4 is never there
    predicted.push_back(static_cast<int64_t>(hash_value(i, 2, 1, 5)));  // class 0 is never predicted
    matrix.add(actual.back(), predicted.back());
  }
  double precision = 0, recall = 0, f1 = 0, right = 0;
  for (int64_t c = 0; c < classes; ++c) {
    double hit = 0, said = 0, there = 0;
    for (size_t i = 0; i < n; ++i) {
      hit += actual[i] == c && predicted[i] == c;
      said += predicted[i] == c;
      there += actual[i] == c;
    }
    right += hit;
    const double p = said == 0 ? 0 : hit / said, r = there == 0 ? 0 : hit / there;
    const double f = p + r == 0 ? 0 : 2 * p * r / (p + r);
    const ClassScores got = matrix.scores(c);
    EXPECT_NEAR(got.precision, p, 1e-15);
    EXPECT_NEAR(got.recall, r, 1e-15);
    EXPECT_NEAR(got.f1, f, 1e-15);
    EXPECT_EQ(static_cast<double>(got.support), there);
    precision += p / classes, recall += r / classes, f1 += f / classes;
  }
  EXPECT_NEAR(matrix.macro().precision, precision, 1e-15);
  EXPECT_NEAR(matrix.macro().recall, recall, 1e-15);
  EXPECT_NEAR(matrix.macro().f1, f1, 1e-15);
  EXPECT_NEAR(matrix.micro().f1, right / n, 1e-15);
  EXPECT_NEAR(matrix.accuracy(), right / n, 1e-15);
  EXPECT_EQ(matrix.samples(), n);
  EXPECT_EQ(error_of([&] { matrix.add(5, 0); }), "metrics: a class must be 0 to 4; got 5 predicted as 0.");
}

TEST(Metrics, AClassThatOccursNowhereHasNoPartInTheMean) {
  ConfusionMatrix matrix(4);  // no sample is of class 3 or was taken for it; class 2 was only predicted
  matrix.add(0, 0, 8);
  matrix.add(0, 2, 2);
  matrix.add(1, 1, 5);
  EXPECT_NEAR(matrix.macro().precision, (1.0 + 1 + 0) / 3, 1e-15);
  EXPECT_NEAR(matrix.macro().recall, (0.8 + 1 + 0) / 3, 1e-15);
  EXPECT_NEAR(matrix.macro().f1, (16.0 / 18 + 1 + 0) / 3, 1e-15);
  EXPECT_EQ(matrix.macro().support, 15);
  EXPECT_EQ(ConfusionMatrix(3).macro().f1, 0);
}

/// Gives each sample's input back: the logits are the data.
struct Echo : nn::Module {
  const Tensor one = parameter("one", from_vector<float>({1}, {1}));
  Tensor forward(const Tensor& x) override { return x * one; }
};

class Logits final : public data::Dataset {
 public:
  int64_t size() const override { return 57; }
  std::vector<Tensor> get(int64_t i) const override {
    std::vector<float> row;
    for (uint32_t c = 0; c < 7; ++c)  // few values: many ties
      row.push_back(static_cast<float>(std::floor(hash_value(static_cast<uint32_t>(i) * 7 + c, 9, 0, 4))));
    return {from_vector(row, {7}),
            from_vector<int64_t>({static_cast<int64_t>(hash_value(static_cast<uint32_t>(i), 8, 0, 7))}, {})};
  }
};

TEST(Metrics, TopKCountsTiesInTheOrderOfClassesAndTheLossIsTheMean) {
  Echo echo;
  const Logits set;
  for (const Engine engine : {Engine::eager, Engine::graph})
    for (const int64_t k : {1, 3, 7}) {
      double among = 0, loss = 0;
      for (int64_t i = 0; i < set.size(); ++i) {
        const std::vector<float> row = set.get(i)[0].to_vector<float>();
        const auto y = set.get(i)[1].item<int64_t>();
        int64_t ahead = 0;
        double total = 0;
        for (int64_t c = 0; c < 7; ++c) {
          const float mine = row[static_cast<size_t>(y)], other = row[static_cast<size_t>(c)];
          ahead += other > mine || (other == mine && c < y);
          total += std::exp(static_cast<double>(other));
        }
        among += ahead < k;
        loss += std::log(total) - row[static_cast<size_t>(y)];
      }
      const Metrics got = evaluate(
          echo, set, {.task = make_task("classification", {.top_k = k}), .engine = engine, .batch = 10});
      if (k < 7) {
        EXPECT_NEAR(got["top_" + std::to_string(k)], among / 57, 1e-15) << k;
      }
      EXPECT_NEAR(got["loss"], loss / 57, 1e-5);
      EXPECT_NEAR(got["perplexity"], std::exp(loss / 57), 1e-4);
      EXPECT_TRUE(k != 1 || got["top_1"] == got["accuracy"]);
      EXPECT_TRUE(k != 7 || std::isnan(got["top_7"])) << "of 7 classes it says nothing";
    }
}

// ---- callbacks

/// Notes what it sees.
class Recorder final : public Callback {
 public:
  std::string name() const override { return "recorder"; }
  void on_start(Training& t) override { rates.push_back(t.optimizer().lr()); }
  void on_step(Training& t) override {
    rates.push_back(t.optimizer().lr());
    if (t.state().step == stop_at) t.stop("enough");
  }
  void on_epoch(Training& t) override {
    ++epochs;
    rates.back() = t.optimizer().lr();
  }
  void on_checkpoint(Training&, const std::string& path) override { paths.push_back(path); }
  void on_end(Training&) override { ++ends; }

  std::vector<double> rates;  // of step 0, 1 …
  std::vector<std::string> paths;
  int epochs = 0, ends = 0;
  int64_t stop_at = -1;
};

TEST(Callbacks, SchedulesHaveTheRatesOfTheirFunctions) {
  using namespace optim;
  const double lr = 0.04;
  struct Case {
    ScheduleOptions options;
    std::function<double(int64_t step)> want;  // six steps per epoch, three epochs
  };
  const std::vector<Case> cases = {
      {{.kind = "constant", .warm_up = 4}, [&](int64_t s) { return warm_up(lr, s, 4, 0.01); }},
      {{.kind = "step", .every = 2, .factor = 0.5}, [&](int64_t s) { return step_decay(lr, s / 6, 2, 0.5); }},
      {{.kind = "step", .by_epoch = false, .every = 5}, [&](int64_t s) { return step_decay(lr, s, 5); }},
      {{.kind = "exponential"}, [&](int64_t s) { return exponential_decay(lr, s / 6, 0.95); }},
      {{.kind = "cosine", .least = 0.001}, [&](int64_t s) { return cosine(lr, s, 18, 0.001); }},
      {{.kind = "cosine", .total = 10}, [&](int64_t s) { return cosine(lr, std::min<int64_t>(s, 10), 10); }},
      {{.kind = "cosine", .by_epoch = true, .warm_up = 3},
       [&](int64_t s) { return warm_up(cosine(lr, s / 6, 3), s, 3, 0.01); }},
      {{.kind = "one-cycle"}, [&](int64_t s) { return one_cycle(lr, std::min<int64_t>(s, 17), 18); }},
  };
  for (const Case& c : cases) {
    const auto recorder = std::make_shared<Recorder>();
    run_small({.epochs = 3, .lr = lr, .callbacks = {learning_rate(c.options), recorder}});
    ASSERT_EQ(recorder->rates.size(), 19u);
    for (int64_t s = 0; s < 19; ++s)
      EXPECT_EQ(recorder->rates[static_cast<size_t>(s)], c.want(s)) << c.options.kind << ", step " << s;
    EXPECT_EQ(recorder->epochs, 3);
    EXPECT_EQ(recorder->ends, 1);
  }
  EXPECT_EQ(error_of([] { learning_rate({.kind = "cosin"}); }),
            "schedule: must be constant, step, exponential, cosine, one-cycle or plateau; got 'cosin'.");
}

TEST(Callbacks, ThePlateauCutsTheRateWhereTheMonitorStays) {
  const auto recorder = std::make_shared<Recorder>();
  const FitResult result = run_small(
      {.epochs = 5,
       .lr = 1e-9,
       .callbacks = {
           learning_rate({.kind = "plateau", .factor = 0.5, .monitor = "test_accuracy", .patience = 1}),
           recorder}});
  EXPECT_EQ(result.history[0].lr, 1e-9);  // a cut so small is not made: PyTorch's epsilon
  const FitResult cut =
      run_small({.epochs = 5,
                 .lr = 1e-4,
                 .callbacks = {learning_rate(
                     {.kind = "plateau", .factor = 0.5, .monitor = "test_accuracy", .patience = 1})}});
  EXPECT_EQ(cut.history[2].lr, 1e-4);
  EXPECT_EQ(cut.history[3].lr, 0.5e-4);
}

TEST(Callbacks, EarlyStoppingStopsRestoresTheBestAndStaysStopped) {
  const TempFolder folder;
  FitOptions options{.epochs = 30,
                     .lr = 0.5,
                     .callbacks = {early_stopping({.patience = 1, .restore_best = true}), best_weights()},
                     .out = folder / "run"};
  nn::NamedTensors weights;
  const FitResult result = run_small(options, &weights);
  ASSERT_LT(result.history.size(), 30u);
  EXPECT_NE(result.stopped.find("stopped early: test_loss has not been better than the "), std::string::npos)
      << result.stopped;
  double best = INFINITY;
  size_t at = 0;
  for (size_t i = 0; i < result.history.size(); ++i)
    if (result.history[i]["test_loss"] < best) best = result.history[i]["test_loss"], at = i;
  EXPECT_EQ(at + 1 + 2, result.history.size());
  EXPECT_EQ(result["test_loss"], best);
  const auto kept = io::load_safetensors(folder / "run/best.safetensors").tensors;
  EXPECT_EQ(io::weights_sha256(kept), result.weights_sha256);
  options.resume = true;
  const FitResult again = run_small(options);
  EXPECT_EQ(again.weights_sha256, result.weights_sha256);
  EXPECT_EQ(again.history.size(), result.history.size());
  options.callbacks = {early_stopping({.patience = 9, .restore_best = true})};
  const std::string refusal = error_of([&] { run_small(options); });
  EXPECT_NE(refusal.find("the run was begun with early-stop \"1 epochs of test_loss"), std::string::npos)
      << refusal;
}

TEST(Callbacks, ACallbackAndATimeBudgetMayEndTheRunAndItGoesOn) {
  const TempFolder folder;
  FitOptions options{.epochs = 3, .out = folder / "whole"};
  const FitResult whole = run_small(options);
  const auto recorder = std::make_shared<Recorder>();
  recorder->stop_at = 8;
  options.out = folder / "parts";
  options.callbacks = {recorder};
  const FitResult first = run_small(options);
  EXPECT_EQ(first.steps, 8);
  EXPECT_EQ(first.stopped, "enough");
  EXPECT_EQ(recorder->paths.size(), 2u);  // of the first epoch and of the end
  options.resume = true;
  options.callbacks = {time_budget(1e-9)};
  const FitResult second = run_small(options);
  EXPECT_EQ(second.steps, 9);
  EXPECT_NE(second.stopped.find("the time budget, at step 9."), std::string::npos) << second.stopped;
  options.callbacks.clear();
  expect_same(whole, run_small(options), "in parts");
  EXPECT_EQ(error_of([] { time_budget(0); }), "time-budget: must be above 0 seconds; got 0.");
}

TEST(Callbacks, TheStopFlagSavesACheckpointAndTheRunGoesOn) {
  const TempFolder folder;
  FitOptions options{.epochs = 3, .accumulate = 2, .out = folder / "whole"};
  const FitResult whole = run_small(options);
  std::atomic<bool> stop{true};
  options.out = folder / "parts";
  options.stop = &stop;
  EXPECT_TRUE(run_small(options).interrupted);  // before the first step: nothing is saved
  EXPECT_TRUE(list_checkpoints(options.out).empty());
  int64_t calls = 0;
  class Stopper final : public Callback {
   public:
    Stopper(std::atomic<bool>& flag, int64_t& calls) : flag_(flag), calls_(calls) {}
    std::string name() const override { return "stopper"; }
    void on_step(Training&) override { flag_ = ++calls_ == 4; }

   private:
    std::atomic<bool>& flag_;
    int64_t& calls_;
  };
  stop = false;
  std::vector<InterruptedEvent> events;
  options.callbacks = {std::make_shared<Stopper>(stop, calls),
                       listen([&](const InterruptedEvent& e) { events.push_back(e); })};
  const FitResult part = run_small(options);
  EXPECT_TRUE(part.interrupted);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].step, 4);
  options.resume = true;
  options.stop = nullptr;
  expect_same(whole, run_small(options), "after a stop");
}

/// Raises a flag when a sample from the eleventh on is read, once armed.
class Stopping final : public data::Dataset {
 public:
  Stopping(const Points& points, std::atomic<bool>& stop) : points_(points), stop_(stop) {}
  int64_t size() const override { return points_.size(); }
  std::vector<Tensor> get(int64_t i) const override {
    if (armed && i >= 10) stop_ = true;
    return points_.get(i);
  }
  std::atomic<bool> armed{false};

 private:
  const Points& points_;
  std::atomic<bool>& stop_;
};

/// Arms one after so many steps, or (at step 0) at the run's end.
class Arming final : public Callback {
 public:
  Arming(int64_t step, Stopping& set) : step_(step), set_(set) {}
  void on_start(Training& training) override { set_.armed = step_ > 0 && training.state().step == step_; }
  void on_step(Training& training) override { set_.armed = training.state().step == step_; }
  void on_end(Training&) override { set_.armed = step_ == 0; }

 private:
  const int64_t step_;
  Stopping& set_;
};

TEST(Callbacks, TheStopFlagIsHeededWithinATestWhichTheResumedRunDoesAgain) {
  struct Case {
    const char* name;
    int64_t step;  // after which the test is stopped; 0: after the last
    std::optional<int64_t> steps;
    bool has_validation;
  };
  const TempFolder folder;
  const Points valid(20, 3);
  for (const Case& c : {Case{"of an epoch", 6, {}, false}, Case{"of the last epoch", 18, {}, false},
                        Case{"within an epoch", 8, 8, false}, Case{"of validation", 12, {}, true},
                        Case{"at the end", 0, {}, true}}) {
    SCOPED_TRACE(c.name);
    FitOptions options{.validation = c.has_validation ? &valid : nullptr,
                       .epochs = 3,
                       .steps = c.steps,
                       .momentum = 0.9,
                       .ema = 0.9,
                       .out = folder / c.name};
    const auto usual = [] {
      return std::vector<CallbackPtr>{early_stopping({.patience = 9, .restore_best = true}), csv_log()};
    };
    options.callbacks = usual();
    const FitResult whole = run_small(options);
    options.out += " in parts";
    std::atomic<bool> stop{false};
    Stopping stopping(c.has_validation && c.step > 0 ? valid : kTest, stop);
    (c.has_validation && c.step > 0 ? options.validation : options.test) = &stopping;
    options.stop = &stop;
    // The second time within the resumed run's test.
    for (const bool again : {false, true}) {
      options.resume = again;
      options.callbacks = usual();
      options.callbacks.push_back(std::make_shared<Arming>(c.step, stopping));
      stopping.armed = false;
      stop = false;
      const FitResult part = run_small(options);
      ASSERT_TRUE(part.interrupted) << again;
      const int64_t step = c.step > 0 ? c.step : 18;
      EXPECT_EQ(part.steps, step) << again;
      EXPECT_EQ(load_checkpoint(list_checkpoints(options.out).at(0)).state.step, step) << again;
      EXPECT_FALSE(std::filesystem::exists(options.out + "/model.safetensors")) << again;
    }
    stopping.armed = false;
    stop = false;
    options.callbacks = usual();
    const FitResult done = run_small(options);
    EXPECT_EQ(done.weights_sha256, whole.weights_sha256);
    EXPECT_EQ(done.steps, whole.steps);
    const auto figures = [](const FitResult& result) {
      std::vector<std::pair<std::string, double>> all;
      const auto add = [&](const std::vector<Metric>& values) {
        for (const Metric& metric : values) all.emplace_back(metric.name, metric.value);
      };
      for (const EpochMetrics& row : result.history) {
        all.emplace_back("lr", row.lr);
        add(row.values);
      }
      add(result.values);
      return all;
    };
    EXPECT_EQ(figures(done), figures(whole));
    const auto lines = [](const std::string& run) {
      const std::string text = read_text(run + "/metrics.csv");
      return std::count(text.begin(), text.end(), '\n');
    };
    EXPECT_EQ(lines(options.out), lines(folder / c.name));
  }
}

TEST(Callbacks, ListenersHearTheEventsThatTheyTakeInTheOrderOfTheRun) {
  const TempFolder folder;
  struct Several {
    std::vector<std::string>* heard;
    void operator()(const StartEvent& e) const { heard->push_back(str("start ", e.steps)); }
    void operator()(const EpochEvent& e) const { heard->push_back(str("epoch ", e.epoch)); }
    void operator()(const CheckpointEvent& e) const { heard->push_back(str("checkpoint ", e.step)); }
    void operator()(const DoneEvent& e) const { heard->push_back(str("done ", e.steps)); }
  };
  std::vector<std::string> heard;
  std::vector<int64_t> epochs;
  size_t all = 0;
  run_small(
      {.epochs = 2,
       .callbacks = {listen(Several{&heard}), listen([&](const EpochEvent& e) { epochs.push_back(e.epoch); }),
                     listen([&](const TrainEvent&) { ++all; })},
       .out = folder / "run"});
  EXPECT_EQ(heard, (std::vector<std::string>{"start 12", "epoch 1", "checkpoint 6", "epoch 2",
                                             "checkpoint 12", "done 12"}));
  EXPECT_EQ(epochs, (std::vector<int64_t>{1, 2}));
  EXPECT_GE(all, heard.size());
}

TEST(Callbacks, LogsHaveEachEpochOnceAfterAStopBetweenLogAndCheckpoint) {
  const TempFolder folder;
  FitOptions options{.epochs = 4, .callbacks = {csv_log(), jsonl_log(), plots()}, .out = folder / "whole"};
  run_small(options);
  options.out = folder / "parts";
  options.steps = 12;  // two epochs
  run_small(options);
  // As if the process had been killed after logging the second epoch and before its checkpoint.
  const std::vector<std::string> paths = list_checkpoints(options.out);
  std::filesystem::remove(paths[0]);
  options.steps.reset();
  options.resume = true;
  run_small(options);
  const auto without_seconds = [&](const std::string& run) {
    std::istringstream in(read_text(folder / (run + "/metrics.csv")));
    std::vector<std::string> rows;
    for (std::string line; std::getline(in, line);) rows.push_back(line.substr(0, line.rfind(',')));
    return rows;
  };
  EXPECT_EQ(without_seconds("parts"), without_seconds("whole"));
  EXPECT_EQ(without_seconds("parts").size(), 5u);
  std::istringstream in(read_text(folder / "parts/metrics.jsonl"));
  int64_t epoch = 0;
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row["epoch"], ++epoch);
    EXPECT_EQ(row["step"], 6 * epoch);
  }
  EXPECT_EQ(epoch, 4);
  for (const char* file : {"loss.svg", "accuracy.svg", "config.json", "environment.json"})
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("parts/") + file))) << file;
  const auto environment = nlohmann::json::parse(read_text(folder / "parts/environment.json"));
  for (const char* key : {"tandem", "compiler", "processor", "cores", "libraries", "devices"})
    EXPECT_TRUE(environment.contains(key)) << key;
}

/// Every optimiser with every schedule; average, accumulation, engine, clipping and callbacks go round with them.
TEST(Resume, EveryOptimizerScheduleAverageAccumulationAndCallbackEndsWithTheSameBits) {
  const char* schedules[] = {"constant", "step", "exponential", "cosine", "one-cycle", "plateau"};
  // Where it can, in memory: hundreds of files are synced.
  const TempFolder folder(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "");
  int n = 0;
  for (const optim::OptimizerInfo& info : optim::optimizers())
    for (const char* schedule : schedules) {
      ++n;
      const std::string what = info.name + " " + schedule;
      const auto options = [&](const std::string& out) {
        FitOptions o{
            .engine = n % 2 ? Engine::graph : Engine::eager,
            .epochs = 3,
            .accumulate = n % 3 == 0 ? 2 : 1,
            .optimizer = info.name,
            .weight_decay = n % 5 == 0 ? std::optional<double>(0.1) : std::nullopt,
            .no_decay = n % 10 == 0 ? std::vector<std::string>{"*.bias"} : std::vector<std::string>{},
            .clip_norm = n % 4 == 0 ? std::optional<double>(0.5) : std::nullopt,
            .ema = n % 2 == 0 || n % 7 == 0 ? std::optional<double>(0.9) : std::nullopt,
            .ema_warm_up = n % 4 == 0,
            .out = out.empty() ? "" : folder / out};
        o.callbacks = {learning_rate({.kind = schedule,
                                      .by_epoch = n % 5 == 1 ? std::optional<bool>(false) : std::nullopt,
                                      .warm_up = n % 3,
                                      .every = 1,
                                      .monitor = "train_loss",
                                      .patience = 0})};
        if (n % 2) o.callbacks.push_back(early_stopping({.patience = 0, .restore_best = n % 4 == 1}));
        if (n % 3 == 1) o.callbacks.push_back(best_weights({.path = folder / "best.safetensors"}));
        return o;
      };
      const std::string id = std::to_string(n);
      const FitResult whole = run_small(options(""));
      FitOptions parts = options("parts" + id);
      const int64_t spe = parts.accumulate == 2 ? 3 : 6;
      parts.steps = n % 2 ? spe + 1 : spe - 1;  // within an epoch
      run_small(parts);
      parts.resume = true;
      parts.callbacks = options("").callbacks;  // of a new process
      parts.steps.reset();
      parts.engine = n % 2 ? Engine::eager : Engine::graph;  // the other one
      expect_same(whole, run_small(parts), what);
      std::filesystem::remove_all(folder / ("parts" + id));
    }
}

// ---- plots and TensorBoard

TEST(Plot, LinesLieInTheFrameAndTextIsEscaped) {
  const std::string svg = line_chart({.title = "a < b & c",
                                      .x_label = "epoch",
                                      .series = {{"one", {1, 2, 3}, {0.5, 0.25, 2}}, {"two", {}, {}}}});
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find(">2</text>"), std::string::npos);
  EXPECT_NE(svg.find("y=\"374.0\" text-anchor=\"middle\">2<"), std::string::npos);
  EXPECT_EQ(svg.find("y=\"374.0\" text-anchor=\"middle\">1.5<"), std::string::npos);  // no half epochs
  const size_t at = svg.find("points=\"") + 8;
  std::istringstream in(svg.substr(at, svg.find('"', at) - at));
  int points = 0;
  for (std::string point; in >> point; ++points) {
    const double x = std::stod(point), y = std::stod(point.substr(point.find(',') + 1));
    EXPECT_TRUE(x >= 0 && x <= 640 && y >= 0 && y <= 400) << point;
  }
  EXPECT_EQ(points, 3);
  EXPECT_NO_THROW(line_chart({.series = {{"flat", {1}, {0}}}}));
  EXPECT_LT(line_chart({.series = {{"almost flat", {1, 2}, {1, 1 + 3e-16}}}}).size(), 10000u);
  EXPECT_LT(line_chart({.series = {{"almost zero", {1, 2}, {0, 5e-324}}}}).size(), 10000u);
  EXPECT_NO_THROW(line_chart({}));
  EXPECT_EQ(error_of([] {
              line_chart({.series = {{"x", {1}, {}}}});
            }),
            "plot: a line must have as many x as y; got 1 and 0.");
  EXPECT_EQ(error_of([] {
              line_chart({.series = {{"x", {1, 2}, {1, NAN}}}});
            }),
            "plot: numbers must be finite; got nan in 'x'. Leave it out.");
}

TEST(Plot, AMapShowsItsHighNumbersAndRefusesWhatIsNone) {
  std::vector<double> values(300 * 200);
  for (size_t i = 0; i < 200; ++i) values[i * 300 + i] = 1;
  const std::string svg = heat_map({.title = "a < b", .columns = 300, .rows = 200, .values = values});
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  size_t shapes = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) ++shapes;
  EXPECT_EQ(shapes, 120u);  // a cell of each row that is shown, and none of zeros
  const auto refused = [](int64_t columns, int64_t rows, std::vector<double> numbers) {
    return error_of([&] { heat_map({.columns = columns, .rows = rows, .values = numbers}); });
  };
  EXPECT_NE(refused(2, 2, {0, 1, 0}).find("got 3 for 2 and 2"), std::string::npos);
  EXPECT_NE(refused(INT64_MAX, 4, {0}).find("rows times columns"), std::string::npos);
  EXPECT_NE(refused(0, 0, {}).find("rows times columns"), std::string::npos);
  EXPECT_NE(refused(1, 1, {NAN}).find("numbers from 0 to 1; got nan"), std::string::npos);
}

/// A reader of its own: the records of an event file, checked, and protobuf fields by number.
struct Fields {
  std::multimap<int, std::string> bytes;  // length-delimited
  std::map<int, uint64_t> numbers;
};

Fields parse_message(const std::string& in) {
  Fields fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(in.at(at++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < in.size()) {
    const uint64_t key = varint();
    const int field = static_cast<int>(key >> 3);
    if ((key & 7) == 0) {
      fields.numbers[field] = varint();
    } else if ((key & 7) == 2) {
      const uint64_t size = varint();
      fields.bytes.emplace(field, in.substr(at, size));
      at += size;
    } else {
      uint64_t value = 0;
      const size_t size = (key & 7) == 1 ? 8 : 4;
      std::memcpy(&value, in.substr(at, size).data(), size);
      fields.numbers[field] = value;
      at += size;
    }
  }
  EXPECT_EQ(at, in.size());
  return fields;
}

std::vector<Fields> read_events(const std::string& path) {
  const std::string file = read_text(path);
  std::vector<Fields> events;
  size_t at = 0;
  const auto number = [&](size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, file.substr(at, bytes).data(), bytes);
    at += bytes;
    return value;
  };
  while (at < file.size()) {
    const std::string length_bytes = file.substr(at, 8);
    const uint64_t length = number(8);
    EXPECT_EQ(number(4), io::masked_crc32c(length_bytes));
    const std::string content = file.substr(at, length);
    at += length;
    EXPECT_EQ(number(4), io::masked_crc32c(content));
    events.push_back(parse_message(content));
  }
  EXPECT_EQ(at, file.size());
  return events;
}

TEST(TensorBoard, TheSumIsCrc32cMasked) {
  EXPECT_EQ(io::crc32c("123456789"), 0xe3069283u);  // the check value of CRC-32C
  EXPECT_EQ(io::crc32c(""), 0u);
  EXPECT_EQ(io::crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
}

TEST(TensorBoard, AReaderOfItsOwnFindsScalarsHistogramsAndImages) {
  const TempFolder folder;
  io::TensorBoardWriter writer(folder / "events");
  writer.scalar("loss", 0.625, 3);
  writer.histogram("weights", {0, 1, 2, 3, 3, NAN, 6}, 4);
  const Tensor image = from_vector<uint8_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 2, 2});
  writer.image("picture", image, 5);
  writer.restart(7);
  writer.flush();
  const std::vector<Fields> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].bytes.find(3)->second, "brain.Event:2");
  const auto value_of = [](const Fields& event) {
    return parse_message(parse_message(event.bytes.find(5)->second).bytes.find(1)->second);
  };
  const Fields scalar = value_of(events[1]);
  EXPECT_EQ(events[1].numbers.at(2), 3u);
  EXPECT_EQ(scalar.bytes.find(1)->second, "loss");
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(scalar.numbers.at(2))), 0.625f);

  const Fields histo = parse_message(value_of(events[2]).bytes.find(5)->second);
  const auto real = [&](int field) { return std::bit_cast<double>(histo.numbers.at(field)); };
  EXPECT_EQ(real(1), 0);
  EXPECT_EQ(real(2), 6);
  EXPECT_EQ(real(3), 6);
  EXPECT_EQ(real(4), 15);
  EXPECT_EQ(real(5), 59);
  const auto packed = [&](int field) {
    const std::string bytes = histo.bytes.find(field)->second;
    std::vector<double> values(bytes.size() / 8);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::vector<double> limits = packed(6), bars = packed(7);
  ASSERT_EQ(limits.size(), 30u);
  ASSERT_EQ(bars.size(), 30u);
  EXPECT_EQ(limits.back(), 6);
  double total = 0;
  for (const double bar : bars) total += bar;
  EXPECT_EQ(total, 6);
  EXPECT_EQ(bars[15], 2);  // the two threes

  const Fields picture = parse_message(value_of(events[3]).bytes.find(4)->second);
  EXPECT_EQ(picture.numbers.at(1), 2u);
  EXPECT_EQ(picture.numbers.at(2), 2u);
  EXPECT_EQ(picture.numbers.at(3), 3u);
  const std::string png = picture.bytes.find(4)->second;
  EXPECT_EQ(png.substr(0, 8), std::string("\x89PNG\r\n\x1a\n"));
  if (io::has_png()) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(png.data());
    EXPECT_EQ(io::decode_image({bytes, png.size()}).to_vector<uint8_t>(),
              (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  }
  EXPECT_EQ(events[4].numbers.at(2), 7u);
  EXPECT_EQ(parse_message(events[4].bytes.find(7)->second).numbers.at(1), 1u);
  EXPECT_EQ(error_of([&] {
              writer.image("x", from_vector<float>({1}, {1, 1, 1}), 0);
            }),
            "tensorboard: an image must be u8 (1 or 3, height, width); got f32 (1, 1, 1).");
}

TEST(TensorBoard, TensorBoardItselfReadsARun) {
  if (std::system("python3 -c 'import tensorboard' >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "python3 has no tensorboard here";
  const TempFolder folder;
  run_small({.epochs = 2, .callbacks = {tensorboard({.folder = folder / "events", .every = 3})}});
  write_text(folder / "read.py", R"(import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
tags = a.Tags()
assert [e.step for e in a.Scalars("step/loss")] == [3, 6, 9, 12]
assert [e.step for e in a.Scalars("epoch/test_accuracy")] == [6, 12]
assert a.Histograms("weights/first.weight")[0].histogram_value.num == 32
)");
  EXPECT_EQ(std::system(("python3 " + folder / "read.py" + " " + folder / "events").c_str()), 0);
}

TEST(TensorBoard, ARunWritesItsLossesRatesWeightsAndFirstImages) {
  const TempFolder folder;
  TrainConfig config;
  config.model = "mlp";
  config.data = "digits";
  config.limit = 60;
  config.batch = 20;
  config.epochs = 2;
  config.out = folder / "run";
  config.callbacks = {tensorboard({.every = 2, .gradients = true})};
  config.steps = 3;
  train(config);
  config.steps.reset();
  config.resume = true;
  const DoneEvent watched = train(config);
  config.callbacks.clear();
  config.resume = false;
  config.out = folder / "unwatched";
  EXPECT_EQ(train(config).weights_sha256, watched.weights_sha256);
  std::map<std::string, std::vector<uint64_t>> steps;  // by tag
  int files = 0, restarts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run/tensorboard")) {
    ++files;
    for (const Fields& event : read_events(entry.path())) {
      restarts += static_cast<int>(event.bytes.count(7));
      if (!event.bytes.count(5)) continue;
      const Fields value = parse_message(parse_message(event.bytes.find(5)->second).bytes.find(1)->second);
      steps[value.bytes.find(1)->second].push_back(event.numbers.at(2));
    }
  }
  EXPECT_EQ(files, 2);
  EXPECT_EQ(restarts, 1);
  for (auto& [tag, list] : steps) std::sort(list.begin(), list.end());
  EXPECT_EQ(steps["step/loss"], (std::vector<uint64_t>{2, 4, 6}));
  EXPECT_EQ(steps["step/lr"], (std::vector<uint64_t>{2, 4, 6}));
  EXPECT_EQ(steps["epoch/test_accuracy"], (std::vector<uint64_t>{3, 6}));
  EXPECT_EQ(steps["weights/fc1.weight"], (std::vector<uint64_t>{3, 6}));
  EXPECT_EQ(steps["gradients/fc3.bias"], (std::vector<uint64_t>{3, 6}));
  EXPECT_EQ(steps["data/first/7"], (std::vector<uint64_t>{0}));
}

}  // namespace
}  // namespace tandem::testing
