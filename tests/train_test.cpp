// The training loop in this process: the same bits whatever the engine, the threads and the stops; checkpoints;
// refusals.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

#include "tandem/core/threads.h"
#include "tandem/io/safetensors.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/train.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

using testing::TempFolder;

/// A run of a second or less.
TrainConfig small(const std::string& model, const std::filesystem::path& out) {
  TrainConfig config;
  config.model = model;
  config.data = "digits";
  config.limit = model == "mnist_cnn" ? 100 : 230;
  config.batch = model == "mnist_cnn" ? 20 : 32;  // the last batch is smaller where 32 does not divide
  config.epochs = 2;
  config.out = out.string();
  config.checkpoint_every = 0;
  return config;
}

std::string message(const std::function<void()>& call) { return testing::message_of<Error>(call); }

/// Everything about a result that must not depend on how it was reached.
void expect_same(const DoneEvent& a, const DoneEvent& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  EXPECT_EQ(a["train_loss"], b["train_loss"]) << what;
  EXPECT_EQ(a["test_loss"], b["test_loss"]) << what;
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_EQ(a.values[i].name, b.values[i].name) << what;
    EXPECT_TRUE(a.values[i].value == b.values[i].value || std::isnan(a.values[i].value)) << what;
  }
  EXPECT_EQ(a.steps, b.steps) << what;
  EXPECT_EQ(a.epochs, b.epochs) << what;
}

/// A run so small that the largest model ends it in seconds.
TrainConfig tiny(const std::string& model, const std::filesystem::path& out) {
  TrainConfig config = small(model, out);
  const bool is_large =
      model == "alexnet";  // takes no image as small as the others; vgg16 is made to fit them
  const bool is_translation = zoo::model_info(model).task == "translation";
  config.data = is_large               ? "synthetic-imagenet"
                : model == "imdb_lstm" ? "synthetic-imdb"
                : model == "ptb_lstm"  ? "synthetic-ptb"
                : is_translation       ? "synthetic-manythings"
                : model == "tacotron2" ? "synthetic-ljspeech"
                                       : "synthetic-cifar10";
  if (is_translation) config.model_settings = {"hidden=8"};
  config.limit = is_large ? 1 : model == "vgg16" ? 3 : 12;
  config.batch = is_large ? 1 : model == "vgg16" ? 2 : 5;
  config.epochs = 1;
  if (model == "tacotron2") {
    config.model_settings = {"embedding=8", "prenet=4",  "attention_rnn=8", "decoder_rnn=8",
                             "attention=4", "filters=2", "postnet=8"};
    config.limit = 3;
    config.batch = 2;
  }
  return config;
}

void expect_same_in_both_engines(TrainConfig config, const TempFolder& folder, const std::string& what) {
  config.out = folder / "eager";
  config.engine = Engine::eager;
  const DoneEvent eager = train(config);
  config.out = folder / "graph";
  config.engine = Engine::graph;
  expect_same(eager, train(config), what);
}

TEST(Train, EagerAndGraphEndWithTheSameBitsForEveryModel) {
  for (const zoo::ModelInfo& info : zoo::models()) {
    if (info.task == "speech-recognition") continue;  // on short utterances: speech_runs_test.cpp
    const TempFolder folder;
    expect_same_in_both_engines(tiny(info.name, ""), folder, info.name);
  }
}

TEST(Train, EagerAndGraphEndWithTheSameBitsForEveryOptimizer) {
  for (const optim::OptimizerInfo& info : optim::optimizers()) {
    const TempFolder folder;
    TrainConfig config = small("mlp", "");
    config.optimizer = info.name;
    expect_same_in_both_engines(config, folder, info.name);
  }
}

TEST(Train, ThreadsAndRepetitionChangeNothingAndTheSeedDoes) {
  const TempFolder folder;
  const int before = threads();
  TrainConfig config = small("lenet", folder / "one");
  config.machine.threads = 1;
  const DoneEvent one = train(config);
  for (int64_t count : {1, 2, 3}) {
    config.machine.threads = count;
    config.out = folder / ("threads" + std::to_string(count));
    expect_same(one, train(config), std::to_string(count) + " threads");
  }
  config.seed = 1;
  config.out = folder / "seed";
  EXPECT_NE(train(config).weights_sha256, one.weights_sha256);
  set_threads(before);
}

TEST(Train, StoppedAfterAnyStepAndResumedItEndsWithTheSameBits) {
  for (Engine engine : {Engine::eager, Engine::graph}) {
    const TempFolder folder;
    TrainConfig config = small("mnist_cnn", folder / "whole");  // dropout: the generator must be restored
    config.limit = 50;
    config.optimizer = "adam";
    config.engine = engine;
    const DoneEvent whole = train(config);
    ASSERT_EQ(whole.steps, 6);
    for (int64_t stop : {engine == Engine::eager ? 1 : 2, 3, 5}) {  // 3: the end of an epoch
      config.out = folder / std::to_string(stop);
      config.resume = false;
      config.steps = stop;
      train(config);
      config.resume = true;
      config.steps.reset();
      expect_same(whole, train(config), str("stopped after step ", stop));
    }
  }
}

TEST(Train, AugmentationIsDrawnAnewEachEpochAndResumesToTheBit) {
  const TempFolder folder;
  for (const auto& [file, count] : {std::pair("data_batch_1.bin", 12), std::pair("test_batch.bin", 4)}) {
    std::ofstream out(folder / file, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      out.put(static_cast<char>(i % 10));
      for (int k = 0; k < 3072; ++k) out.put(static_cast<char>(k * (i + 3) % 251));
    }
  }
  TrainConfig config;
  config.model = "cifar10_cnn";  // and its own data
  config.data_dir = folder.path();
  config.batch = 4;
  config.epochs = 2;
  config.out = folder / "plain";
  const DoneEvent plain = train(config);
  EXPECT_EQ(plain.data, "cifar10");
  config.augment = true;
  config.out = folder / "whole";
  const DoneEvent whole = train(config);
  EXPECT_NE(whole.weights_sha256, plain.weights_sha256);
  config.out = folder / "stopped";
  config.steps = 4;  // within the second epoch
  train(config);
  config.resume = true;
  config.steps.reset();
  expect_same(whole, train(config), "stopped after step 4");
  config.augment = false;
  EXPECT_NE(message([&] { train(config); }).find("augment"), std::string::npos);
  config = small("mlp", folder / "none");
  config.augment = true;
  EXPECT_NE(message([&] { train(config); }).find("digits has no usual augmentation"), std::string::npos);
}

TEST(Train, ARunMayBeResumedAtEveryStepAndWithMoreEpochs) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "whole");
  const DoneEvent whole = train(config);
  config.out = folder / "pieces";
  config.epochs.reset();
  for (int64_t step = 1; step <= whole.steps; ++step) {
    config.steps = step;
    config.resume = step > 1;
    config.engine = step % 2 ? Engine::eager : Engine::graph;
    train(config);
  }
  config.steps.reset();
  config.epochs = 2;
  expect_same(whole, train(config), "in pieces");  // nothing is left: the same answer again

  TrainConfig longer = small("mlp", folder / "longer");
  longer.epochs = 3;
  config.epochs = 3;
  expect_same(train(longer), train(config), "one more epoch");
}

TEST(Train, EveryEpochHasAnOrderOfItsOwn) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "first");
  config.lr = 1e-30;  // the weights stay as they are, so that equal losses would mean equal batches
  config.epochs.reset();
  config.steps = 1;
  const DoneEvent first = train(config);
  config.steps = 8 + 1;  // 230 samples in batches of 32, and one step more
  config.out = folder / "second";
  const DoneEvent second = train(config);
  EXPECT_EQ(first.weights_sha256, second.weights_sha256);
  EXPECT_EQ(second.epochs, 2);
  EXPECT_NE(first["train_loss"], second["train_loss"]);
}

TEST(Train, TheProcessIsAfterARunAsItWasBefore) {
  const TempFolder folder;
  const int before = threads();
  TrainConfig config = small("lenet", folder / "run");
  config.machine = {.threads = before + 1,
                    .tf32 = false,
                    .conv = ChoiceMode::fixed,
                    .conv_workspace = 1 << 20,
                    .matmul = ChoiceMode::fixed};
  const bool allowed = tf32();
  int heard = 0;
  config.callbacks = {listen([&](const StartEvent& start) {
    heard = start.threads;
    EXPECT_FALSE(tf32());
    EXPECT_EQ(convolution_choice().mode, ChoiceMode::fixed);
    EXPECT_EQ(convolution_choice().workspace, size_t{1} << 20);
    EXPECT_EQ(matmul_choice().mode, ChoiceMode::fixed);
  })};
  train(config);
  EXPECT_EQ(heard, before + 1);
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(tf32(), allowed);
  EXPECT_EQ(convolution_choice().mode, ChoiceMode::heuristic);
  EXPECT_EQ(convolution_choice().workspace, ConvolutionChoice{}.workspace);
  EXPECT_EQ(matmul_choice().mode, ChoiceMode::heuristic);
}

TEST(Train, CheckpointsInBetweenChangeNothingAndTwoAreKept) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "few");
  const DoneEvent few = train(config);
  config.out = folder / "many";
  config.checkpoint_every = 1;
  std::vector<int64_t> steps;
  config.callbacks = {listen([&](const CheckpointEvent& saved) { steps.push_back(saved.step); })};
  const DoneEvent many = train(config);
  expect_same(few, many, "a checkpoint a step");
  ASSERT_EQ(static_cast<int64_t>(steps.size()), many.steps);
  EXPECT_EQ(steps.back(), many.steps);
  EXPECT_EQ(list_checkpoints(config.out).size(), 2u);
}

TEST(Train, EpochsShareACheckpointThatTakesLongToWriteAndARunKilledThenGoesOn) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "short");
  config.limit = 32;
  config.epochs = 6;
  const DoneEvent uninterrupted = train(config);
  config.out = folder / "long";
  std::vector<int64_t> steps;
  const auto write_slowly = listen([&](const CheckpointEvent& saved) {
    steps.push_back(saved.step);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  struct Killed {};
  const auto kill = listen([](const EpochEvent& event) {
    if (event.epoch == 5) throw Killed();
  });
  config.callbacks = {write_slowly, kill};
  EXPECT_THROW(train(config), Killed);
  EXPECT_EQ(steps, (std::vector<int64_t>{1}));
  config.callbacks = {write_slowly};
  config.resume = true;
  expect_same(uninterrupted, train(config), "from the first epoch's checkpoint");
  EXPECT_EQ(steps.back(), 6);
}

TEST(Train, CheckpointsWithinAnEpochThatTakeLongToWriteAreRarerUnlessAskedFor) {
  const TempFolder folder;
  for (const bool is_asked : {false, true}) {
    TrainConfig config = small("mlp", folder / (is_asked ? "asked" : "usual"));
    config.limit = 1100;
    config.batch = 1;
    config.epochs = 1;
    config.checkpoint_every = {};
    if (is_asked) config.checkpoint_every = 500;
    std::vector<int64_t> steps;
    config.callbacks = {listen([&](const CheckpointEvent& saved) {
      steps.push_back(saved.step);
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    })};
    train(config);
    EXPECT_EQ(steps, is_asked ? (std::vector<int64_t>{500, 1000, 1100}) : (std::vector<int64_t>{500, 1100}));
  }
}

TEST(Train, ADamagedNewestCheckpointIsNamedAndTheOneBeforeIsUsed) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "whole");
  const DoneEvent whole = train(config);

  const auto damage_in = [&](const std::string& how, const std::function<void(const std::string&)>& damage) {
    config.out = folder / how;
    config.resume = false;
    config.checkpoint_every = 2;
    config.steps = 6;
    train(config);
    const std::vector<std::string> paths = list_checkpoints(config.out);
    ASSERT_EQ(paths.size(), 2u);
    damage(paths[0]);
    std::filesystem::remove(std::filesystem::path(config.out) / "model.safetensors");
    config.resume = true;
    config.steps.reset();
    std::vector<std::string> notices;
    int64_t first_step = -1;
    config.callbacks = {listen([&](const NoticeEvent& notice) { notices.push_back(notice.text); }),
                        listen([&](const StartEvent& start) { first_step = start.first_step; })};
    const DoneEvent again = train(config);
    ASSERT_EQ(notices.size(), 1u) << how;
    EXPECT_NE(notices[0].find(paths[0]), std::string::npos) << notices[0];
    EXPECT_EQ(first_step, 4) << how;
    expect_same(whole, again, how);
  };
  damage_in("torn", [](const std::string& path) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  });
  damage_in("empty", [](const std::string& path) { std::filesystem::resize_file(path, 0); });
  damage_in("flipped", [](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-5, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-5, std::ios::end);
    file.put(byte);
  });
  damage_in("foreign", [](const std::string& path) {
    io::save_safetensors(path, {{"x", from_vector<float>({1, 2}, {2})}});
  });
}

TEST(Train, WhereNoCheckpointIsUsableItSaysSo) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "run");
  train(config);
  for (const std::string& path : list_checkpoints(config.out)) std::filesystem::resize_file(path, 100);
  config.resume = true;
  const std::string text = message([&] { train(config); });
  EXPECT_NE(text.find("none of its 2 checkpoints can be used. Begin a new run in another `out`."),
            std::string::npos)
      << text;
}

TEST(Train, ARunThatWasStoppedBeforeItsFirstCheckpointBeginsAgain) {
  const TempFolder folder;
  TrainConfig config = small("mlp", folder / "whole");
  const DoneEvent whole = train(config);
  config.out = folder / "begun";
  std::filesystem::create_directories(config.out);
  std::filesystem::copy_file(folder / "whole/config.json", folder / "begun/config.json");
  config.resume = true;
  expect_same(whole, train(config), "from nothing");
}

TEST(Train, ResumingWithOtherSettingsIsRefusedByName) {
  const TempFolder folder;
  const TrainConfig begun = small("mlp", folder / "run");
  train(begun);
  const auto refusal = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = begun;
    config.resume = true;
    change(config);
    const std::string text = message([&] { train(config); });
    const size_t at = text.find("': ");
    return at == std::string::npos ? text : text.substr(at + 3);
  };
  EXPECT_EQ(
      refusal([](TrainConfig& c) { c.batch = 50; }),
      "the run was begun with batch 32; got batch 50. Give `batch` as it was, or begin a new run in another "
      "`out`.");
  EXPECT_EQ(refusal([](TrainConfig& c) { c.lr = 0.5; }),
            "the run was begun with lr 0.01; got lr 0.5. Give `lr` as it was, or begin a new run in another "
            "`out`.");
  EXPECT_EQ(refusal([](TrainConfig& c) { c.seed = 9; }),
            "the run was begun with seed 0; got seed 9. Give `seed` as it was, or begin a new run in another "
            "`out`.");
  EXPECT_EQ(refusal([](TrainConfig& c) { c.model = "lenet"; }),
            "the run was begun with model \"mlp\"; got model \"lenet\". Give `model` as it was, or begin a "
            "new run in "
            "another `out`.");
  EXPECT_EQ(refusal([](TrainConfig& c) { c.optimizer = "adam"; }),
            "the run was begun with optimizer \"sgd\"; got optimizer \"adam\". Give `optimizer` as it was, "
            "or begin a "
            "new run in another `out`.");
  EXPECT_EQ(
      refusal([](TrainConfig& c) { c.limit = 100; }),
      "the run was begun with train_samples 230; got train_samples 100. Give the same data and `limit`, or "
      "begin a new run in another `out`.");
}

TEST(Train, AFolderWithARunIsNotWrittenOver) {
  const TempFolder folder;
  const TrainConfig config = small("mlp", folder / "run");
  const DoneEvent done = train(config);
  EXPECT_EQ(message([&] { train(config); }),
            "train: the folder '" + config.out +
                "' holds a run already. Go on with it by `resume`, or choose "
                "another `out`.");
  EXPECT_EQ(evaluate({.folder = config.out, .limit = config.limit}).weights_sha256, done.weights_sha256);
}

TEST(Train, ANanLossIsNamedAtItsStepAndNoCheckpointHoldsIt) {
  const TempFolder folder;
  for (Engine engine : {Engine::eager, Engine::graph}) {
    TrainConfig config = small("mlp", folder / name(engine));
    config.engine = engine;
    config.lr = 1e20;
    config.checkpoint_every = 1;
    const std::string text = message([&] { train(config); });
    EXPECT_NE(text.find("train: the loss became "), std::string::npos) << text;
    EXPECT_NE(text.find(" (epoch 1). Lower the learning rate"), std::string::npos) << text;
    for (const std::string& path : list_checkpoints(config.out)) EXPECT_NO_THROW(load_checkpoint(path));
  }
  TrainConfig config = small("mlp", folder / "anomaly");
  config.lr = 1e20;
  config.anomaly = true;
  const std::string text = message([&] { train(config); });
  EXPECT_EQ(text.find("train: step "), 0u) << text;
  EXPECT_NE(text.find("made a NaN or infinity from finite inputs"), std::string::npos) << text;
}

TEST(Train, EveryFloatingTypeLearnsAndResumes) {
  for (DType dtype : {DType::f64, DType::bf16, DType::f16}) {
    const TempFolder folder;
    TrainConfig config = small("lenet", folder / "whole");
    config.dtype = dtype;
    config.epochs = 6;
    std::vector<double> losses;
    config.callbacks = {listen([&](const EpochEvent& epoch) { losses.push_back(epoch["train_loss"]); })};
    const DoneEvent whole = train(config);
    EXPECT_LT(losses.back(), losses.front() - 0.05) << tandem::name(dtype);
    config.out = folder / "pieces";
    config.engine = Engine::eager;
    config.steps = 11;
    train(config);
    config.steps.reset();
    config.resume = true;
    expect_same(whole, train(config), tandem::name(dtype));
  }
}

TEST(Train, WeightsAreThereForEvalWithTheSameMetrics) {
  const TempFolder folder;
  const TrainConfig config = small("lenet", folder / "run");
  const DoneEvent done = train(config);
  const EvalReport report = evaluate({.folder = config.out, .engine = Engine::eager, .limit = config.limit});
  EXPECT_EQ(report.weights_sha256, done.weights_sha256);
  EXPECT_EQ(report.metrics["loss"], done["test_loss"]);
  EXPECT_EQ(report.metrics["accuracy"], done["test_accuracy"]);
  std::filesystem::remove(folder / "run/model.safetensors");  // then the newest checkpoint is taken
  EXPECT_EQ(evaluate({.folder = config.out, .limit = config.limit}).weights_sha256, done.weights_sha256);
}

TEST(Train, WeightsOfAnotherModelAreRefusedByParameter) {
  const TempFolder folder;
  const TrainConfig mlp = small("mlp", folder / "mlp"), lenet = small("lenet", folder / "lenet");
  train(mlp);
  train(lenet);
  const auto to = folder / "mlp/model.safetensors";
  std::filesystem::copy_file(folder / "lenet/model.safetensors", to,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(
      message([&] { evaluate({.folder = mlp.out}); }),
      "load '" + to +
          "': parameter fc1.weight is (120, 400) in the file and (256, 784) in the model. config.json says "
          "that the model is mlp.");
}

TEST(Train, AConfigThatNobodyWroteIsRefusedByOneLine) {
  const TempFolder folder;
  const TrainConfig config = small("mlp", folder / "run");
  train(config);
  const std::string path = folder / "run/config.json";
  const std::pair<std::string, const char*> cases[] = {
      {"{\"model\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "at most 100 levels deep"},
      {R"({"model": "mlp", "model": "lenet", "data": "x", "dtype": "f32"})", "'model' stands twice"},
      {"{\"model\": \"\xff\"}", "must be JSON in UTF-8"},
      {R"({"model": 7})", "with model, data and dtype"}};
  for (const auto& [text, expected] : cases) {
    testing::write_text(path, text);
    const std::string said = message([&] { evaluate({.folder = config.out}); });
    EXPECT_NE(said.find(expected), std::string::npos) << said;
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(Explain, TheTrainingStepShrinksAndItsMemoryIsPlanned) {
  TrainConfig config;
  config.model = "lenet";
  config.batch = 8;
  const GraphReport report = explain(config);
  ASSERT_FALSE(report.passes.empty());
  EXPECT_LT(report.passes.back().nodes_after, report.passes.front().nodes_before);
  EXPECT_EQ(static_cast<int>(report.graph.nodes.size()), report.passes.back().nodes_after);
  EXPECT_LE(report.arena_bytes, report.values_bytes);
  EXPECT_EQ(report.inputs, 2);
}

}  // namespace
}  // namespace tandem
