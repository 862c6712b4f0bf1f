// Tasks: that fit(), evaluate() and predict() know nothing but a task. Each that comes with Tandem learns, measures what
// a plain loop over the outputs gives, has the same bits in both engines and resumes exactly; tasks with state from
// batch to batch, ragged samples and weights of their own go through the same loop.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <tuple>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/data/registry.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/as_batch.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Samples made by a function of their number.
class Made final : public data::Dataset {
 public:
  Made(int64_t size, std::function<std::vector<Tensor>(int64_t)> get) : size_(size), get_(std::move(get)) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override { return get_(i); }

 private:
  int64_t size_;
  std::function<std::vector<Tensor>(int64_t)> get_;
};

float number(int64_t i, uint32_t k, uint32_t salt) {
  return static_cast<float>(hash_value(static_cast<uint32_t>(i) * 64 + k, salt));
}

std::vector<float> numbers(int64_t i, uint32_t count, uint32_t salt) {
  std::vector<float> x(count);
  for (uint32_t k = 0; k < count; ++k) x[k] = number(i, k, salt);
  return x;
}

/// What each task is tried with: data, a model, and a metric that must get that good.
struct Case {
  std::string task;
  Made train, test;
  std::function<std::unique_ptr<nn::Module>()> model;
  std::string metric;
  double at_least;
};

std::unique_ptr<nn::Module> dense(int64_t in, int64_t out) {
  return std::unique_ptr<nn::Module>(
      new nn::Sequential{nn::make<nn::Linear>(in, 16), nn::make<nn::Tanh>(), nn::make<nn::Linear>(16, out)});
}

/// The same for each place of a sequence, which needs no lengths: no place looks at another.
struct PerPlace final : nn::Module {
  explicit PerPlace(std::unique_ptr<nn::Module> each) { adopt("each", std::move(each)); }
  using Module::forward;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    return {(*named_children()[0].second)(in.at(0))};
  }
};
std::unique_ptr<nn::Module> labeller_of_places() { return std::make_unique<PerPlace>(dense(1, 3)); }

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto point = [](uint32_t salt) {
    return [salt](int64_t i) -> std::vector<Tensor> {
      const std::vector<float> x = numbers(i, 4, salt);
      return {from_vector(x, {4}), from_vector<int64_t>({x[0] + 2 * x[1] > 0}, {})};
    };
  };
  out.push_back(
      {"classification", {120, point(1)}, {60, point(2)}, [] { return dense(4, 2); }, "accuracy", 0.8});
  const auto quantity = [](uint32_t salt) {
    return [salt](int64_t i) -> std::vector<Tensor> {
      const std::vector<float> x = numbers(i, 4, salt);
      return {from_vector(x, {4}), from_vector<float>({x[0] + 2 * x[1] * x[2]}, {})};
    };
  };
  out.push_back({"regression", {120, quantity(1)}, {60, quantity(2)}, [] { return dense(4, 1); }, "r2", 0.5});
  const auto labels = [](uint32_t salt) {
    return [salt](int64_t i) -> std::vector<Tensor> {
      const std::vector<float> x = numbers(i, 4, salt);
      return {from_vector(x, {4}),
              from_vector<float>(
                  {x[0] > 0 ? 1.0f : 0.0f, x[1] > x[2] ? 1.0f : 0.0f, x[3] > 0.5f ? 1.0f : 0.0f}, {3})};
    };
  };
  out.push_back({"multi-label", {120, labels(1)}, {60, labels(2)}, [] { return dense(4, 3); }, "f1", 0.6});
  const auto pixels = [](uint32_t salt) {
    return [salt](int64_t i) -> std::vector<Tensor> {
      const std::vector<float> x = numbers(i, 36, salt);
      std::vector<int64_t> y;
      for (const float p : x) y.push_back(p > 0.9f ? 255 : p > 0 ? 1 : 0);
      return {from_vector(x, {1, 6, 6}), from_vector(y, {6, 6})};
    };
  };
  out.push_back({"segmentation",
                 {60, pixels(1)},
                 {30, pixels(2)},
                 [] {
                   return std::unique_ptr<nn::Module>(
                       new nn::Sequential{nn::make<nn::Conv2d>(1, 8, 3, nn::Conv2dLayerOptions{.padding = 1}),
                                          nn::make<nn::ReLU>(), nn::make<nn::Conv2d>(8, 2, 1)});
                 },
                 "iou",
                 0.7});
  const auto sequence = [](uint32_t salt) {
    return [salt](int64_t i) -> std::vector<Tensor> {
      const auto length = static_cast<int64_t>(1 + (static_cast<uint64_t>(i) * 7 + salt) % 12);
      const std::vector<float> x = numbers(i, static_cast<uint32_t>(length), salt);
      std::vector<int64_t> y;
      for (const float p : x) y.push_back(p > 0.3f ? 2 : p > -0.3f ? 1 : 0);
      return {from_vector(x, {length, 1}), from_vector(y, {length})};
    };
  };
  out.push_back(
      {"sequence-labelling", {90, sequence(1)}, {40, sequence(2)}, labeller_of_places, "accuracy", 0.7});
  return out;
}

FitOptions usual(const Case& c, Engine engine = Engine::graph) {
  FitOptions options;
  options.task = make_task(c.task);
  options.test = &c.test;
  options.engine = engine;
  options.epochs = 12;
  options.batch = 10;
  options.optimizer = "adam";
  options.lr = 0.02;
  return options;
}

TEST(Tasks, EachLearnsAndHasTheSameBitsInBothEngines) {
  for (const Case& c : cases()) {
    FitResult results[2];
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      manual_seed(3);
      const auto model = c.model();
      results[engine == Engine::graph] = fit(*model, c.train, usual(c, engine));
    }
    EXPECT_EQ(results[0].weights_sha256, results[1].weights_sha256) << c.task;
    ASSERT_EQ(results[0].values.size(), results[1].values.size()) << c.task;
    for (size_t i = 0; i < results[0].values.size(); ++i)
      EXPECT_EQ(results[0].values[i].value, results[1].values[i].value)
          << c.task << " " << results[0].values[i].name;
    EXPECT_GT(results[1]["test_" + c.metric], c.at_least) << c.task;
  }
}

TEST(Tasks, EachResumesToTheBit) {
  for (const Case& c : cases()) {
    manual_seed(3);
    const auto whole = c.model();
    FitOptions options = usual(c);
    options.epochs = 3;
    options.accumulate = 2;
    const FitResult expected = fit(*whole, c.train, options);
    const TempFolder folder;
    options.out = folder.path();
    options.checkpoint_every = 1;
    for (const int64_t stop : {2, 5, 0}) {  // within the first epoch, in a later one, to the end
      manual_seed(3);
      const auto model = c.model();
      options.steps = stop == 0 ? std::nullopt : std::optional(stop);
      const FitResult part = fit(*model, c.train, options);
      options.resume = true;
      if (stop > 0) {  // what a killed process leaves: no final weights
        std::filesystem::remove(folder.path() + "/model.safetensors");
        continue;
      }
      EXPECT_EQ(part.weights_sha256, expected.weights_sha256) << c.task;
      for (size_t i = 0; i < expected.history.size(); ++i)
        for (const Metric& metric : expected.history[i].values)
          EXPECT_EQ(part.history.at(i)[metric.name], metric.value) << c.task << " " << metric.name;
    }
  }
}

TEST(Tasks, TheMetricsAreThoseOfAPlainLoopOverTheOutputs) {
  const std::vector<Case> all = cases();
  // Regression.
  manual_seed(3);
  auto net = dense(4, 1);
  const Case& regression = all[1];
  const TaskPtr in_units = make_task("regression", {.target_mean = 7, .target_deviation = 3});
  const Metrics got = evaluate(*net, regression.test, {.task = in_units, .batch = 7});
  const std::vector<float> guesses =
      cast(predict(*net, regression.test, {.task = in_units}), DType::f32).to_vector<float>();
  double squared = 0, absolute = 0, mean = 0, spread = 0;
  const int64_t n = regression.test.size();
  for (int64_t i = 0; i < n; ++i) mean += 7 + 3 * regression.test.get(i)[1].item<double>();
  mean /= static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double y = 7 + 3 * regression.test.get(i)[1].item<double>(),
                 e = guesses[static_cast<size_t>(i)] - y;
    squared += e * e;
    absolute += std::abs(e);
    spread += (y - mean) * (y - mean);
  }
  EXPECT_NEAR(got["mse"], squared / static_cast<double>(n), 1e-4);
  EXPECT_NEAR(got["rmse"], std::sqrt(squared / static_cast<double>(n)), 1e-4);
  EXPECT_NEAR(got["mae"], absolute / static_cast<double>(n), 1e-4);
  EXPECT_NEAR(got["r2"], 1 - squared / spread, 1e-4);
  EXPECT_NEAR(got["loss"] * 9, got["mse"], 1e-3) << "the loss is of the standardised targets";

  // Segmentation: what is 255 counts for nothing.
  const Case& pixels = all[3];
  manual_seed(3);
  const auto conv = pixels.model();
  const Metrics iou = evaluate(*conv, pixels.test, {.task = make_task("segmentation"), .batch = 4});
  const Tensor outputs = predict(*conv, pixels.test, {.task = make_task("segmentation")});
  const std::vector<int64_t> said = argmax(outputs, 1).to_vector<int64_t>();
  double both[2] = {}, either[2] = {}, right = 0, counted = 0;
  for (int64_t i = 0; i < pixels.test.size(); ++i) {
    const std::vector<int64_t> y = pixels.test.get(i)[1].to_vector<int64_t>();
    for (size_t p = 0; p < y.size(); ++p) {
      if (y[p] == 255) continue;
      const int64_t s = said[static_cast<size_t>(i) * 36 + p];
      ++counted;
      right += s == y[p];
      for (int64_t c = 0; c < 2; ++c) {
        both[c] += s == c && y[p] == c;
        either[c] += s == c || y[p] == c;
      }
    }
  }
  EXPECT_NEAR(iou["accuracy"], right / counted, 1e-12);
  EXPECT_NEAR(iou["iou"], (both[0] / either[0] + both[1] / either[1]) / 2, 1e-12);
  EXPECT_EQ(iou.confusion.samples(), static_cast<int64_t>(counted));

  // Sequence labelling: padding counts for nothing, in the loss as well.
  const Case& sequences = all[4];
  manual_seed(3);
  const auto labeller = labeller_of_places();
  const TaskPtr labelling = make_task("sequence-labelling");
  const Metrics labelled = evaluate(*labeller, sequences.test, {.task = labelling, .batch = 9});
  const Tensor answers = predict(*labeller, sequences.test, {.task = labelling, .batch = 9});
  double hits = 0, places = 0, loss = 0;
  for (int64_t i = 0; i < sequences.test.size(); ++i) {
    const std::vector<Tensor> sample = sequences.test.get(i);
    const int64_t length = sample[0].size(0);
    const Tensor own = reshape(slice(slice(answers, 0, i, i + 1), 1, 0, length), {length, 3});
    hits += static_cast<double>(sum(equal(argmax(own, 1), sample[1])).item<int64_t>());
    loss += cross_entropy(own, sample[1]).item<double>() * static_cast<double>(length);
    places += static_cast<double>(length);
  }
  EXPECT_NEAR(labelled["accuracy"], hits / places, 1e-12);
  EXPECT_NEAR(labelled["loss"], loss / places, 1e-5);
}

TEST(Tasks, AreaUnderTheCurveIsTheShareOfPairsInOrder) {
  std::vector<double> scores;
  std::vector<bool> positive;
  for (uint32_t i = 0; i < 80; ++i) {
    scores.push_back(std::round(hash_value(i, 5) * 8));  // with ties
    positive.push_back(hash_value(i, 6) > 0.2);
  }
  double pairs = 0, ordered = 0;
  for (size_t a = 0; a < scores.size(); ++a)
    for (size_t b = 0; b < scores.size(); ++b) {
      if (!positive[a] || positive[b]) continue;
      ++pairs;
      ordered += scores[a] > scores[b] ? 1 : scores[a] == scores[b] ? 0.5 : 0;
    }
  EXPECT_NEAR(area_under_curve(scores, positive), ordered / pairs, 1e-12);
  EXPECT_TRUE(std::isnan(area_under_curve({1, 2}, {true, true})));
  EXPECT_TRUE(std::isnan(area_under_curve({1, std::nan("")}, {true, false})));
}

TEST(Tasks, WeightedBatchesAddUpToTheGradientOfOneLargeOne) {
  // Batches whose numbers of places differ: their mean must count places, not samples.
  const Case c = std::move(cases()[4]);
  const TaskPtr task = make_task("sequence-labelling");
  const auto after = [&](int64_t batch, int64_t accumulate) {
    manual_seed(3);
    const auto model = labeller_of_places();
    FitOptions options;
    options.task = task;
    options.steps = 1;
    options.batch = batch;
    options.accumulate = accumulate;
    options.lr = 1;
    fit(*model, data::Subset(std::make_shared<Made>(c.train), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
        options);
    return model->parameters()[0].to_vector<float>();
  };
  const std::vector<float> once = after(1, 12), small = after(5, 100), large = after(12, 100);
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(once[i], large[i], 1e-5);
    EXPECT_NEAR(small[i], large[i], 1e-5);
  }
}

TEST(Tasks, BucketsStayWithinTheSignaturesThatAreKept) {
  const Made set(400, [](int64_t i) -> std::vector<Tensor> {
    const int64_t length = 1 + i % 97;
    return {full({length, 1}, 0.5), full({length}, 1, DType::i64)};
  });
  manual_seed(1);
  const auto model = labeller_of_places();
  const std::unique_ptr<optim::Optimizer> sgd = make_optimizer({}, *model);
  const TaskPtr task = make_task("sequence-labelling");
  TrainingStep step(*model, *sgd, Engine::graph, {.task = task});
  data::Loader loader(set, loader_options(task, set, 7, {}));
  std::set<std::string> shapes;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    int64_t batches = 0, samples = 0;
    while (const std::optional<data::Batch> batch = loader.next()) {
      step(batch->tensors);
      shapes.insert(str(batch->tensors[0].shape()));
      ++batches;
      samples += batch->size;
    }
    EXPECT_EQ(batches, loader.batches());
    EXPECT_EQ(samples, 400);
  }
  EXPECT_LE(shapes.size(), CompileOptions{}.cache_size);
  EXPECT_GT(shapes.size(), 8u);
  EXPECT_EQ(step.reports().size(), shapes.size()) << "each is traced once, and none is forgotten";
}

TEST(Tasks, BucketsHoldEachSampleOnceAndPadAsLittleAsTheyCan) {
  std::vector<int64_t> lengths, order;
  for (int64_t i = 0; i < 53; ++i) {
    lengths.push_back(i * 13 % 29);
    order.push_back((i * 7) % 53);
  }
  const data::Buckets buckets = data::make_buckets(lengths, 4);
  EXPECT_EQ(buckets.bounds.size(), 4u);
  EXPECT_EQ(buckets.bounds.back(), 28);
  for (const data::LastBatch last : {data::LastBatch::keep, data::LastBatch::drop, data::LastBatch::wrap}) {
    std::multiset<int64_t> seen;
    for (const data::BucketBatch& batch : data::bucket_batches(buckets, order, 4, last)) {
      EXPECT_TRUE(last == data::LastBatch::keep || batch.samples.size() == 4);
      for (const int64_t sample : batch.samples) {
        EXPECT_EQ(buckets.bound_of(lengths[static_cast<size_t>(sample)]), batch.length);
        seen.insert(sample);
      }
    }
    EXPECT_TRUE(last != data::LastBatch::keep || seen.size() == 53u);
    EXPECT_TRUE(last == data::LastBatch::drop || std::set<int64_t>(seen.begin(), seen.end()).size() == 53u);
  }
  EXPECT_EQ(error_of([&] { buckets.bound_of(29); }), "buckets: a sample must be at most 28 long; got 29.");
  EXPECT_EQ(error_of([] { data::make_buckets({3, -1}); }), "buckets: a length must be at least 0; got -1.");
  EXPECT_EQ(error_of([] { data::pad_stack({ones({5})}, 4, 0); }),
            "pad_stack: samples must be (at most 4, …) of (); got (5,).");
}

/// Carries a number from batch to batch, in the order of the data: a running sum of the inputs, which the target is.
struct RunningSum final : Task {
  std::string name() const override { return "running-sum"; }
  bool shuffles() const override { return false; }
  data::LastBatch last_batch() const override { return data::LastBatch::drop; }
  Named first_state(const nn::Module& model, int64_t) const override {
    return {{"sum", zeros({}, DType::f32, device_of(model))}};
  }
  Named forward(nn::Module& model, const Named& batch, Named& state) const override {
    const Tensor before = state["sum"];
    state.set("sum", before + sum(batch["input"]));
    return {{"output", model(batch["input"] + before)}};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    return mse_loss(out[0], batch["target"]);
  }
};

TEST(Tasks, StateGoesFromBatchToBatchBeginsAnewInEachEpochAndIsInCheckpoints) {
  const Made set(50, [](int64_t i) -> std::vector<Tensor> {
    return {from_vector<float>({number(i, 0, 3)}, {1}), from_vector<float>({number(i, 1, 3)}, {1})};
  });
  struct Net : nn::Module {
    nn::Linear line{this, "line", 1, 1};
    Tensor forward(const Tensor& x) override { return line(x); }
  };
  FitOptions options;
  options.task = std::make_shared<RunningSum>();
  options.test = &set;
  options.epochs = 3;
  options.batch = 7;
  options.lr = 0.01;
  std::string shas[3];
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    manual_seed(1);
    Net net;
    options.engine = engine;
    shas[engine == Engine::graph] = fit(net, set, options).weights_sha256;
  }
  EXPECT_EQ(shas[0], shas[1]);
  {  // by hand
    manual_seed(1);
    Net net;
    const std::unique_ptr<optim::Optimizer> sgd = make_optimizer(options, net);
    for (int epoch = 0; epoch < 3; ++epoch) {
      float carried = 0;
      for (int64_t batch = 0; batch < 7; ++batch) {
        std::vector<int64_t> rows;
        for (int64_t i = 0; i < 7; ++i) rows.push_back(batch * 7 + i);
        const std::vector<Tensor> fields = set.batch(rows);
        const Tensor loss = mse_loss(net(fields[0] + full({}, carried)), fields[1]);
        carried = (full({}, carried) + sum(fields[0])).item<float>();
        sgd->update(grad(loss, net.parameters()));
      }
    }
    EXPECT_EQ(io::weights_sha256(net.state()), shas[1]);
  }
  const TempFolder folder;
  options.out = folder.path();
  options.checkpoint_every = 1;
  for (const int64_t steps : {3, 10, 21}) {
    manual_seed(1);
    Net net;
    options.steps = steps;
    shas[2] = fit(net, set, options).weights_sha256;
    std::filesystem::remove(folder.path() + "/model.safetensors");
    options.resume = true;
  }
  EXPECT_EQ(shas[2], shas[1]);
}

TEST(Tasks, ATaskMayGenerateItsAnswers) {
  struct Counting final : Task {
    std::string name() const override { return "counting"; }
    Tensor loss(const Named& out, const Named&) const override { return mean(out[0]); }
    bool generates() const override { return true; }
    std::vector<Tensor> generate(nn::Module& model, const Named& batch) const override {
      Tensor x = batch["input"];
      int64_t steps = 0;
      while (max(model(x)).item<double>() < 100 && steps < 1000)
        x = x + 1, ++steps;  // values may be read here
      return {full({samples_of(batch)}, static_cast<double>(steps), DType::i64)};
    }
  };
  struct Same : nn::Module {
    nn::Linear line{this, "line", 1, 1};
    Tensor forward(const Tensor& x) override { return x * 10; }
  };
  Same model;
  const data::TensorSet set({zeros({5, 1}), zeros({5})});
  EXPECT_EQ(predict(model, set, {.task = std::make_shared<Counting>(), .batch = 2}).to_vector<int64_t>(),
            (std::vector<int64_t>{10, 10, 10, 10, 10}));
}

TEST(Tasks, ValidationJudgesEpochsAndTheTestPartIsMeasuredOnceAtTheEnd) {
  const Case c = std::move(cases()[0]);
  const Made valid = c.test;
  const Made test(20, [&](int64_t i) { return c.train.get(i); });
  manual_seed(3);
  const auto model = c.model();
  FitOptions options = usual(c);
  options.epochs = 4;
  options.validation = &valid;
  options.test = &test;
  options.callbacks = {early_stopping({.monitor = "accuracy", .patience = 10, .restore_best = true})};
  const FitResult result = fit(*model, c.train, options);
  for (const EpochMetrics& row : result.history) {
    EXPECT_FALSE(std::isnan(row["valid_accuracy"]));
    EXPECT_TRUE(std::isnan(row["test_accuracy"]));
  }
  EXPECT_EQ(result["valid_accuracy"], evaluate(*model, valid)["accuracy"]);
  EXPECT_EQ(result["test_accuracy"], evaluate(*model, test)["accuracy"]);
  double best = 0;
  for (const EpochMetrics& row : result.history) best = std::max(best, row["valid_accuracy"]);
  EXPECT_EQ(result["valid_accuracy"], best);
}

TEST(Tasks, ClassWeightsAreThoseOfTheLossOfTrainingAlone) {
  const Case c = std::move(cases()[0]);
  manual_seed(3);
  const auto model = c.model();
  std::vector<int64_t> all;
  for (int64_t i = 0; i < c.test.size(); ++i) all.push_back(i);
  const std::vector<Tensor> fields = c.test.batch(all);
  const Tensor out = (*model)(fields[0]);
  const TaskPtr task = make_task("classification", {.class_weights = {1, 5}});
  EXPECT_EQ(task->loss({{"output", out}}, as_batch(task, fields)).item<double>(),
            cross_entropy(out, fields[1], {.weight = from_vector<float>({1, 5}, {2})}).item<double>());
  EXPECT_EQ(evaluate(*model, c.test, {.task = task, .batch = 100})["loss"],
            cross_entropy(out, fields[1]).item<double>());
  // A class that training never saw weighs nothing, and is measured all the same.
  const TaskPtr one = make_task("classification", {.class_weights = {0, 0}});
  EXPECT_TRUE(std::isfinite(evaluate(*model, c.test, {.task = one})["loss"]));
  FitOptions options = usual(c);
  options.task = make_task("classification", {.class_weights = {1, 5, 2}});
  EXPECT_HAS(error_of([&] { fit(*model, c.train, options); }),
             "class-weights: there must be one per class; got 3 for outputs of ");
}

TEST(Tasks, SettingsTellNumbersApartByEveryDigit) {  // a resumed run must have the same
  for (const char* name : {"classification", "text-classification", "segmentation"})
    EXPECT_NE(make_task(name, {.class_weights = {1, 0.12345671}})->settings(),
              make_task(name, {.class_weights = {1, 0.12345672}})->settings())
        << name;
  EXPECT_NE(make_task("speech-synthesis", {.guided_attention = 0.12345671})->settings(),
            make_task("speech-synthesis", {.guided_attention = 0.12345672})->settings());
}

TEST(Tasks, QuantitiesKeepTheirDigitsWhateverTheTypeOfTheModel) {
  // Far from 0 beside their spread, and beyond what f16 holds.
  const double mean = 1.7e9, deviation = 100;
  const TaskPtr task = make_task("regression", {.target_mean = mean, .target_deviation = deviation});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor answer =
        task->answer({{"output", cast(from_vector<float>({-1.5f, 0.25f}, {2, 1}), dtype)}}).at(0);
    EXPECT_EQ(answer.to_vector<double>(), (std::vector<double>{mean - 150, mean + 25})) << name(dtype);
    // Targets are not rounded to the outputs' type.
    const Tensor target = from_vector<float>({1.0001f, 0.2f}, {2});
    const Named batch = as_batch(task, {zeros({2, 1}), target});
    const Named measured = task->measure({{"output", zeros({2, 1}, dtype)}}, batch);
    EXPECT_EQ(cast(measured["target"], DType::f32).to_vector<float>(), target.to_vector<float>())
        << name(dtype);
  }
  const TaskPtr labels = make_task("multi-label");
  EXPECT_LT(labels->answer({{"output", full({1, 1}, 9, DType::bf16)}}).at(0).item<float>(), 1);
}

TEST(Tasks, LabelsOtherThanZeroAndOneAreRefusedInTraining) {
  manual_seed(3);
  const auto model = dense(4, 3);
  const data::TensorSet sevens({ones({20, 4}), full({20, 3}, 7)});
  for (const Engine engine : {Engine::eager, Engine::graph})
    EXPECT_EQ(error_of([&] {
                fit(*model, sevens, {.task = make_task("multi-label"), .engine = engine, .batch = 5});
              }),
              "multi-label: targets must be 0 or 1; got 7. Give other data, or `task` regression.");
}

TEST(Tasks, WhatCannotBeIsRefusedInOneLine) {
  const Case c = std::move(cases()[1]);
  manual_seed(3);
  const auto wide = dense(4, 3);
  EXPECT_EQ(
      error_of([&] { evaluate(*wide, c.test, {.task = make_task("regression")}); }),
      "regression: the model must give as many numbers as a sample has targets; got outputs (60, 3) for "
      "targets (60,). Give its last layer that many outputs.");
  EXPECT_EQ(error_of([&] { evaluate(*wide, c.test, {.task = make_task("multi-label")}); }),
            "multi-label: outputs and targets must both be (n, labels); got (60, 3) and (60,). Give the last "
            "layer one "
            "output per label.");
  EXPECT_EQ(error_of([&] { evaluate(*wide, c.test, {.task = make_task("segmentation")}); }),
            "segmentation: outputs must be (n, classes, …) and targets (n, …) of whole numbers; got (60, 3) "
            "and f32 "
            "(60,).");
  EXPECT_EQ(error_of([] { make_task("ranking"); }),
            "task: must be one of classification, language-modelling, multi-label, regression, segmentation, "
            "sequence-labelling, speech-recognition, speech-synthesis, text-classification, translation; got "
            "'ranking'.");
  EXPECT_EQ(error_of([] {
              make_task("classification", {.class_weights = {1, std::nan("")}});
            }),
            "class-weights: must be numbers of at least 0; got nan.");
  EXPECT_EQ(error_of([] { make_task("regression", {.target_deviation = 0}); }),
            "regression: the targets' mean must be a number and their deviation above 0; got 0 and 0.");
  const data::TensorSet inputs_alone({ones({5, 4})});
  EXPECT_EQ(
      error_of([&] { evaluate(*wide, inputs_alone); }),
      "data: a sample must have 2 fields (input, target) for this task; got 1 (input), without 'target'.");
  EXPECT_EQ(predict(*wide, inputs_alone).shape(), (Dims{5, 3})) << "predicting needs no targets";
  FitOptions options = usual(c);
  options.callbacks = {early_stopping({.monitor = "accuracy"})};
  const auto model = c.model();
  EXPECT_EQ(error_of([&] { fit(*model, c.train, options); }),
            "monitor: must be one of train_loss, test_loss, test_r2, test_mse, test_rmse, test_mae; got "
            "'accuracy'.");
}

TEST(Tasks, SayWhatRunsThatAreNamedByWordsAsk) {
  data::Splits splits;
  splits.train = std::make_shared<Made>(1, [](int64_t) {
    return std::vector<Tensor>{zeros({4}), zeros({3})};
  });
  splits.info.classes = 2;
  const auto kinds = [](const std::string& name) {
    const TaskPtr task = make_task(name);
    return std::tuple(task->input_kind(), task->answer_kind(), task->reads_as());
  };
  using Input = TaskInput;
  using Answer = TaskAnswer;
  EXPECT_EQ(kinds("classification"), std::tuple(Input::numbers, Answer::one_class, "classification"));
  EXPECT_EQ(kinds("regression"), std::tuple(Input::numbers, Answer::numbers, "regression"));
  EXPECT_EQ(kinds("multi-label"), std::tuple(Input::numbers, Answer::numbers, "regression"));
  EXPECT_EQ(kinds("sequence-labelling"), std::tuple(Input::numbers, Answer::numbers, ""));
  EXPECT_EQ(kinds("segmentation"), std::tuple(Input::numbers, Answer::numbers, ""));
  EXPECT_EQ(kinds("text-classification"), std::tuple(Input::text, Answer::one_class, ""));
  EXPECT_EQ(kinds("language-modelling"), std::tuple(Input::text, Answer::continuation, ""));
  EXPECT_EQ(kinds("translation"), std::tuple(Input::pairs_of_texts, Answer::translation, ""));
  EXPECT_EQ(kinds("speech-recognition"), std::tuple(Input::sound, Answer::transcript, ""));
  EXPECT_EQ(kinds("speech-synthesis"), std::tuple(Input::text, Answer::speech, ""));
  EXPECT_EQ(make_task("regression")->outputs(splits), std::vector<int64_t>{3});
  EXPECT_EQ(make_task("classification")->outputs(splits), std::vector<int64_t>{2});
  EXPECT_EQ(make_task("text-classification")->outputs(splits), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(make_task("speech-synthesis")->outputs(splits).empty());
  EXPECT_FALSE(has_classes("a task of your own"));
  EXPECT_FALSE(gives_text("a task of your own"));
}

// Else a new task would cost more than its own file. The two that stand for "what is usual" may be named.
TEST(Tasks, AreKnownByNameInTheirOwnFilesAlone) {
  const std::set<std::string> usual = {"classification", "regression"};
  for (const char* folder : {"src/tandem/train", "src/tandem/search", "src/cli"})
    for (const auto& entry : std::filesystem::directory_iterator(source_dir() / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string text = read_text(entry.path().string());
      for (const std::string& name : task_names())
        if (!usual.contains(name)) {
          EXPECT_EQ(text.find("\"" + name + "\""), std::string::npos) << entry.path() << " names " << name;
        }
    }
}

}  // namespace
}  // namespace tandem::testing
