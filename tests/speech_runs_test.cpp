// Runs on speech, from end to end: a network learns to spell what it hears, and files are transcribed; engines, stops and saved runs agree to
// the bit; padding changes nothing.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tandem/core/rng.h"
#include "tandem/data/speech_set.h"
#include "tandem/ops/create.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/decode.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/as_batch.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"
#include "tests/support/wav.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

/// LibriSpeech in small: every text is there to train on and to test.
void make_speech(const std::string& folder, const std::vector<std::string>& texts, uint32_t rate = 16000) {
  for (const char* part : {"train-clean-100", "test-clean"}) {
    const fs::path place = fs::path(folder) / part / "1" / "2";
    fs::create_directories(place);
    std::string list;
    for (size_t i = 0; i < texts.size(); ++i) {
      write_spoken((place / str("1-2-", i, ".wav")).string(), texts[i], rate);
      list += str("1-2-", i, " ", texts[i], "\n");
    }
    write_text((place / "1-2.trans.txt").string(), list);
  }
}

TrainConfig on_speech(const std::string& speech, const std::string& out) {
  TrainConfig config;
  config.model = "deepspeech2";
  config.model_settings = {"layers=2", "hidden=128"};
  config.data = "librispeech";
  config.data_dir = speech;
  config.epochs = 45;
  config.batch = 2;
  config.optimizer = "adam";
  config.lr = 0.005;
  config.clip_norm = 10;
  config.out = out;
  return config;
}

void expect_same(const DoneEvent& a, const DoneEvent& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) EXPECT_EQ(a.values[i].value, b.values[i].value) << what;
}

TEST(SpeechRuns, ANetworkLearnsToSpellWhatItHears) {
  const TempFolder folder;
  make_speech(folder / "speech", {"DAB CAB", "BAD ADA"});
  const TrainConfig config = on_speech(folder / "speech", folder / "run");
  const DoneEvent done = train(config);
  EXPECT_EQ(done["test_wer"], 0);
  EXPECT_EQ(done["test_cer"], 0);

  const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
  EXPECT_EQ(report.task, "speech-recognition");
  EXPECT_EQ(report.metrics["wer"], 0);
  EXPECT_EQ(report.metrics["loss"], done["test_loss"]);

  // A file of the set, and one at another rate.
  const std::string known = folder / "speech/test-clean/1/2/1-2-0.wav";
  write_spoken(folder / "other.wav", "BAD ADA", 22050);
  const PredictReport said =
      predict(PredictConfig{.folder = folder / "run", .files = {known, folder / "other.wav"}});
  ASSERT_EQ(said.predictions.size(), 2u);
  EXPECT_EQ(said.predictions[0].source, known);
  EXPECT_EQ(said.predictions[0].text, "DAB CAB");
  EXPECT_EQ(said.predictions[1].text, "BAD ADA");
  EXPECT_HAS(predictions_csv(said), str("source,label,predicted\n", known, ",,DAB CAB\n"));
  const PredictReport samples = predict(PredictConfig{.folder = folder / "run", .indices = {1}});
  ASSERT_EQ(samples.predictions.size(), 1u);
  EXPECT_EQ(samples.predictions[0].label, "BAD ADA");
  EXPECT_EQ(samples.predictions[0].text, "BAD ADA");

  const ProcessResult shown = run_command({"predict", folder / "run", known});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_HAS(shown.out, "DAB CAB");
  const ProcessResult lines = run_command({"predict", folder / "run", known, "--json"});
  EXPECT_HAS(lines.out, "\"text\":\"DAB CAB\"");
  EXPECT_HAS(run_command({"eval", folder / "run"}).out, "wer");

  // What is no sound, or too short; data of another kind.
  const auto refused = [&](const std::string& file) {
    return refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {file}}); });
  };
  write_text(folder / "empty.wav", "");
  write_text(folder / "broken.wav", wav_of({1, 2, 3}).substr(0, 45));
  write_text(folder / "short.wav", wav_of({1, 2, 3}));
  EXPECT_HAS(refused(folder / "empty.wav"), "empty.wav': must be a sound file");
  EXPECT_HAS(refused(folder / "broken.wav"), "broken.wav': the samples must take 6 bytes; 1 are left");
  EXPECT_HAS(refused(folder / "short.wav"), "short.wav': log_mel: the sound must have more than n_fft / 2");
  EXPECT_HAS(refused(folder / "none.wav"), "none.wav");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "digits"}); }),
             "the run was trained for speech-recognition on librispeech; this data is for classification");
}

TEST(SpeechRuns, EnginesStopsAndThreadsChangeNothing) {
  const TempFolder folder;
  make_speech(folder / "speech", {"AB", "BAD", "CAB", "DAB CAB"});
  TrainConfig config = on_speech(folder / "speech", folder / "graph");
  config.epochs = 2;
  const DoneEvent done = train(config);
  config.engine = Engine::eager;
  config.out = folder / "eager";
  expect_same(done, train(config), "eager");
  config.engine = Engine::graph;
  config.out = folder / "parts";
  config.checkpoint_every = 1;
  config.steps = 3;
  train(config);
  fs::remove(folder / "parts/model.safetensors");  // as a killed process leaves it
  config.steps.reset();
  config.resume = true;
  expect_same(done, train(config), "stopped and resumed");
}

TEST(SpeechRuns, FrozenNormsKeepTheirStatistics) {
  const TempFolder folder;
  make_speech(folder / "speech", {"AB", "BAD"});
  TrainConfig config = on_speech(folder / "speech", folder / "first");
  config.epochs = 1;
  train(config);
  config.out = folder / "second";
  config.weights = folder / "first";
  config.freeze = {"conv1", "norm1", "conv2", "norm2", "fc_norm"};
  std::string notice;
  config.callbacks = {listen([&](const NoticeEvent& event) { notice = event.text; })};
  train(config);
  EXPECT_HAS(notice, "; so do the statistics of 3 batch norms.");
  const auto before = load_run("eval", folder / "first").weights,
             after = load_run("eval", folder / "second").weights;
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string& tensor = before[i].first;
    const bool is_frozen =
        std::any_of(config.freeze.begin(), config.freeze.end(),
                    [&](const std::string& layer) { return tensor.starts_with(layer + "."); });
    EXPECT_EQ(same_bits(before[i].second, after[i].second), is_frozen) << tensor;
  }
}

/// The loss of a training step over features padded to a length, and the statistics that it leaves.
std::pair<double, nn::NamedTensors> step_padded_to(int64_t frames) {
  manual_seed(7);
  const auto model = zoo::make_model("deepspeech2", {.settings = {{"layers", 2}, {"hidden", 128}}});
  model->to(DType::f64);
  const auto optimizer = optim::make_optimizer("sgd", model->named_parameters(), {.lr = 0.05});
  TrainingStep step(*model, *optimizer, Engine::eager, {.task = make_task("speech-recognition")});
  const Tensor features = to_tensor(hash_array({2, 30, 161}, 5), DType::f64);
  // What stands behind the end must not matter either.
  const Tensor padded =
      frames > 30 ? concat({features, full({2, frames - 30, 161}, 3.0, DType::f64)}, 1) : features;
  const Tensor loss = step({{"input", padded},
                            {"length", from_vector<int64_t>({30, 21}, {2})},
                            {"target", from_vector<int64_t>({3, 4, 5, 4, 4, 0}, {2, 3})},
                            {"target_length", from_vector<int64_t>({3, 2}, {2})}})
                          .value;
  return {loss.item<double>(), model->state()};
}

TEST(DeepSpeech2, PaddingChangesNothing) {
  const auto [loss, state] = step_padded_to(30);
  const auto [padded_loss, padded_state] = step_padded_to(47);
  EXPECT_NEAR(loss, padded_loss, 1e-9);
  for (size_t i = 0; i < state.size(); ++i)
    EXPECT_TRUE(near(to_array(state[i].second), to_array(padded_state[i].second), 1e-9)) << state[i].first;
}

TEST(DeepSpeech2, RefusesOtherInputs) {
  const auto model = zoo::make_model("deepspeech2", {.settings = {{"layers", 2}, {"hidden", 128}}});
  EXPECT_HAS(refusal([&] {
               (*model)({zeros({2, 30, 80}), zeros({2}, DType::i64)});
             }),
             "deepspeech2: takes features (N, frames, 161) and their lengths i64 (N); got f32 (2, 30, 80)");
  EXPECT_HAS(refusal([&] { (*model)({zeros({2, 30, 161}), from_vector<int64_t>({31, 2}, {2})}); }), "length");
  EXPECT_HAS(refusal([&] { zoo::describe("deepspeech2"); }), "has no description");
  EXPECT_HAS(refusal([&] {
               TrainConfig config;
               config.model = "lenet";
               config.data = "synthetic-librispeech";
               train(config);
             }),
             "the model must be for speech-recognition; it is for classification of numbers");
  EXPECT_HAS(refusal([&] {
               TrainConfig config;
               config.model = "deepspeech2";
               config.data = "digits";
               train(config);
             }),
             "it is for speech-recognition");
}

TEST(SpeechRecognition, BatchesHaveFewSizes) {
  const data::Splits splits = data::open_dataset("synthetic-librispeech");
  const TaskPtr task = make_task("speech-recognition");
  const std::vector<int64_t> some = {0, 1, 2};
  int64_t longest = 0;
  for (const int64_t i : some) longest = std::max(longest, splits.train->length(i));
  const Named batch = task->collate(*splits.train, some, 0, longest + 7);
  EXPECT_EQ(batch[0].shape(), (Dims{3, longest + 7, 161}));
  EXPECT_EQ(batch[2].size(1), (longest + 7 + 3) / 4);  // whatever the texts are
  EXPECT_EQ(batch[1].to_vector<int64_t>()[1], splits.train->length(1));
  EXPECT_EQ(batch[3].to_vector<int64_t>()[1], splits.train->length(1) / 6);
}

TEST(SpeechRecognition, AnUtteranceWhoseTextDoesNotFitCountsForNothing) {
  const TaskPtr task = make_task("speech-recognition");
  const Named batch = as_batch(task, {zeros({1, 4, 161}), full({1}, 4, DType::i64), ones({1, 3}, DType::i64),
                                      full({1}, 3, DType::i64)});
  const auto loss_of = [&](Dim steps) {
    return task
        ->loss(
            {{"labels", zeros({1, steps, 29})}, {"steps", full({1}, static_cast<double>(steps), DType::i64)}},
            batch)
        .item<double>();
  };
  // The same letter three times needs two blanks between: five steps, and there are two.
  EXPECT_EQ(loss_of(2), 0);
  EXPECT_GT(loss_of(5), 0);
}

TEST(CtcCollapse, TakesOutRepetitionsAndBlanks) {
  EXPECT_EQ(ctc_collapse(std::vector<int64_t>{0, 3, 3, 0, 3, 5, 5, 0, 0}), (std::vector<int64_t>{3, 3, 5}));
  EXPECT_EQ(ctc_collapse(std::vector<int64_t>{0, 1, 1}, 1), (std::vector<int64_t>{0}));
  EXPECT_TRUE(ctc_collapse(std::vector<int64_t>{}).empty());
}

}  // namespace
}  // namespace tandem::testing
