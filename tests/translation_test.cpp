// Translation from end to end: pairs of texts as data, the task, the models that read and write, and runs of them.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/pairs.h"
#include "tandem/io/zip.h"
#include "tandem/nn/encoder_decoder.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/decode.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using data::open_dataset;
using Numbers = std::vector<int64_t>;

std::string bytes_of(const std::string& path) { return read_text(path); }

// --- Data

TEST(Pairs, HaveTwoVocabulariesAndBeginAndEnd) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 10; ++i) text += "Go now!\tVe ya!\tCC-BY 2.0\r\n";
  write_text(folder / "spa.txt", text + "\nStop.\tAlto.\n");
  const data::Splits splits = open_dataset("manythings", {.data_dir = folder.path()});
  EXPECT_EQ(splits.task, "translation");
  EXPECT_EQ(splits.train->size() + splits.test->size(), 11);
  EXPECT_EQ(splits.test->size(), 2) << "of few pairs a fifth";
  const data::Vocabulary &from = splits.text->vocabulary, &into = *splits.text->into;
  EXPECT_EQ(from.padding(), 0);
  EXPECT_EQ(from.entry(1), "<unk>");
  for (int64_t i = 0; i < splits.train->size(); ++i) {
    const Numbers source = splits.train->get(i)[0].to_vector<int64_t>(),
                  target = splits.train->get(i)[1].to_vector<int64_t>();
    EXPECT_EQ(source.back(), *from.end());
    EXPECT_EQ(target.front(), *into.begin());
    EXPECT_EQ(target.back(), *into.end());
    const bool is_stop = source.size() == 3;
    EXPECT_EQ(from.decode(std::span(source).first(source.size() - 1)), is_stop ? "stop." : "go now!");
    EXPECT_EQ(into.decode(std::span(target).first(target.size() - 1)), is_stop ? "alto." : "ve ya!");
  }
  EXPECT_EQ(data::fingerprint(*open_dataset("manythings", {.data_dir = folder.path()}).train),
            data::fingerprint(*splits.train));
  // The archive has the same pairs.
  const TempFolder packed;
  const std::string bytes = bytes_of(folder / "spa.txt"), about = "about";
  const auto piece = [](const std::string& s) {
    return std::span(reinterpret_cast<const uint8_t*>(s.data()), s.size());
  };
  io::write_zip(packed / "spa-eng.zip", {{"_about.txt", {piece(about)}}, {"spa.txt", {piece(bytes)}}}, true);
  EXPECT_EQ(data::fingerprint(*open_dataset("manythings", {.data_dir = packed.path()}).train),
            data::fingerprint(*splits.train));
  io::write_zip(packed / "spa-eng.zip", {{"_about.txt", {piece(about)}}});
  EXPECT_HAS(refusal([&] { open_dataset("manythings", {.data_dir = packed.path()}); }),
             "must hold one .txt file of pairs besides _about.txt; it holds 0");
  write_text(packed / "spa-eng.zip", "no archive");
  EXPECT_HAS(refusal([&] { open_dataset("manythings", {.data_dir = packed.path()}); }), "spa-eng.zip");
}

TEST(Pairs, BadFilesAreRefusedByLineAndFix) {
  const TempFolder folder;
  const auto why = [&](const std::string& text) {
    write_text(folder / "pairs.txt", text);
    return refusal([&] { open_dataset("manythings", {.data_dir = folder.path()}); });
  };
  EXPECT_HAS(why("a\tb\nno tab here\n"), "line 2, 'no tab here', has no tab. Put one between");
  EXPECT_HAS(why(""), "must hold text; it is empty");
  EXPECT_HAS(why("a\tb\n"), "there must be two pairs or more; got 1");
  EXPECT_HAS(why("a\tb\ncaf\xE9\tc\n"), "UTF-8");
  EXPECT_HAS(why("a\t\n\tb\nc\t \n"), "with text on both sides");
  const TempFolder none;
  EXPECT_HAS(refusal([&] { open_dataset("manythings", {.data_dir = none.path()}); }),
             "an archive such as spa-eng.zip, or its .txt file is missing");
  EXPECT_HAS(
      refusal([&] { open_dataset("manythings", {.data_dir = folder.path(), .text = {.source = "en"}}); }),
      "does not take source, which is for parallel-text");
}

/// Sentences of w0 … w3 and their translations: the words v0 … v3, in reverse.
void make_pairs(const std::string& folder, const char* part, int count, uint32_t salt) {
  std::string source, target;
  for (int i = 0; i < count; ++i) {
    std::string reversed;
    const int length = 1 + static_cast<int>(1.99 * (1 + hash_value(static_cast<uint32_t>(i), salt)));
    for (int k = 0; k < length; ++k) {
      const int word =
          static_cast<int>(2 * (0.999 + hash_value(static_cast<uint32_t>(100 * i + k), salt + 1)));
      source += str(k ? " " : "", "w", word);
      reversed = str("v", word, k ? " " : "", reversed);
    }
    source += "\n";
    target += reversed + "\n";
  }
  write_text(str(folder, "/", part, ".en"), source);
  write_text(str(folder, "/", part, ".xx"), target);
}

TEST(ParallelText, IsTwoFilesOfLinesOrOneOfPairs) {
  const TempFolder folder;
  make_pairs(folder.path(), "train", 30, 1);
  make_pairs(folder.path(), "val", 5, 2);
  make_pairs(folder.path(), "test_2016", 6, 3);
  make_pairs(folder.path(), "test_2017", 7, 4);
  make_pairs(folder.path(), "notes", 2, 5);
  write_text(folder / "README.md", "about");
  const data::Splits splits = open_dataset("parallel-text", {.data_dir = folder.path()});
  EXPECT_EQ(splits.train->size(), 30);
  EXPECT_EQ(splits.valid->size(), 5);
  EXPECT_EQ(splits.test->size(), 13);
  EXPECT_FALSE(splits.split_off);
  EXPECT_EQ(splits.text->vocabulary.entry(4)[0], 'w');
  EXPECT_HAS(splits.notices.at(splits.notices.size() - 2),
             "translates en to xx; `source` xx is the other way");
  EXPECT_HAS(splits.notices.back(), "notes");
  const data::Splits back =
      open_dataset("parallel-text", {.data_dir = folder.path(), .text = {.source = "xx"}});
  EXPECT_EQ(back.text->vocabulary.entry(4)[0], 'v');
  EXPECT_HAS(
      refusal([&] { open_dataset("parallel-text", {.data_dir = folder.path(), .text = {.source = "fr"}}); }),
      "source: must be one of en, xx, the endings of the files; got 'fr'");
  const data::Splits pieces = open_dataset(
      "parallel-text", {.data_dir = folder.path(), .text = {.tokens = "bpe", .vocabulary = 300}});
  EXPECT_FALSE(pieces.text->vocabulary.unknown());
  EXPECT_EQ(data::TextEncoder::from_json(pieces.text->to_json()).into->size(), pieces.text->into->size());

  write_text(folder / "train.xx", bytes_of(folder / "train.xx") + "v1\n");
  EXPECT_HAS(refusal([&] { open_dataset("parallel-text", {.data_dir = folder.path()}); }),
             "train.en has 30 and train.xx has 31. Give files that belong together");
  write_text(folder / "train.xx", "");
  EXPECT_HAS(refusal([&] { open_dataset("parallel-text", {.data_dir = folder.path()}); }),
             "train.xx': must hold text");
  make_pairs(folder.path(), "train", 30, 1);
  write_text(folder / "notes.fr", "a\nb\n");
  fs::remove(folder / "notes.xx");
  EXPECT_HAS(refusal([&] { open_dataset("parallel-text", {.data_dir = folder.path()}); }),
             "must be of two languages, by their endings; got en, fr, xx");

  const TempFolder one;
  std::string text = "g\t\nh h h h\ti\n";
  for (int i = 0; i < 20; ++i) text += str("a b\tc", i, "\n");
  write_text(one / "mine.tsv", text);
  const data::Splits tabbed =
      open_dataset("parallel-text", {.data_dir = one / "mine.tsv", .test_share = 0.3, .text = {.length = 3}});
  EXPECT_TRUE(tabbed.split_off);
  EXPECT_EQ(tabbed.train->size() + tabbed.test->size(), 20) << "one is too long, one has no target";
  EXPECT_HAS(tabbed.notices.at(2), "1 of 22 pairs were left out: a side has more than 3 tokens");
  EXPECT_HAS(tabbed.notices.at(3), "1 of 22 pairs were left out: a side has no text");
  EXPECT_HAS(refusal([&] { open_dataset("parallel-text", {.data_dir = one.path()}); }),
             "two files of lines whose names differ in the ending, such as train.en and train.de is missing");
}

TEST(SyntheticPairs, HaveTheShapesOfTheRealOnes) {
  for (const auto& [name, words, longest] :
       {std::tuple("synthetic-manythings", 10000, 24), std::tuple("synthetic-wmt16", 32000, 50)}) {
    const data::Splits splits = open_dataset(name);
    EXPECT_EQ(splits.text->vocabulary.size(), words);
    EXPECT_EQ(splits.text->into->size(), words);
    int64_t found = 0;
    for (int64_t i = 0; i < 500; ++i) {
      const std::vector<Tensor> sample = splits.train->get(i);
      found = std::max({found, sample[0].size(0) - 1, sample[1].size(0) - 2});
      for (const Tensor& side : sample)
        for (const int64_t token : side.to_vector<int64_t>()) ASSERT_TRUE(token >= 2 && token < words);
    }
    EXPECT_LE(found, longest);
    EXPECT_GT(found, longest / 2);
  }
}

fs::path real_folder(const char* name) {
  const fs::path shared = source_dir().parent_path() / "shared/data" / name;
  if (const char* root = std::getenv("TANDEM_DATA"); root && fs::is_directory(fs::path(root) / name))
    return fs::path(root) / name;
  return fs::is_directory(shared) ? shared : fs::path();
}

TEST(Pairs, TheRealFilesHaveTheKnownNumbersOfPairs) {
  const fs::path spanish = real_folder("spa-eng"), flickr = real_folder("multi30k");
  if (spanish.empty() || flickr.empty())
    GTEST_SKIP() << "spa-eng and multi30k are not here: set TANDEM_DATA to the folder that holds them";
  const data::Splits splits =
      open_dataset("manythings", {.data_dir = spanish.string(), .text = {.length = 100}});
  EXPECT_EQ(splits.train->size(), 80000);
  EXPECT_EQ(splits.test->size(), 20000);
  const data::Splits images =
      open_dataset("parallel-text", {.data_dir = flickr.string(), .text = {.source = "en"}});
  EXPECT_EQ(images.train->size(), 29000);
  EXPECT_EQ(images.valid->size(), 1014);
  EXPECT_EQ(images.test->size(), 2000);
}

// --- The task

/// A model that reads and writes; as small as it can be.
std::unique_ptr<nn::Module> tiny(const std::string& name, uint64_t seed = 1) {
  manual_seed(seed);
  zoo::ModelOptions options{.classes = 9, .vocabulary = 8, .settings = {{"hidden", 6}}};
  if (name == "gnmt") options.settings.emplace_back("layers", 3);
  return zoo::make_model(name, options);
}

data::PairSet some_pairs(int64_t count, uint32_t salt = 1) {
  data::PairSet set("pairs");
  for (int64_t i = 0; i < count; ++i) {
    const auto drawn = [&](uint32_t at, int64_t low, int64_t high) {
      const double u = (1 + hash_value(static_cast<uint32_t>(i) * 64 + at, salt)) / 2;
      return low + static_cast<int64_t>(u * 0.999 * static_cast<double>(high - low));
    };
    Numbers source, target = {2};
    for (int64_t k = drawn(0, 1, 7); k > 0; --k) source.push_back(drawn(static_cast<uint32_t>(1 + k), 4, 8));
    for (int64_t k = drawn(20, 0, 6); k > 0; --k)
      target.push_back(drawn(static_cast<uint32_t>(21 + k), 4, 9));
    source.push_back(3);
    target.push_back(3);
    set.add(source, target);
  }
  return set;
}

TEST(Translation, MeasuresTrueTokensAloneAndPaddingBeside) {
  const NoGrad off;
  const data::PairSet set = some_pairs(40);
  for (const char* name : {"seq2seq", "gnmt"}) {
    const auto model = tiny(name);
    model->eval();
    const Metrics got = evaluate(*model, set, {.task = make_task("translation"), .batch = 7});
    // By hand, each pair by itself and without padding.
    double loss = 0, right = 0, count = 0, longest = 0;
    for (int64_t i = 0; i < set.size(); ++i) {
      const std::vector<Tensor> pair = set.get(i);
      const Dim last = pair[1].size(0) - 1;
      const Tensor logits = select(
          (*model)(std::vector<Tensor>{unsqueeze(pair[0], 0), from_vector<int64_t>({pair[0].size(0)}, {1}),
                                       unsqueeze(slice(pair[1], 0, 0, last), 0)})[0],
          0, 0);
      const Numbers said = argmax(logits, 1).to_vector<int64_t>(),
                    want = slice(pair[1], 0, 1, last + 1).to_vector<int64_t>();
      const std::vector<double> shares = log_softmax(cast(logits, DType::f64), 1).to_vector<double>();
      for (size_t k = 0; k < want.size(); ++k) {
        loss -= shares[k * 9 + static_cast<size_t>(want[k])];
        right += said[k] == want[k];
        ++count;
      }
      longest = std::max(longest, static_cast<double>(want.size()));
    }
    EXPECT_NEAR(got["loss"], loss / count, 1e-5) << name;
    EXPECT_NEAR(got["accuracy"], right / count, 1e-12);
    EXPECT_NEAR(got["perplexity"], std::exp(got["loss"]), 1e-9);
    EXPECT_NEAR(got["accuracy_with_padding"], 1 - (count - right) / (40 * longest), 1e-12);
  }
}

TEST(Translation, WritesStepByStepWhatTeacherForcingExpects) {
  const NoGrad off;
  const Tensor source = from_vector<int64_t>({4, 5, 6, 3, 7, 3, 0, 0}, {2, 4}),
               lengths = from_vector<int64_t>({4, 2}, {2});
  const Tensor before = from_vector<int64_t>({2, 4, 5, 2, 8, 6}, {2, 3});
  for (const char* name : {"seq2seq", "gnmt"}) {
    const auto model = tiny(name);
    model->eval();
    auto& writer = dynamic_cast<nn::EncoderDecoder&>(*model);
    const Tensor at_once = (*model)(std::vector<Tensor>{source, lengths, before})[0];
    std::vector<Tensor> state = writer.read(source, lengths);
    for (Dim t = 0; t < 3; ++t) {
      const nn::EncoderDecoder::Written next = writer.write(select(before, 1, t), state);
      EXPECT_TRUE(near(to_array(next.logits), to_array(select(at_once, 1, t)), 1e-5)) << name << " " << t;
      state = next.state;
    }
    EXPECT_HAS(refusal([&] { (*model)(std::vector<Tensor>{source, lengths}); }), "got 2 tensors");
  }
  EXPECT_EQ(refusal([] {
              zoo::make_model("gnmt", {.settings = {{"layers", 1}}});
            }),
            "model gnmt: layers must be a whole number from 2 to 64; got 1.");
  EXPECT_HAS(refusal([] {
               zoo::make_model("lenet", {.settings = {{"hidden", 3}}});
             }),
             "model lenet: has no settings by name; got hidden.");
  EXPECT_EQ(refusal([] {
              zoo::make_model("gnmt", {.settings = {{"hiden", 3}}});
            }),
            "model gnmt: its settings are hidden, layers; got 'hiden'. Did you mean hidden?");
  EXPECT_HAS(refusal([] { zoo::describe("seq2seq"); }), "has no description");
}

TEST(Translation, NeverWritesPaddingUnknownWordsOrABegin) {
  const NoGrad off;
  const data::PairSet set = some_pairs(30, 4);
  for (const char* name : {"seq2seq", "gnmt"})
    for (const int64_t beams : {1, 3}) {
      const auto model = tiny(name, 5);
      const Tensor written =
          predict(*model, set, {.task = make_task("translation", {.beams = beams}), .batch = 8});
      ASSERT_EQ(written.size(0), 30);
      EXPECT_LE(written.size(1), 26) << "twice the source, and 10";
      for (const int64_t token : written.to_vector<int64_t>())
        EXPECT_TRUE(token == 0 || (token >= 4 && token < 9)) << token;
    }
  EXPECT_HAS(refusal([] { make_task("translation", {.beams = 0}); }), "beams: must be 1 to 1000; got 0");
}

TEST(Translation, StepsAreTracedOncePerBucketAndHaveTheBitsOfTheEagerEngine) {
  const data::PairSet set = some_pairs(203), test = some_pairs(20, 2);
  for (const char* name : {"seq2seq", "gnmt"}) {
    FitOptions options;
    options.task = make_task("translation");
    options.test = &test;
    options.epochs = 3;
    options.batch = 8;
    options.optimizer = "adam";
    options.lr = 0.01;
    std::string sums[2];
    for (const Engine engine : {Engine::eager, Engine::graph}) {
      const auto model = tiny(name);
      options.engine = engine;
      sums[engine == Engine::graph] = fit(*model, set, options).weights_sha256;
    }
    EXPECT_EQ(sums[0], sums[1]) << name;

    // However many batches there are, a step is traced once per length, and once more for what is left of a bucket.
    const auto model = tiny(name);
    const auto optimizer = optim::make_optimizer("sgd", model->named_parameters(), {.lr = 0.1});
    TrainingStep step(*model, *optimizer, Engine::graph, {.task = options.task});
    data::LoaderOptions loading = loader_options(options.task, set, 8, Device{});
    const size_t buckets = loading.buckets->bounds.size();
    data::Loader loader(set, loading);
    int64_t batches = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      loader.start_epoch(epoch);
      while (std::optional<data::Batch> batch = loader.next()) {
        step(batch->tensors);
        ++batches;
      }
    }
    EXPECT_GE(batches, 75);
    EXPECT_LE(step.reports().size(), 2 * buckets) << name;
  }
}

// --- Runs

TrainConfig on_pairs(const TempFolder& folder, const std::string& model, const std::string& out) {
  fs::create_directories(folder / "pairs");
  make_pairs(folder / "pairs", "train", 300, 1);
  make_pairs(folder / "pairs", "test", 40, 2);
  TrainConfig config;
  config.model = model;
  config.data = "parallel-text";
  config.data_dir = folder / "pairs";
  config.text.source = "en";
  config.model_settings = {"hidden=40"};
  if (model == "gnmt") config.model_settings.push_back("layers=3");
  config.epochs = model == "gnmt" ? 4 : 20;
  config.batch = 25;
  config.optimizer = "adam";
  config.lr = 0.02;
  config.schedule.kind = "cosine";
  config.out = out;
  return config;
}

void expect_same(const DoneEvent& a, const DoneEvent& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) EXPECT_EQ(a.values[i].value, b.values[i].value) << what;
}

TEST(TranslationRuns, AreTrainedResumedTestedAndTranslate) {
  for (const std::string model : {"seq2seq", "gnmt"}) {
    const TempFolder folder;
    TrainConfig config = on_pairs(folder, model, folder / "run");
    const DoneEvent done = train(config);
    const bool has_learned = model == "seq2seq";  // the other one takes minutes for it
    EXPECT_GT(done["test_accuracy"], has_learned ? 0.9 : 0.3) << model;
    EXPECT_GT(done["test_accuracy_with_padding"], done["test_accuracy"]);
    // Stopped twice, within an epoch, and resumed.
    TrainConfig parts = config;
    parts.out = folder / "parts";
    parts.checkpoint_every = 1;
    for (const int64_t stop : {7, 30, 0}) {
      parts.steps = stop == 0 ? std::nullopt : std::optional(stop);
      const DoneEvent part = train(parts);
      parts.resume = true;
      if (stop > 0) fs::remove(parts.out + "/model.safetensors");
      if (stop == 0) expect_same(done, part, model);
    }
    parts.model_settings[0] = "hidden=41";
    EXPECT_HAS(refusal([&] { train(parts); }), "model-settings");

    const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
    EXPECT_EQ(report.metrics["accuracy"], done["test_accuracy"]);
    EXPECT_GE(report.metrics["bleu"], has_learned ? 60 : 0) << model;
    for (const int64_t beams : {1, 4}) {
      const PredictReport said =
          predict(PredictConfig{.folder = folder / "run", .files = {"w1 w2", "w3"}, .beams = beams});
      ASSERT_EQ(said.predictions.size(), 2u);
      EXPECT_EQ(said.predictions[0].text[0], 'v') << model;
      if (!has_learned) continue;
      EXPECT_EQ(said.predictions[0].text, "v2 v1");
      EXPECT_EQ(said.predictions[1].text, "v3");
    }
    write_text(folder / "some.txt", "w1\nw2 w1\n");
    const PredictReport lines =
        predict(PredictConfig{.folder = folder / "run", .files = {folder / "some.txt"}});
    ASSERT_EQ(lines.predictions.size(), 2u);
    EXPECT_EQ(lines.predictions[1].source, "w2 w1");
    if (has_learned) {
      EXPECT_EQ(lines.predictions[1].text, "v1 v2");
    }
    const PredictReport samples = predict(PredictConfig{.folder = folder / "run", .limit = 3});
    ASSERT_EQ(samples.predictions.size(), 3u);
    EXPECT_EQ(samples.predictions[0].source[0], 'w');
    EXPECT_EQ(samples.predictions[0].label[0], 'v');
    EXPECT_HAS(predictions_csv(samples), "source,label,predicted\n");
    EXPECT_HAS(
        refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "synthetic-manythings"}); }),
        "its words must be those of training");
    EXPECT_HAS(
        refusal([&] {
          predict(PredictConfig{.folder = folder / "run", .files = {"w1"}, .generate = {.temperature = 1}});
        }),
        "words and temperature: are of language models");
  }
}

TEST(TranslationRuns, ReadPiecesAndRefuseWhatDoesNotFit) {
  const TempFolder folder;
  TrainConfig config = on_pairs(folder, "seq2seq", folder / "run");
  config.text.tokens = "bpe";
  config.text.vocabulary = 270;
  config.epochs = 2;
  train(config);
  EXPECT_FALSE(
      predict(PredictConfig{.folder = folder / "run", .files = {"w1 w2"}}).predictions.at(0).text.empty());
  config.out = folder / "other";
  config.model = "ptb_lstm";
  config.model_settings = {};
  EXPECT_HAS(
      refusal([&] { train(config); }),
      "the model must be for translation; it is for language-modelling. Those of the zoo are seq2seq, gnmt");
  config.model_settings = {"hidden=5"};
  EXPECT_HAS(refusal([&] { train(config); }), "model ptb_lstm: has no settings by name");
  config = on_pairs(folder, "seq2seq", folder / "other");
  config.model_settings.push_back("layers=3");
  EXPECT_HAS(refusal([&] { train(config); }), "model seq2seq: its settings are hidden; got 'layers'.");
  write_text(folder / "run/text.json", "{}");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run"}); }), "text.json");
  const ProcessResult shown = run_command({"models", "seq2seq"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("decoder_embedding"), std::string::npos) << shown.out;
  EXPECT_NE(run_command({"models", "gnmt", "--toml"}).status, 0);
  EXPECT_NE(
      run_command({"search", "synthetic-manythings", "--budget", "1s"}, {.folder = folder.path()}).status, 0);
}

TEST(TranslationRuns, TrainOnMadeUpTextToTheSameBitsInBothEngines) {
  for (const auto& [model, data] :
       {std::pair("seq2seq", "synthetic-manythings"), std::pair("gnmt", "synthetic-wmt16")}) {
    const TempFolder folder;
    TrainConfig config;
    config.model = model;
    config.data = data;
    config.limit = 6;
    config.batch = 3;
    config.steps = 2;
    if (std::string(model) == "gnmt") config.model_settings = {"hidden=16"};
    config.out = folder / "eager";
    config.engine = Engine::eager;
    const DoneEvent eager = train(config);
    config.out = folder / "graph";
    config.engine = Engine::graph;
    expect_same(eager, train(config), model);
  }
}

}  // namespace
}  // namespace tandem::testing
