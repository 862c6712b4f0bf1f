// Speech from text: tacotron2 and its task. What it computes is compared with PyTorch in golden_test.cpp; the same bits in both engines for
// every model of the zoo are nn_zoo_test.cpp's and train_test.cpp's.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/io/npy.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tandem/zoo/tacotron2.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/as_batch.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

zoo::Tacotron2Options tiny_options() {
  return {.symbols = 9,
          .mels = 5,
          .embedding = 8,
          .encoder_layers = 2,
          .encoder_kernel = 3,
          .prenet = 6,
          .attention_rnn = 10,
          .decoder_rnn = 7,
          .attention = 6,
          .filters = 3,
          .location_kernel = 5,
          .postnet = 6,
          .postnet_layers = 3,
          .postnet_kernel = 3};
}

Tensor values(const Dims& shape, uint32_t salt, DType dtype = DType::f32) {
  return to_tensor(hash_array(shape, salt), dtype);
}
Tensor whole(const std::vector<int64_t>& numbers) {
  return from_vector(numbers, {static_cast<Dim>(numbers.size())});
}

/// Clips of 6 to 45 frames with a character for each three.
class Clips final : public data::Dataset {
 public:
  explicit Clips(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    const int64_t frames = 6 + i * 17 % 40;
    std::vector<int64_t> characters;
    for (int64_t k = 0; k < frames / 3; ++k) characters.push_back((i + k) % 9);
    return {values({frames, 5}, static_cast<uint32_t>(i)), whole(characters)};
  }

 private:
  int64_t size_;
};

/// Three clips of 48 to 71 frames in which a character lasts for 3 to 5 frames of a pattern of its own.
class Letters final : public data::Dataset {
 public:
  int64_t size() const override { return 3; }
  std::vector<Tensor> get(int64_t i) const override {
    std::vector<int64_t> characters;
    std::vector<float> mels;
    for (int64_t k = 0; k < 12 + i * 3; ++k) {
      const int64_t letter = 1 + (i * 5 + k * k * 3 + k * (i + 1)) % 8;
      characters.push_back(letter);
      for (int64_t frame = 0; frame < 3 + letter % 3; ++frame)
        for (int64_t band = 0; band < 5; ++band)
          mels.push_back(static_cast<float>((letter * 7 + band * 3 + letter * band) % 11) / 5 - 1);
    }
    return {from_vector(mels, {static_cast<Dim>(mels.size()) / 5, 5}), whole(characters)};
  }
  int64_t length(int64_t i) const override { return get(i)[0].size(0); }
};

using Weights = std::map<std::string, Tensor>;
Weights weights_of(const nn::Module& module) {
  const nn::NamedTensors named = module.named_parameters();
  return {named.begin(), named.end()};
}

struct Cell {
  Tensor h, c;
};
/// A plain LSTM step with zoneout: `keeps` h and c where they are true, else a share of what was before.
Cell plain_step(const Weights& w, const std::string& name, const Tensor& x, const Cell& before,
                const Tensor& keeps_h, const Tensor& keeps_c, double share) {
  const auto part = [&](const char* of) { return w.at(name + "." + of); };
  const std::vector<Tensor> gates = chunk(
      linear(x, part("weight_ih"), part("bias_ih")) + linear(before.h, part("weight_hh"), part("bias_hh")), 4,
      1);
  const Tensor c = sigmoid(gates[1]) * before.c + sigmoid(gates[0]) * tanh(gates[2]);
  const Tensor h = sigmoid(gates[3]) * tanh(c);
  if (!keeps_h.defined()) return {before.h * share + h * (1 - share), before.c * share + c * (1 - share)};
  return {where(keeps_h, before.h, h), where(keeps_c, before.c, c)};
}

TEST(Tacotron2, ItsDecoderIsAPlainLoopWithTheMasksOfZoneout) {
  zoo::Tacotron2Options options = tiny_options();
  options.zoneout = 0.3;
  options.prenet_dropout = 0;
  manual_seed(2);
  zoo::Tacotron2Decoder decoder(nullptr, "", options);
  decoder.to(DType::f64);
  const Dim n = 2, steps = 6, length = 4;
  const Tensor memory = values({n, length, 8}, 1, DType::f64), mels = values({n, steps, 5}, 2, DType::f64),
               lengths = whole({4, 3});
  const Weights w = weights_of(decoder);
  for (const bool training : {true, false}) {
    decoder.train(training);
    manual_seed(7);
    const zoo::Tacotron2Decoder::Frames made = decoder.forced(memory, lengths, mels);
    manual_seed(7);
    std::vector<Tensor> masks(4);
    for (size_t i = 0; training && i < masks.size(); ++i)
      masks[i] = bernoulli({steps, n, i < 2 ? 10 : 7}, 0.3, DType::boolean);
    nn::LocationAttention attention(nullptr, "", 10, 8, 6, {.filters = 3, .kernel = 5});
    attention.to(DType::f64);
    nn::NamedTensors own;
    for (const auto& [name, tensor] : w)
      if (name.starts_with("attention.")) own.emplace_back(name.substr(10), tensor);
    attention.load_state(own);
    const auto none = [&](Dim size) { return zeros({n, size}, DType::f64); };
    Cell first{none(10), none(10)}, second{none(7), none(7)};
    Tensor context = none(8), before = none(length), all = none(length), frame = none(5);
    for (Dim t = 0; t < steps; ++t) {
      const auto mask = [&](size_t i) { return training ? select(masks[i], 0, t) : Tensor(); };
      const Tensor prenet = relu(linear(relu(linear(frame, w.at("prenet1.weight"))), w.at("prenet2.weight")));
      first = plain_step(w, "attention_rnn", concat({prenet, context}, 1), first, mask(0), mask(1), 0.3);
      const nn::AttentionRead read = attention(first.h, memory, before, all, lengths);
      context = read.context, before = read.weights, all = all + before;
      second = plain_step(w, "decoder_rnn", concat({first.h, context}, 1), second, mask(2), mask(3), 0.3);
      const Tensor both = concat({second.h, context}, 1);
      EXPECT_TRUE(near(to_array(select(made.mels, 1, t)),
                       to_array(linear(both, w.at("projection.weight"), w.at("projection.bias"))), 1e-10))
          << t << (training ? " in training" : " in evaluation");
      EXPECT_TRUE(near(to_array(select(made.weights, 1, t)), to_array(read.weights), 1e-10)) << t;
      frame = select(mels, 1, t);
    }
  }
}

/// What a model makes of a batch.
Named made(const Tensor& first_mels, const Tensor& mels, const Tensor& gates, const Tensor& attention) {
  return {{"first_mels", first_mels}, {"mels", mels}, {"gates", gates}, {"attention", attention}};
}

/// The true part of what a model of evaluation makes of the first sample.
std::vector<Tensor> first_of(zoo::Tacotron2& model, const Named& batch) {
  const NoGrad off;
  const std::vector<Tensor> out = model(batch.values());
  const int64_t frames = batch["frames"][0].item<int64_t>(), length = batch["length"][0].item<int64_t>();
  std::vector<Tensor> cut;
  for (const Tensor& each : out) cut.push_back(slice(each[0], 0, 0, frames));
  cut[3] = slice(cut[3], 1, 0, length);
  return cut;
}

TEST(Tacotron2, InEvaluationPaddingChangesNothing) {
  zoo::Tacotron2Options options = tiny_options();
  options.prenet_dropout = 0;
  manual_seed(3);
  zoo::Tacotron2 model(options);
  const Clips clips(2);  // of 6 and 23 frames
  const TaskPtr task = make_task("speech-synthesis");
  model(task->collate(clips, std::vector<int64_t>{0, 1}, 0, 23)
            .values());  // so that batch norms have seen something
  model.eval();
  const std::vector<Tensor> alone = first_of(model, task->collate(clips, std::vector<int64_t>{0}, 0, 6)),
                            padded = first_of(model, task->collate(clips, std::vector<int64_t>{0, 1}, 0, 30));
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_TRUE(near(to_array(padded[i]), to_array(alone[i]), 1e-5)) << i;
}

TEST(Tacotron2, SpeaksUntilItsGateOpensOrTheLimit) {
  zoo::Tacotron2Options options = tiny_options();
  options.longest = 4;
  manual_seed(4);
  zoo::Tacotron2 model(options);
  const Tensor texts = from_vector<int64_t>({1, 2, 3, 4, 5, 0}, {2, 3}), lengths = whole({3, 2});
  EXPECT_HAS(refusal([&] { model.speak(texts, lengths); }), "Call eval()");
  model.eval();
  Tensor bias = weights_of(model).at("decoder.gate.bias");
  for (const double gate : {10., -10.}) {
    assign(bias.detach(), full({1}, gate));
    const zoo::Tacotron2::Speech made = model.speak(texts, lengths);
    const int64_t frames = gate > 0 ? 1 : 4;
    EXPECT_EQ(made.mels.shape(), (Dims{2, frames, 5}));
    EXPECT_EQ(made.weights.shape(), (Dims{2, frames, 3}));
    EXPECT_EQ(made.lengths, std::vector<int64_t>(2, frames));
    EXPECT_EQ(made.ended, std::vector<bool>(2, gate > 0));
    EXPECT_EQ(made.weights[1][0][2].item<float>(), 0);  // beyond the second text
  }
}

TEST(Tacotron2, HasTheSizesOfThePublicModelAndRefusesOthersByName) {
  // 148 symbols in place of our 40: 28,193,153 parameters as published by NVIDIA.
  EXPECT_EQ(nn::count_parameters(*zoo::make_model("tacotron2", {.vocabulary = 148})), 28193153);
  const auto made = [](const std::string& name, double value) {
    return refusal([&] { zoo::make_model("tacotron2", {.settings = {{name, value}}}); });
  };
  EXPECT_HAS(made("embeding", 8), "got 'embeding'. Did you mean embedding?");
  EXPECT_HAS(made("embedding", 7), "embedding must be even");
  EXPECT_HAS(made("embedding", 8.5), "must be a whole number from 1 to 65536; got 8.5");
  EXPECT_HAS(made("prenet", -1), "prenet must be a whole number");
  EXPECT_HAS(made("prenet", NAN), "prenet must be a whole number");
  EXPECT_HAS(made("location_kernel", 4), "location_kernel must be odd");
  EXPECT_HAS(made("zoneout", 1), "zoneout must be at least 0 and below 1; got 1.");
  EXPECT_HAS(made("zoneout", NAN), "zoneout must be at least 0");
  EXPECT_HAS(refusal([] { zoo::make_model("tacotron2", {.classes = 3}); }), "gives no classes; got 3");
  EXPECT_HAS(refusal([] {
               zoo::make_model("lenet", {.settings = {{"width", 3}}});
             }),
             "has no settings by name; got width");
  EXPECT_HAS(refusal([] { zoo::describe("tacotron2"); }), "is no list of layers");
  zoo::Tacotron2 model(tiny_options());
  const Tensor mels = zeros({2, 4, 5}), texts = zeros({2, 3}, DType::i64);
  const auto called = [&](const std::vector<Tensor>& in) { return refusal([&] { model(in); }); };
  EXPECT_HAS(called({texts}), "got 1 tensors");
  EXPECT_HAS(called({texts, whole({3, 3}), zeros({2, 4, 6}), whole({4, 4})}), "frames (N, T, 5)");
  EXPECT_HAS(called({texts, whole({3, 3}), zeros({1, 4, 5}), whole({4})}), "of as many samples");
  EXPECT_HAS(called({texts, whole({0, 3}), mels, whole({4, 4})}), "from 1 to 3");
  EXPECT_HAS(called({texts, whole({3, 3}), mels, whole({4, 5})}), "from 1 to 4");
}

TEST(SpeechSynthesis, AttentionOnTheDiagonalCountsAsSuchAndEvenAttentionDoesNot) {
  const TaskPtr task = make_task("speech-synthesis");
  const Dim frames = 40, length = 20;
  const Named batch =
      as_batch(task, {zeros({1, 30}, DType::i64), whole({length}), zeros({1, 50, 5}), whole({frames})});
  const Tensor even = full({1, 50, 30}, 1. / length);
  Array diagonal({1, 50, 30});
  for (Dim t = 0; t < 50; ++t) diagonal.at({0, t, std::min<Dim>(t / 2, 29)}) = 1;
  for (const bool is_diagonal : {true, false}) {
    const Tensor gates = full({1, 50}, -3);
    Metrics metrics;
    const std::unique_ptr<Meter> meter = task->meter();
    meter->add(task->measure(made(full({1, 50, 5}, 9), full({1, 50, 5}, 0.5), gates,
                                  is_diagonal ? to_tensor(diagonal, DType::f32) : even),
                             batch));
    meter->finish(metrics);
    EXPECT_NEAR(metrics["diagonality"], is_diagonal ? 1 : 0.28, is_diagonal ? 1e-6 : 0.02);
    EXPECT_NEAR(metrics["mel_loss"], 0.25, 1e-6);           // padding does not count
    EXPECT_NEAR(metrics["gate_accuracy"], 39. / 40, 1e-6);  // all but the last frame
    EXPECT_EQ(metrics["end_accuracy"], 0);
  }
}

TEST(SpeechSynthesis, AnEndIsRightWhereTheGateOpensAtTheLastFrameAndNotBefore) {
  const TaskPtr task = make_task("speech-synthesis");
  const Named batch =
      as_batch(task, {zeros({4, 2}, DType::i64), whole({2, 2, 2, 2}), zeros({4, 4, 5}), whole({3, 3, 3, 4})});
  // At the last frame, before, behind, and at the last frame of the longest.
  const Tensor gates = from_vector<float>({-1, -1, 1, -1, -1, 1, 1, 1, -1, -1, -1, 1, -1, -1, -1, 1}, {4, 4});
  Metrics metrics;
  const std::unique_ptr<Meter> meter = task->meter();
  meter->add(task->measure(made(zeros({4, 4, 5}), zeros({4, 4, 5}), gates, zeros({4, 4, 2})), batch));
  meter->finish(metrics);
  EXPECT_EQ(metrics["end_accuracy"], 0.5);
  EXPECT_NEAR(metrics["gate_accuracy"], 11. / 13, 1e-12);
}

TEST(SpeechSynthesis, TheFrameWhereTheGateMustOpenCountsTenfoldWhileTraining) {
  const TaskPtr task = make_task("speech-synthesis");
  const Named batch = as_batch(task, {zeros({1, 2}, DType::i64), whole({2}), zeros({1, 4, 5}), whole({3})});
  const Tensor frames = zeros({1, 4, 5}), gates = from_vector<float>({-1, -2, -3, 7}, {1, 4});
  const Named out = made(frames, frames, gates, zeros({1, 4, 2}));
  const auto cost = [](double logit) { return std::log1p(std::exp(logit)); };  // the fourth frame is padding
  EXPECT_NEAR(task->loss(out, batch).item<double>(), (cost(-1) + cost(-2) + 10 * cost(3)) / 3, 1e-5);
  EXPECT_NEAR(task->test_loss(out, batch).item<double>(), (cost(-1) + cost(-2) + cost(3)) / 3, 1e-5);
}

// Where all frames count alike the gate is shut everywhere after these steps, from each of five seeds.
TEST(SpeechSynthesis, AfterOverfittingTheGateOpensAtTheEndOfTheSpeech) {
  zoo::Tacotron2Options options = tiny_options();
  options.embedding = options.prenet = options.attention_rnn = options.decoder_rnn = 32;
  options.attention = 16;
  options.location_kernel = 9;
  options.conv_dropout = options.prenet_dropout = options.zoneout = 0;
  options.longest = 200;
  manual_seed(1);
  zoo::Tacotron2 model(options);
  const Letters clips;
  const TaskPtr task = make_task("speech-synthesis", {.guided_attention = 1});
  const auto optimizer = optim::make_optimizer("adam", model.named_parameters(), {.lr = 0.003});
  TrainingStep step(model, *optimizer, Engine::graph, {.task = task, .clip_norm = 1});
  const Named batch = task->collate(clips, std::vector<int64_t>{0, 1, 2}, 0, 71);
  for (int i = 0; i < 140; ++i) step(batch);
  model.eval();
  const NoGrad off;
  const std::vector<float> forced = model(batch.values())[2].to_vector<float>();
  const zoo::Tacotron2::Speech made = model.speak(batch["input"], batch["length"]);
  for (int64_t i = 0; i < clips.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const auto begin = forced.begin() + i * 71, end = begin + clips.length(i);
    EXPECT_GT(*(end - 1), 0) << i;
    EXPECT_LE(end - 1 - std::find_if(begin, end, [](float gate) { return gate > 0; }), 2) << i;
    EXPECT_TRUE(made.ended[at]) << i;
    EXPECT_NEAR(made.lengths[at], clips.length(i), 10) << i;  // two characters: its pace is its own
  }
}

TEST(SpeechSynthesis, GuidedAttentionCostsOffTheDiagonalWhileTrainingAlone) {
  const TaskPtr plain = make_task("speech-synthesis"),
                guided = make_task("speech-synthesis", {.guided_attention = 2});
  EXPECT_EQ(plain->settings(), "gate weight 10");
  EXPECT_EQ(guided->settings(), "gate weight 10, guided attention 2");
  const Named batch = as_batch(plain, {zeros({1, 6}, DType::i64), whole({4}), zeros({1, 3, 5}), whole({2})});
  Array weights({1, 3, 6});
  weights.at({0, 0, 0}) = 0.5, weights.at({0, 0, 3}) = 0.5, weights.at({0, 1, 2}) = 1,
                    weights.at({0, 2, 0}) = 1;
  const Named out = made(zeros({1, 3, 5}), zeros({1, 3, 5}), zeros({1, 3}), to_tensor(weights, DType::f32));
  // Frames are at 1/4 and 3/4, characters at 1/8, 3/8, 5/8 and 7/8; the third frame is padding.
  const auto cost = [](double far) { return 1 - std::exp(-far * far / (2 * 0.2 * 0.2)); };
  const double want = 2 * (0.5 * cost(1. / 8) + 0.5 * cost(5. / 8) + cost(1. / 8)) / 2;
  EXPECT_NEAR(guided->loss(out, batch).item<double>() - plain->loss(out, batch).item<double>(), want, 1e-6);
  EXPECT_EQ(guided->test_loss(out, batch).item<double>(), plain->test_loss(out, batch).item<double>());
  EXPECT_HAS(refusal([] { make_task("speech-synthesis", {.guided_attention = -1}); }),
             "from 0 to 1000; got -1");
  EXPECT_HAS(refusal([] { make_task("speech-synthesis", {.guided_attention = NAN}); }), "from 0 to 1000");
}

TEST(SpeechSynthesis, ClipsOfManyLengthsAreTracedOnceForEachBucket) {
  manual_seed(5);
  zoo::Tacotron2 model(tiny_options());
  const Clips clips(40);
  const TaskPtr task = make_task("speech-synthesis");
  const auto optimizer = optim::make_optimizer("adam", model.named_parameters(), {.lr = 0.001});
  TrainingStep step(model, *optimizer, Engine::graph, {.task = task});
  data::Loader loader(clips, loader_options(task, clips, 2, Device{}));
  std::vector<size_t> traced;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    while (std::optional<data::Batch> batch = loader.next()) step(batch->tensors);
    traced.push_back(step.reports().size());
  }
  EXPECT_LE(traced[0], 2 * static_cast<size_t>(data::kMostBuckets));
  EXPECT_EQ(traced[2], traced[1]);
  // The loop is one node: the graph of a longer clip has as many of them, but for one or two that are fused otherwise.
  const std::vector<GraphReport> reports = step.reports();
  for (const GraphReport& report : reports)
    EXPECT_NEAR(static_cast<double>(report.graph.nodes.size()),
                static_cast<double>(reports[0].graph.nodes.size()), 4);
}

TEST(SpeechSynthesis, RefusesSamplesThatAreNone) {
  const TaskPtr task = make_task("speech-synthesis");
  const auto collated = [&](std::vector<Tensor> fields) {
    return refusal([&] { task->collate(data::TensorSet(std::move(fields)), std::vector<int64_t>{0}, 0, 8); });
  };
  EXPECT_HAS(collated({zeros({1, 4, 5})}), "must be frames (frames, mels) and characters");
  EXPECT_HAS(collated({zeros({1, 4, 5}), zeros({1, 3})}), "must be frames (frames, mels) and characters");
  EXPECT_HAS(collated({zeros({1, 0}, DType::i64)}), "must be frames (frames, mels) and characters");
  EXPECT_HAS(refusal([] { make_task("speech-synthesis", {.class_weights = {1, 2}}); }), "no classes");
}

TrainConfig small_run(const std::string& out) {
  TrainConfig config;
  config.model = "tacotron2";
  config.data = "synthetic-ljspeech";
  config.model_settings = {"embedding=8", "prenet=4",  "attention_rnn=8", "decoder_rnn=8",
                           "attention=4", "filters=2", "postnet=8",       "longest=5"};
  config.limit = 4;
  config.batch = 2;
  config.epochs = 2;
  config.optimizer = "adam";
  config.out = out;
  return config;
}

TEST(SpeechRun, GoesOnAfterAStopToTheSameBitsAndIsTestedAndSpeaks) {
  const TempFolder folder;
  TrainConfig config = small_run(folder / "whole");
  const DoneEvent done = train(config);
  EXPECT_TRUE(std::isfinite(done["test_mel_loss"]));
  EXPECT_GT(done["test_diagonality"], 0);
  config.out = folder / "parts";
  config.checkpoint_every = 1;
  config.steps = 3;
  train(config);
  std::filesystem::remove(folder / "parts/model.safetensors");
  config.steps = {};
  config.resume = true;
  const auto same_values = [&](const DoneEvent& other, const char* what) {
    EXPECT_EQ(other.weights_sha256, done.weights_sha256) << what;
    ASSERT_EQ(other.values.size(), done.values.size()) << what;
    for (size_t i = 0; i < done.values.size(); ++i)
      EXPECT_EQ(other.values[i].value, done.values[i].value) << what << ", " << done.values[i].name;
  };
  same_values(train(config), "resumed");
  TrainConfig eager = small_run(folder / "eager");
  eager.engine = Engine::eager;
  same_values(train(eager), "eager");
  config.model_settings.pop_back();
  EXPECT_HAS(refusal([&] { train(config); }), "Give `model_settings` as it was");

  const EvalReport report = evaluate({.folder = folder / "whole", .limit = 4});
  EXPECT_EQ(report.metrics.samples, 4);
  // The prenet's dropout is on in tests, too, and each draws the same.
  for (const Metric& metric : report.metrics.values)
    EXPECT_EQ(metric.value, done["test_" + metric.name]) << metric.name;
  ASSERT_EQ(report.pictures, std::vector<std::string>{folder / "whole/attention.svg"});
  EXPECT_HAS(read_text(folder / "whole/attention.svg"), "<rect");

  const auto spoken = [&](std::vector<std::string> texts) {
    return predict({.folder = folder / "whole", .files = std::move(texts)});
  };
  const PredictReport said = spoken({"Hello, Jane!"});
  ASSERT_EQ(said.predictions.size(), 1u);
  const Tensor mels = said.predictions[0].mels;
  EXPECT_EQ(mels.size(1), 80);
  EXPECT_LE(mels.size(0), 5);
  write_predictions(said, folder / "said.npy");
  EXPECT_TRUE(same_bits(io::load_npy(folder / "said.npy"), mels));
  // The same text again, behind another one.
  EXPECT_TRUE(same_bits(spoken({"Good morning.", "Hello, Jane!"}).predictions[1].mels, mels));
  EXPECT_HAS(refusal([&] { write_predictions(said, folder / "said.csv"); }), "ends in .npy");
  EXPECT_HAS(refusal([&] {
               write_predictions(spoken({"a", "b"}), folder / "two.npy");
             }),
             "got 2. Give them one by one");
  EXPECT_HAS(refusal([&] { spoken({" "}); }), "a text must have a word");
  EXPECT_HAS(refusal([&] { spoken({"caf\xE9"}); }), "UTF-8");
  EXPECT_EQ(predict({.folder = folder / "whole", .indices = {1}}).predictions[0].mels.size(1), 80);
}

TEST(SpeechRun, RefusesSettingsAndDataThatDoNotFitTheModel) {
  const TempFolder folder;
  TrainConfig config = small_run(folder / "run");
  config.model_settings = {"embedding"};
  EXPECT_HAS(refusal([&] { train(config); }),
             "model-settings: must be names with numbers, embedding=64; got 'embedding'.");
  config.model_settings = {"embedding=1e999"};
  EXPECT_HAS(refusal([&] { train(config); }), "got 'embedding=1e999'");
  config.model_settings = {"=3"};
  EXPECT_HAS(refusal([&] { train(config); }), "got '=3'");
  config.model_settings = {"embedding=8", "prenet=4", "embedding=16"};
  EXPECT_HAS(refusal([&] { train(config); }),
             "model-settings: each must be given once; got 'embedding=16' beside another value of it.");
  config.model_settings = {"layers=3"};
  EXPECT_HAS(refusal([&] { train(config); }), "tacotron2: its settings are mels, ");
  config.model_settings = {};
  config.data = "synthetic-imdb";
  EXPECT_HAS(refusal([&] { train(config); }), "must be for text-classification");
  config.model = "imdb_lstm";
  config.data = "synthetic-imdb";
  config.guided_attention = 1;
  EXPECT_HAS(refusal([&] { train(config); }), "guided-attention: is of speech-synthesis");
  config.guided_attention = 0;
  config.data = "synthetic-ljspeech";
  EXPECT_HAS(refusal([&] { train(config); }), "Those of the zoo are tacotron2.");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(SpeechCommand, DescribesTheModelAndRefusesItAsADescription) {
  const ProcessResult shown = run_command({"models", "tacotron2"});
  EXPECT_HAS(shown.out, "decoder.attention.location_conv") << shown.err;
  const ProcessResult refused = run_command({"models", "tacotron2", "--toml"});
  EXPECT_NE(refused.status, 0);
  EXPECT_HAS(refused.err, "is no list of layers");
  const ProcessResult step =
      run_command({"explain", "tacotron2", "--batch", "1", "--length", "3", "--model-settings",
                   "embedding=8,prenet=4,attention_rnn=8,decoder_rnn=8,postnet=8"});
  EXPECT_HAS(step.out, "input i64 (1, 3) cpu, length i64 (1,) cpu, mels f32 (1, 12, 80) cpu") << step.err;
  EXPECT_HAS(run_command({"explain", "lenet", "--length", "3"}).err,
             "length: is of text; lenet takes samples of (1, 28, 28)");
}

}  // namespace
}  // namespace tandem::testing
