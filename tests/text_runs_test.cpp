// Runs on text, from end to end: texts are classified and long texts gone on with, by name; engines, stops and saved runs
// agree to the bit; state goes from batch to batch; the words of a run stay in its folder.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/create.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/settings.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGood[] = {"lovely", "great", "fine", "warm", "clever"};
constexpr const char* kBad[] = {"awful", "dull", "weak", "cold", "stupid"};
constexpr const char* kFiller[] = {"the", "film", "was", "a", "story", "of", "two", "friends", "and", "dog"};

/// Texts of 3 to 40 words, two of which tell the class.
void make_texts(const std::string& folder, int each = 40) {
  for (const auto& [cls, words] : {std::pair("bad", &kBad), std::pair("good", &kGood)}) {
    fs::create_directories(fs::path(folder) / cls);
    for (int i = 0; i < each; ++i) {
      std::string text;
      const int length = 3 + (i * 7) % 38;
      for (int k = 0; k < length; ++k) {
        const auto draw = static_cast<size_t>(1000 + 999 * hash_value(static_cast<uint32_t>(i * 64 + k), 5));
        text +=
            str(text.empty() ? "" : " ", k == 1 || k + 1 == length ? (*words)[draw % 5] : kFiller[draw % 10]);
      }
      write_text(str(folder, "/", cls, "/", i, ".txt"), text + ".");
    }
  }
}

TrainConfig on_texts(const std::string& texts, const std::string& out) {
  TrainConfig config;
  config.model = "imdb_lstm";
  config.data = "text-folder";
  config.data_dir = texts;
  config.epochs = 10;
  config.batch = 8;
  config.optimizer = "adam";
  config.lr = 0.01;
  config.out = out;
  return config;
}

void expect_same(const DoneEvent& a, const DoneEvent& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) EXPECT_EQ(a.values[i].value, b.values[i].value) << what;
}

/// What a killed process leaves: no final weights.
void forget_end(const std::string& folder) { fs::remove(folder + "/model.safetensors"); }
/// The run once more, stopped after two numbers of steps and resumed: it must end as `done` did.
void expect_same_in_parts(TrainConfig config, int64_t first, int64_t second, const DoneEvent& done) {
  config.checkpoint_every = 1;
  for (const int64_t stop : {first, second, int64_t{0}}) {
    config.steps = stop == 0 ? std::nullopt : std::optional(stop);
    const DoneEvent part = train(config);
    config.resume = true;
    if (stop > 0) forget_end(config.out);
    if (stop == 0) expect_same(done, part, "stopped twice and resumed");
  }
}

TEST(TextRuns, ARunIsNotResumedWithOtherWordsOfTheSameNumbers) {
  const TempFolder folder;
  make_texts(folder / "texts", 6);
  TrainConfig config = on_texts(folder / "texts", folder / "run");
  config.epochs = 1;
  train(config);
  config.resume = true;
  // The same words in the same order of their numbers, but for one.
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(folder / "texts")) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path());
    std::string text((std::istreambuf_iterator<char>(in)), {});
    for (size_t at = text.find("friends"); at != std::string::npos; at = text.find("friends", at))
      text.replace(at, 7, "friendz");
    write_text(file.path().string(), text);
  }
  EXPECT_HAS(refusal([&] { train(config); }),
             "the run was begun with other words in its data. Give the same data, or begin a new run in "
             "another `out`.");
}

TEST(TextRuns, TextsAreClassifiedFromEndToEnd) {
  const TempFolder folder;
  make_texts(folder / "texts");
  TrainConfig config = on_texts(folder / "texts", folder / "run");
  const DoneEvent done = train(config);
  EXPECT_GT(done["test_accuracy"], 0.9);
  config.engine = Engine::eager;
  config.out = folder / "eager";
  expect_same(done, train(config), "eager");
  config.engine = Engine::graph;
  config.out = folder / "parts";
  expect_same_in_parts(config, 3, 11, done);

  const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
  EXPECT_EQ(report.task, "text-classification");
  EXPECT_EQ(report.metrics["accuracy"], done["test_accuracy"]);
  EXPECT_EQ(report.metrics["loss"], done["test_loss"]);
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"bad", "good"}));

  const auto refused = [&](const std::string& path) {
    return refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {path}}); });
  };
  EXPECT_HAS(refused(folder / "."), "must be a regular file or a text; got a folder");
  for (const char* const path : {"./not_there", "/not/there"})
    EXPECT_HAS(refused(path), "there must be a file of that name");
  write_text(folder / "mine.txt", "A GREAT film of two friends and the dog was clever.");
  const PredictReport said = predict(
      PredictConfig{.folder = folder / "run",
                    .files = {"the dull story of two friends, a film and stupid.", folder / "mine.txt"}});
  ASSERT_EQ(said.predictions.size(), 2u);
  EXPECT_EQ(said.predictions[0].top.at(0).name, "bad");
  EXPECT_EQ(said.predictions[1].top.at(0).name, "good");
  EXPECT_EQ(said.predictions[0].source, "the dull story of two friends, a film and stupid.");
  EXPECT_HAS(
      predictions_csv(said),
      "source,label,predicted,probability\n\"the dull story of two friends, a film and stupid.\",,bad,0.");
  const PredictReport samples = predict(PredictConfig{.folder = folder / "run", .limit = 4});
  EXPECT_EQ(samples.predictions.size(), 4u);
  EXPECT_EQ(samples.predictions[0].label, "bad");
  // An answer does not depend on what it is asked beside.
  const PredictReport alone = predict(PredictConfig{
      .folder = folder / "run", .files = {"the dull story of two friends, a film and stupid."}});
  EXPECT_NEAR(alone.predictions[0].top[0].probability, said.predictions[0].top[0].probability, 1e-6);

  // Another folder with the same classes; data of another kind; and words that are gone.
  make_texts(folder / "other", 5);
  EXPECT_GT(evaluate(EvalConfig{.folder = folder / "run", .data_dir = folder / "other"}).metrics["accuracy"],
            0.8);
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "digits"}); }),
             "the run was trained for text-classification on text-folder; this data is for classification");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "synthetic-imdb"}); }),
             "the classes must be those of training, bad, good; got neg, pos");
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {"caf\xE9"}}); }),
             "UTF-8");
  EXPECT_HAS(
      refusal([&] {
        predict(PredictConfig{.folder = folder / "run", .files = {"a"}, .generate = {.temperature = 1}});
      }),
      "words and temperature: are of language models");
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {"reviw.txt"}}); }),
             "predict 'reviw.txt': there must be a file of that name");
  write_text(folder / "run/text.json", "{}");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run"}); }),
             "text.json': must hold length and vocabulary");
  fs::remove(folder / "run/text.json");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run"}); }),
             "its text.json, which holds its words, is missing");
}

TEST(TextRuns, ATableWithAColumnOfTextIsTrainedOnAndPredicted) {
  const TempFolder folder;
  std::string csv = "kind;body\n", few = "id;body\n";
  for (int i = 0; i < 90; ++i)
    csv += str(i % 3 == 0   ? "ham"
               : i % 3 == 1 ? "spam"
                            : "news",
               ";",
               i % 3 == 0   ? "see you at noon"
               : i % 3 == 1 ? "buy cheap pills"
                            : "minister resigns today",
               "\n");
  few += "7;buy cheap pills\n8;minister resigns today\n";
  write_text(folder / "mail.csv", csv);
  write_text(folder / "few.csv", few);
  TrainConfig config = on_texts(folder / "mail.csv", folder / "run");
  config.data = "csv";
  config.target = "kind";
  config.text.column = "body";
  config.text.tokens = "bpe";
  config.text.vocabulary = 300;
  config.valid = 0.1;
  EXPECT_GT(train(config)["test_accuracy"], 0.95);
  EXPECT_GT(evaluate(EvalConfig{.folder = folder / "run"}).metrics["accuracy"], 0.95);
  const PredictReport report =
      predict(PredictConfig{.folder = folder / "run", .files = {folder / "few.csv"}});
  ASSERT_EQ(report.predictions.size(), 2u);
  EXPECT_EQ(report.predictions[0].top.at(0).name, "spam");
  EXPECT_EQ(report.predictions[1].top.at(0).name, "news");
  EXPECT_HAS(predictions_csv(report), "id,body,predicted kind,probability\n7,buy cheap pills,spam,");
  write_text(folder / "wrong.csv", "id;text\n1;x\n");
  EXPECT_HAS(
      refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {folder / "wrong.csv"}}); }),
      "'body'");
}

// --- Language modelling

/// Words that follow from the two before them: a model without memory cannot know them.
std::string made_text(int words, uint32_t salt) {
  std::string text;
  int a = 1, b = static_cast<int>(salt % 5);
  for (int i = 0; i < words; ++i) {
    const int next = (a * 3 + b + (hash_value(static_cast<uint32_t>(i), salt) > 0.9 ? 1 : 0)) % 7;
    text += str("w", next, i % 12 == 11 ? "\n" : " ");
    a = b;
    b = next;
  }
  return text;
}

constexpr const char* kSmallModel = R"(name = "small_lm"
inputs = [ { name = "tokens", shape = [5], type = "i64" } ]
layer = [
  { type = "embedding", rows = 50, width = 8 },
  { type = "dropout", p = 0.1 },
  { type = "lstm", name = "rnn", hidden = 24, carry = true },
  { type = "linear", outputs = 50 },
])";

TrainConfig on_text(const TempFolder& folder, const std::string& out) {
  write_text(folder / "lm.toml", kSmallModel);
  fs::create_directories(folder / "text");
  write_text(folder / "text/train.txt", made_text(3000, 1));
  write_text(folder / "text/valid.txt", made_text(300, 2));
  write_text(folder / "text/test.txt", made_text(301, 3));
  TrainConfig config;
  config.model = folder / "lm.toml";
  config.data = "text";
  config.data_dir = folder / "text";
  config.text.tokens = "spaces";
  config.epochs = 6;
  config.batch = 10;
  config.optimizer = "adam";
  config.lr = 0.02;
  config.out = out;
  return config;
}

TEST(TextRuns, ALanguageModelIsTrainedTestedAndGoesOnWithAText) {
  const TempFolder folder;
  TrainConfig config = on_text(folder, folder / "run");
  const DoneEvent done = train(config);
  EXPECT_GT(done["test_accuracy"], 0.6) << "a guess is right once in seven";
  EXPECT_LT(done["test_perplexity"], 3.5);
  EXPECT_NEAR(std::log(done["test_perplexity"]), done["test_loss"], 1e-9);
  EXPECT_FALSE(std::isnan(done["valid_perplexity"]));
  config.engine = Engine::eager;
  config.out = folder / "eager";
  expect_same(done, train(config), "eager");
  config.engine = Engine::graph;
  config.out = folder / "parts";
  expect_same_in_parts(config, 7, 100, done);  // within an epoch: the states are in the checkpoint
  const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
  EXPECT_EQ(report.metrics["loss"], done["test_loss"]);
  EXPECT_EQ(report.metrics["accuracy"], done["test_accuracy"]);
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "synthetic-ptb"}); }),
             "its words must be those of training, 9; got 10000");

  const auto go_on = [&](GenerateOptions options, Engine engine = Engine::graph) {
    return predict(
               PredictConfig{
                   .folder = folder / "run", .files = {"w1 w2 w3"}, .engine = engine, .generate = options})
        .predictions.at(0)
        .text;
  };
  const std::string greedy = go_on({.count = 12});
  EXPECT_EQ(go_on({.count = 12}, Engine::eager), greedy);
  EXPECT_EQ(greedy.substr(0, 1), "w");
  EXPECT_EQ(greedy.find('<'), std::string::npos);
  const std::string drawn = go_on({.count = 30, .temperature = 1, .seed = 5});
  EXPECT_EQ(go_on({.count = 30, .temperature = 1, .seed = 5}, Engine::eager), drawn);
  EXPECT_NE(go_on({.count = 30, .temperature = 1, .seed = 6}), drawn);
  EXPECT_EQ(go_on({.count = 12, .temperature = 1e-6, .seed = 6}), greedy) << "cold draws are greedy";
  const PredictReport windows =
      predict(PredictConfig{.folder = folder / "run", .limit = 2, .generate = {.count = 3}});
  ASSERT_EQ(windows.predictions.size(), 2u);
  EXPECT_FALSE(windows.predictions[1].text.empty());
  EXPECT_HAS(predictions_csv(windows), "source,label,predicted\n");
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {" "}}); }),
             "must have a word");
  write_text(folder / "rows.csv", "a,b\nw1,w2\n");
  EXPECT_HAS(refusal([&] {
               predict(PredictConfig{.folder = folder / "run", .files = {"w1", folder / "rows.csv"}});
             }),
             "the run was trained on texts, not on a table");
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .generate = {.seed = 3}}); }),
             "seed: acts only with");
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .generate = {.count = 0}}); }),
             "words: must be at least 1");
  EXPECT_HAS(
      refusal([&] { predict(PredictConfig{.folder = folder / "run", .generate = {.temperature = -1}}); }),
      "temperature");
}

TEST(TextRuns, ModelsAndDataOfOtherKindsAreRefusedByName) {
  const TempFolder folder;
  TrainConfig config = on_text(folder, folder / "run");
  config.model = "imdb_lstm";
  EXPECT_EQ(refusal([&] { train(config); }),
            "train: imdb_lstm on text: the model must be for language-modelling; it is for "
            "text-classification. Those of "
            "the zoo are ptb_lstm.");
  config.model = "lenet";
  EXPECT_HAS(refusal([&] { train(config); }),
             "train: lenet on text: the model must be for language-modelling");
  config.model = "ptb_lstm";
  config.data = "digits";
  config.text = {};
  config.data_dir = "";
  EXPECT_HAS(refusal([&] { train(config); }),
             "train: ptb_lstm on digits: the model must be for classification");
  make_texts(folder / "texts", 3);
  write_text(
      folder / "one.toml",
      "name = \"one\"\ninputs = [ { name = \"t\", shape = [9], type = \"i64\" } ]\nlayer = [ { type = "
      "\"embedding\", rows = 9, width = 4 }, { type = \"mean\" }, { type = \"linear\", outputs = 2 } ]");
  config = on_texts(folder / "texts", folder / "run");
  config.model = folder / "one.toml";
  EXPECT_HAS(refusal([&] { train(config); }),
             "must take tokens (length) and their number (), both i64; it takes 1 inputs");
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(TextRuns, ADescriptionOfOnesOwnClassifiesTextByTwoOutputsOrOne) {
  const TempFolder folder;
  make_texts(folder / "texts");
  for (const int outputs : {1, 2}) {
    write_text(folder / "net.toml", str("name = \"net\"\ninputs = [ { name = \"t\", shape = [20], type = "
                                        "\"i64\" }, { name = \"n\", shape = [], type = \"i64\" } ]\n",
                                        "layer = [ { type = \"embedding\", rows = 30, width = 8, from = "
                                        "\"t\" }, { type = \"mean\", from = [\"before\", \"n\"] }, ",
                                        "{ type = \"linear\", outputs = ", outputs, " } ]"));
    TrainConfig config = on_texts(folder / "texts", folder / str("run", outputs));
    config.model = folder / "net.toml";
    config.epochs = 20;
    config.lr = 0.05;
    EXPECT_GT(train(config)["test_accuracy"], 0.9) << outputs;
  }
}

// --- The tasks

/// One long text as numbers.
data::TokenWindows windows_of(int64_t tokens, int64_t length, uint32_t salt = 1) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < tokens; ++i)
    text.push_back(static_cast<int64_t>(5 + 4.99 * hash_value(static_cast<uint32_t>(i), salt)));
  return {"made", text, length, ""};
}

class TinyModel final : public nn::Model<TinyModel>, public nn::Stateful {
 public:
  static constexpr auto arguments = nn::names("tokens", "h", "c");
  static constexpr auto results = nn::names("words", "h", "c");
  TinyModel() : embedding_(this, "embedding", 10, 6), lstm_(this, "lstm", 6, 8), fc_(this, "fc", 8, 10) {}
  using Model::forward;
  std::vector<Tensor> forward(const Tensor& tokens, const Tensor& h, const Tensor& c) {
    const nn::LSTMResult r = lstm_(embedding_(tokens), {.h = h, .c = c});
    return {fc_(r.output), r.h, r.c};
  }
  Named first_states(int64_t batch) const override {
    return {{"h", zeros({1, batch, 8})}, {"c", zeros({1, batch, 8})}};
  }

 private:
  nn::Embedding embedding_;
  nn::LSTM lstm_;
  nn::Linear fc_;
};

TEST(LanguageModelling, MeasuresWhatOnePassOverEachPartOfTheTextGives) {
  manual_seed(1);
  TinyModel model;
  model.eval();
  const NoGrad off;
  const TaskPtr task = make_task("language-modelling");
  for (const auto& [tokens, batch] :
       std::vector<std::pair<int64_t, int64_t>>{{101, 4}, {100, 1}, {30, 7}, {9, 50}}) {
    const data::TokenWindows set = windows_of(tokens, 7);
    const Metrics got = evaluate(model, set, {.task = task, .batch = batch});
    // By hand: part r has the windows from r · part on, read in one go.
    const int64_t part = (set.size() + batch - 1) / batch;
    double loss = 0, right = 0, count = 0;
    for (int64_t r = 0; r * part < set.size(); ++r) {
      std::vector<Tensor> states = {zeros({1, 1, 8}), zeros({1, 1, 8})};
      std::vector<Tensor> in, target;
      for (int64_t w = r * part; w < std::min(set.size(), (r + 1) * part); ++w) {
        in.push_back(set.get(w)[0]);
        target.push_back(set.get(w)[1]);
      }
      const Tensor x = unsqueeze(concat(in), 0), y = concat(target);
      const Tensor logits = select(model(std::vector<Tensor>{x, states[0], states[1]})[0], 0, 0);
      const std::vector<int64_t> said = argmax(logits, 1).to_vector<int64_t>(), want = y.to_vector<int64_t>();
      for (size_t i = 0; i < want.size(); ++i) {
        if (want[i] == data::kNoToken) continue;
        const auto at = static_cast<int64_t>(i);
        loss += cross_entropy(slice(logits, 0, at, at + 1), slice(y, 0, at, at + 1)).item<double>();
        right += said[i] == want[i];
        ++count;
      }
    }
    EXPECT_EQ(count, static_cast<double>(tokens - 1)) << "every word that follows another counts once";
    EXPECT_NEAR(got["loss"], loss / count, 1e-5) << tokens << " " << batch;
    EXPECT_NEAR(got["accuracy"], right / count, 1e-12);
    EXPECT_NEAR(got["perplexity"], std::exp(got["loss"]), 1e-9);
    EXPECT_EQ(got.samples, set.size());
  }
}

TEST(LanguageModelling, CarriesStateThroughAnEpochInBothEnginesAndAcrossAStop) {
  const data::TokenWindows set = windows_of(400, 5), test = windows_of(90, 5, 2);
  FitOptions options;
  options.task = make_task("language-modelling");
  options.test = &test;
  options.epochs = 3;
  options.batch = 6;
  options.lr = 0.5;
  const auto trained = [&](TinyModel& model) { return fit(model, set, options); };
  FitResult results[2];
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    manual_seed(2);
    TinyModel model;
    options.engine = engine;
    results[engine == Engine::graph] = trained(model);
  }
  EXPECT_EQ(results[0].weights_sha256, results[1].weights_sha256);
  EXPECT_EQ(results[0]["test_loss"], results[1]["test_loss"]);
  const TempFolder folder;
  options.out = folder / "run";
  options.checkpoint_every = 1;
  for (const int64_t stop : {4, 20, 0}) {
    manual_seed(2);
    TinyModel model;
    options.steps = stop == 0 ? std::nullopt : std::optional(stop);
    const FitResult part = trained(model);
    options.resume = true;
    if (stop > 0) forget_end(options.out);
    if (stop == 0) {
      EXPECT_EQ(part.weights_sha256, results[1].weights_sha256);
    }
  }
}

TEST(TextRuns, TheZoosModelsTrainOnMadeUpTextToTheSameBitsInBothEngines) {
  const TempFolder folder;
  for (const auto& [model, data] :
       {std::pair("imdb_lstm", "synthetic-imdb"), std::pair("ptb_lstm", "synthetic-ptb")}) {
    TrainConfig config;
    config.model = model;
    config.data = data;
    config.limit = 6;
    config.batch = 3;
    config.steps = 2;
    config.out = folder / str(model, "-eager");
    config.engine = Engine::eager;
    const DoneEvent eager = train(config);
    config.out = folder / str(model, "-graph");
    config.engine = Engine::graph;
    expect_same(eager, train(config), model);
  }
}

TEST(TextRuns, TheQuickRecipeOfAModelOfTextIsItsOwn) {
  const TrainConfig imdb = make_config({{"model", std::string("imdb_lstm")}});
  EXPECT_EQ(imdb.optimizer, "adam");
  EXPECT_EQ(imdb.batch, 64);
  EXPECT_EQ(imdb.schedule.kind, "cosine");
  const TrainConfig other = make_config(
      {{"model", std::string("imdb_lstm")}, {"optimizer", std::string("sgd")}, {"batch", int64_t{100}}});
  EXPECT_EQ(other.optimizer, "sgd");
  EXPECT_EQ(given_settings(other).size(), 3u) << "what the user said stays said";
  EXPECT_EQ(make_config(given_settings(other)).batch, 100);
  EXPECT_EQ(make_config({{"model", std::string("lenet")}}).optimizer, "sgd");
}

}  // namespace
}  // namespace tandem::testing
