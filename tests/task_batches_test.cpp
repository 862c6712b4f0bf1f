// That it does not matter how samples are put into batches, for every task: neither padding nor the other samples of a batch
// change an answer or a loss, and several batches of one step are as one large one.
#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tandem/zoo/tacotron2.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Samples that are made once.
class Samples final : public data::Dataset {
 public:
  explicit Samples(std::vector<std::vector<Tensor>> rows) : rows_(std::move(rows)) {}
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::vector<Tensor> get(int64_t i) const override { return rows_.at(static_cast<size_t>(i)); }
  int64_t length(int64_t i) const override { return get(i).at(0).size(0); }

 private:
  std::vector<std::vector<Tensor>> rows_;
};

Tensor numbers(const Dims& shape, int64_t salt) {
  return to_tensor(hash_array(shape, static_cast<uint32_t>(salt)), DType::f32);
}
Tensor integers(const Dims& shape, int64_t salt, int64_t low, int64_t high) {
  const Array drawn = hash_array(shape, static_cast<uint32_t>(salt), static_cast<double>(low),
                                 static_cast<double>(high) - 1e-6);
  std::vector<int64_t> values;
  for (const double v : drawn.values) values.push_back(static_cast<int64_t>(std::floor(v)));
  return from_vector(values, shape);
}

/// A class for each place, by an LSTM that reads from both ends.
struct Tagger final : nn::Module {
  nn::LSTM lstm{this, "lstm", 2, 4, {.bidirectional = true}};
  nn::Linear fc{this, "fc", 8, 3};
  using Module::forward;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    return {fc(lstm(in.at(0), {.lengths = in.at(1)}).output)};
  }
};

std::unique_ptr<nn::Module> speaker() {
  zoo::Tacotron2Options o{.symbols = 9,
                          .mels = 5,
                          .embedding = 8,
                          .encoder_layers = 1,
                          .encoder_kernel = 3,
                          .prenet = 6,
                          .attention_rnn = 7,
                          .decoder_rnn = 7,
                          .attention = 6,
                          .filters = 3,
                          .location_kernel = 3,
                          .postnet = 6,
                          .postnet_layers = 2,
                          .postnet_kernel = 3};
  o.conv_dropout = 0;
  o.prenet_dropout = 0;  // what it draws depends on the place in the batch
  o.longest = 7;
  return std::make_unique<zoo::Tacotron2>(o);
}

struct Case {
  std::string task;
  TaskOptions options;
  Samples samples;
  std::function<std::unique_ptr<nn::Module>()> model;
  bool has_lengths = true;
};

constexpr int64_t kLengths[] = {3, 14, 5, 9, 1, 12};  // the first has longer ones beside it

Samples made(const std::function<std::vector<Tensor>(int64_t i, int64_t length)>& make) {
  std::vector<std::vector<Tensor>> rows;
  for (int64_t i = 0; i < 6; ++i) rows.push_back(make(i, kLengths[i]));
  return Samples(std::move(rows));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto zoo_model = [](const std::string& name, const zoo::ModelOptions& options) {
    return [=] { return zoo::make_model(name, options); };
  };
  const Samples sequences = made([](int64_t i, int64_t n) -> std::vector<Tensor> {
    return {numbers({n, 2}, 10 + i), integers({n}, 20 + i, 0, 3)};
  });
  for (const TaskOptions& options : {TaskOptions{}, TaskOptions{.class_weights = {0, 0.1, 4}}})
    out.push_back({"sequence-labelling", options, sequences, [] { return std::make_unique<Tagger>(); }});
  const Samples texts = made([](int64_t i, int64_t n) -> std::vector<Tensor> {
    return {integers({n}, 30 + i, 1, 20), from_vector<int64_t>({i % 2}, {})};
  });
  for (const TaskOptions& options :
       {TaskOptions{}, TaskOptions{.class_weights = {0.3, 5}}, TaskOptions{.ignore_index = 1}})
    out.push_back({"text-classification", options, texts, zoo_model("imdb_lstm", {.vocabulary = 20})});
  const Samples pairs = made([](int64_t i, int64_t n) -> std::vector<Tensor> {
    return {
        concat({integers({n}, 40 + i, 4, 8), full({1}, 3, DType::i64)}),
        concat({full({1}, 2, DType::i64), integers({n % 4 + 1}, 50 + i, 4, 9), full({1}, 3, DType::i64)})};
  });
  for (const std::string name : {"seq2seq", "gnmt"}) {
    zoo::ModelOptions small{.classes = 9, .vocabulary = 8, .settings = {{"hidden", 6}}};
    if (name == "gnmt") small.settings.emplace_back("layers", 3);
    for (const int64_t beams : {1, 3})  // 3 ends a text: here every one goes on to its limit
      out.push_back({"translation", {.never = {0, 1, 2, 3}, .beams = beams}, pairs, zoo_model(name, small)});
  }
  const Samples recordings = made([](int64_t i, int64_t n) -> std::vector<Tensor> {
    return {numbers({4 * n, 161}, 60 + i), integers({n / 3 + 1}, 70 + i, 1, 29)};
  });
  out.push_back({"speech-recognition",
                 {},
                 recordings,
                 zoo_model("deepspeech2", {.settings = {{"layers", 1}, {"hidden", 5}}})});
  const Samples clips = made([](int64_t i, int64_t n) -> std::vector<Tensor> {
    return {numbers({2 * n, 5}, 80 + i), integers({n}, 90 + i, 0, 9)};
  });
  for (const double guided : {0., 1.})
    out.push_back({"speech-synthesis", {.guided_attention = guided}, clips, speaker});
  return out;
}

/// Those without lengths.
std::vector<Case> plain_cases() {
  std::vector<Case> out;
  const auto dense = [](int64_t outputs) {
    return [=] {
      return std::unique_ptr<nn::Module>(new nn::Sequential{nn::make<nn::Linear>(4, 8), nn::make<nn::Tanh>(),
                                                            nn::make<nn::Linear>(8, outputs)});
    };
  };
  const Samples points = made([](int64_t i, int64_t) -> std::vector<Tensor> {
    return {numbers({4}, 100 + i), from_vector<int64_t>({i % 3}, {})};
  });
  for (const TaskOptions& options :
       {TaskOptions{}, TaskOptions{.class_weights = {0, 0.1, 4}}, TaskOptions{.ignore_index = 1},
        TaskOptions{.class_weights = {0.5, 7, 2}, .ignore_index = 0}})
    out.push_back({"classification", options, points, dense(3), false});
  out.push_back({"regression",
                 {},
                 made([](int64_t i, int64_t) -> std::vector<Tensor> {
                   return {numbers({4}, 110 + i), numbers({2}, 120 + i)};
                 }),
                 dense(2),
                 false});
  out.push_back({"multi-label",
                 {},
                 made([](int64_t i, int64_t) -> std::vector<Tensor> {
                   return {numbers({4}, 130 + i), cast(integers({2}, 140 + i, 0, 2), DType::f32)};
                 }),
                 dense(2),
                 false});
  const Samples images = made([](int64_t i, int64_t) -> std::vector<Tensor> {
    // Of one of them no pixel counts.
    return {numbers({1, 4, 4}, 150 + i),
            i == 2 ? full({4, 4}, 255, DType::i64) : integers({4, 4}, 160 + i, 0, 3)};
  });
  for (const TaskOptions& options : {TaskOptions{}, TaskOptions{.class_weights = {0.5, 7, 0}}})
    out.push_back(
        {"segmentation", options, images,
         [] { return std::unique_ptr<nn::Module>(new nn::Sequential{nn::make<nn::Conv2d>(1, 3, 1)}); },
         false});
  return out;
}

std::string title(const Case& c) {
  return str(c.task, ", weights ", c.options.class_weights.size(), ", beams ", c.options.beams, ", guided ",
             c.options.guided_attention);
}

data::Subset only(const Case& c, std::vector<int64_t> indices) {
  return data::Subset(std::make_shared<Samples>(c.samples), std::move(indices));
}

/// Row i of answers, filled up with zeros to the length of another.
std::vector<double> row(const Tensor& answers, int64_t i, int64_t length) {
  Tensor one = cast(answers[i], DType::f64);
  if (one.rank() >= 1 && one.size(0) < length) {
    Dims more = one.shape();
    more[0] = length - one.size(0);
    one = concat({one, zeros(more, DType::f64)});
  }
  return one.to_vector<double>();
}

TEST(TaskBatches, AnAnswerIsTheSameAloneAndBesideLongerSamples) {
  for (const Case& c : cases())
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      SCOPED_TRACE(str(title(c), " ", name(engine)));
      manual_seed(3);
      const auto model = c.model();
      const TaskPtr task = make_task(c.task, c.options);
      const PredictOptions options{.task = task, .engine = engine, .batch = 6};
      const Tensor all = predict(*model, c.samples, options);
      for (const int64_t i : {0, 1, 4}) {
        const Tensor alone = predict(*model, only(c, {i}), options);
        const int64_t length = alone.rank() < 2 ? 0 : std::max(all.size(1), alone.size(1));
        const std::vector<double> a = row(alone, 0, length), b = row(all, i, length);
        ASSERT_EQ(a.size(), b.size());
        for (size_t k = 0; k < a.size(); ++k)
          ASSERT_NEAR(a[k], b[k], 1e-4) << "sample " << i << ", number " << k;
      }
    }
}

TEST(TaskBatches, TheLossOfABatchIsTheMeanOfItsSamplesAlone) {
  for (const std::vector<Case>& list : {cases(), plain_cases()})
    for (const Case& c : list)
      for (const Engine engine : {Engine::eager, Engine::graph}) {
        SCOPED_TRACE(str(title(c), " ", name(engine)));
        manual_seed(3);
        const auto model = c.model();
        const TaskPtr task = make_task(c.task, c.options);
        const auto loss = [&](const data::Dataset& set, int64_t batch) {
          return evaluate(*model, set, {.task = task, .engine = engine, .batch = batch})["loss"];
        };
        EXPECT_NEAR(loss(c.samples, 6), loss(c.samples, 1), 1e-4);
        EXPECT_NEAR(loss(c.samples, 4), loss(c.samples, 1), 1e-4);
        const data::Subset two = only(c, {0, 1});
        double sum = 0, total = 0;
        for (const int64_t i : {0, 1}) {
          const data::Subset one = only(c, {i});
          data::LoaderOptions loading = loader_options(task, one, 1, {});
          data::Loader loader(one, loading);
          loader.start_epoch(0);
          const data::Batch batch = *loader.next();
          const Tensor weight = task->test_weight(batch.tensors);
          const double weighs = weight.defined() ? weight.item<double>() : 1;
          if (weighs == 0) continue;
          sum += loss(one, 1) * weighs;
          total += weighs;
        }
        EXPECT_NEAR(loss(two, 2), sum / total, 1e-4);
      }
}

TEST(TaskBatches, SeveralBatchesOfOneStepAreAsOneLargeOne) {
  for (const std::vector<Case>& list : {cases(), plain_cases()})
    for (const Case& c : list)
      for (const Engine engine : {Engine::eager, Engine::graph}) {
        if (c.options.beams > 1) continue;  // trained as with 1
        SCOPED_TRACE(str(title(c), " ", name(engine)));
        const auto after = [&](int64_t batch) {
          manual_seed(3);
          const auto model = c.model();
          // Batch norms take no statistics, which are of a batch.
          for (const auto& [name, child] : model->named_children()) child->eval();
          const FitResult result = fit(*model, c.samples,
                                       {.task = make_task(c.task, c.options),
                                        .engine = engine,
                                        .epochs = 1,
                                        .batch = batch,
                                        .accumulate = 100,
                                        .optimizer = "sgd",
                                        .lr = 0.1});
          EXPECT_EQ(result.steps, 1);
          std::vector<float> values = {static_cast<float>(result["train_loss"])};
          for (const Tensor& parameter : model->parameters())
            for (const float v : parameter.to_vector<float>()) values.push_back(v);
          return values;
        };
        const std::vector<float> whole = after(6);
        for (const int64_t batch : {1, 4}) {
          const std::vector<float> pieces = after(batch);
          ASSERT_EQ(pieces.size(), whole.size());
          for (size_t i = 0; i < whole.size(); ++i)
            ASSERT_NEAR(pieces[i], whole[i], 2e-5 * std::max(1.f, std::abs(whole[i])))
                << batch << ", number " << i;
        }
      }
}

// Its batches follow the text, so they are given by hand: places without a token that follows count for nothing.
TEST(TaskBatches, SeveralBatchesOfALanguageModelWeighByTheTokensThatCount) {
  const TaskPtr task = make_task("language-modelling");
  const auto batch = [](std::vector<int64_t> tokens, std::vector<int64_t> targets) {
    const Dims shape{static_cast<Dim>(tokens.size()) / 3, 3};
    return Named{{"input", from_vector(tokens, shape)}, {"target", from_vector(targets, shape)}};
  };
  const Named whole = batch({1, 2, 3, 4, 0, 1, 2, 2, 4}, {2, 3, -100, 0, 1, 2, -100, -100, 1}),
              first = batch({1, 2, 3, 4, 0, 1}, {2, 3, -100, 0, 1, 2}),
              rest = batch({2, 2, 4}, {-100, -100, 1});
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    const auto after = [&](bool in_parts) {
      manual_seed(3);
      nn::Sequential net{nn::make<nn::Embedding>(5, 4), nn::make<nn::Linear>(4, 5)};
      const auto sgd = optim::make_optimizer("sgd", net.named_parameters(), {.lr = 0.5});
      TrainingStep step(net, *sgd, engine, {.task = task, .accumulates = in_parts});
      if (in_parts) step.accumulate(first);
      step(in_parts ? rest : whole);
      std::vector<float> values;
      for (const Tensor& parameter : net.parameters())
        for (const float v : parameter.to_vector<float>()) values.push_back(v);
      return values;
    };
    const std::vector<float> parts = after(true), at_once = after(false);
    ASSERT_EQ(parts.size(), at_once.size());
    for (size_t i = 0; i < parts.size(); ++i)
      EXPECT_NEAR(parts[i], at_once[i], 1e-6) << name(engine) << " " << i;
  }
}

TEST(TaskBatches, AModelOfSequencesThatTakesNoLengthsIsToldThatItIsGivenThem) {
  const Case c = cases()[0];
  manual_seed(3);
  nn::Sequential net{nn::make<nn::Linear>(2, 3)};
  EXPECT_EQ(
      refusal([&] {
        evaluate(net, c.samples, {.task = make_task(c.task), .engine = Engine::eager, .batch = 1});
      }),
      "sequence-labelling: the model is given inputs (1, 3, 2) and their lengths (1,): module Sequential: "
      "takes one tensor; got 2. Override forward(const std::vector<Tensor>&) for a module that takes "
      "several.");
}

TEST(TaskBatches, SequencesWithoutTargetsAreLabelled) {
  const Case c = cases()[0];
  manual_seed(3);
  Tagger net;
  const Samples bare =
      made([&](int64_t i, int64_t) -> std::vector<Tensor> { return {c.samples.get(i).at(0)}; });
  EXPECT_TRUE(same_bits(predict(net, bare, {.task = make_task(c.task)}),
                        predict(net, c.samples, {.task = make_task(c.task)})));
}

}  // namespace
}  // namespace tandem::testing
