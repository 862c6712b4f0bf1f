// What --limit takes: samples by chance and with every class, of every form of data, the same in training and in tests.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "tandem/data/compose.h"
#include "tandem/data/labels.h"
#include "tandem/data/split.h"
#include "tandem/io/npy.h"
#include "tandem/ops/create.h"
#include "tandem/train/run_data.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

/// Groups one after the other, of these sizes.
std::vector<int64_t> in_order(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> groups;
  for (size_t i = 0; i < sizes.size(); ++i)
    groups.insert(groups.end(), static_cast<size_t>(sizes[i]), static_cast<int64_t>(i) * 1'000'000'007 - 5);
  return groups;
}

/// How many samples of each group were drawn.
std::vector<int64_t> drawn_of(const std::vector<int64_t>& sizes, int64_t count, uint64_t seed = 0) {
  const std::vector<int64_t> groups = in_order(sizes), indices = data::draw_indices(groups, count, seed);
  EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
  EXPECT_EQ(std::set<int64_t>(indices.begin(), indices.end()).size(), indices.size());
  EXPECT_EQ(static_cast<int64_t>(indices.size()), std::min<int64_t>(count, std::ssize(groups)));
  std::vector<int64_t> drawn;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    drawn.push_back(std::count_if(indices.begin(), indices.end(),
                                  [&](int64_t i) { return i >= begin && i < begin + size; }));
    begin += size;
  }
  return drawn;
}

TEST(DrawIndices, EveryGroupComesInItsShareAndAtLeastOnce) {
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(drawn_of({50, 50}, 10), (Counts{5, 5}));
  EXPECT_EQ(drawn_of({60, 30, 10}, 20), (Counts{12, 6, 2}));
  EXPECT_EQ(drawn_of({997, 1, 1, 1}, 4), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(drawn_of({997, 1, 1, 1}, 40), (Counts{37, 1, 1, 1}));
  EXPECT_EQ(drawn_of({3, 2}, 5), (Counts{3, 2})) << "all";
  EXPECT_EQ(drawn_of({3, 2}, 99), (Counts{3, 2})) << "all";
  for (int64_t count = 1; count <= 60; ++count) {
    const Counts drawn = drawn_of({20, 7, 1, 32}, count, static_cast<uint64_t>(count));
    const auto there = std::count_if(drawn.begin(), drawn.end(), [](int64_t n) { return n > 0; });
    EXPECT_EQ(there, std::min<int64_t>(count, 4)) << count;
  }
  EXPECT_EQ(refusal([] { data::draw_indices(in_order({3}), 0, 0); }),
            "limit: must be at least 1 sample; got 0.");
}

TEST(DrawIndices, TheSeedDecidesAndTheFirstSamplesAreNotPreferred) {
  const std::vector<int64_t> alike(1000);
  const std::vector<int64_t> first = data::draw_indices(alike, 100, 1);
  EXPECT_EQ(first, data::draw_indices(alike, 100, 1));
  EXPECT_NE(first, data::draw_indices(alike, 100, 2));
  EXPECT_GT(first.front() + first.back(), 900);
  EXPECT_LT(first.front() + first.back(), 1100);
}

struct Opened {
  TrainingData data;
  std::string notices;
  /// The classes of a part.
  static std::set<int64_t> classes(const data::Dataset& set) {
    const std::vector<int64_t> labels = data::class_labels(set);
    return {labels.begin(), labels.end()};
  }
};
Opened opened(
    const std::string& model, const std::string& data, const std::string& place, int64_t limit,
    const std::function<void(TrainConfig&)>& more = [](TrainConfig&) {}) {
  TrainConfig config;
  config.model = model;
  config.data = data;
  config.data_dir = place;
  config.limit = limit;
  more(config);
  Opened out{open_training_data(config, zoo::model_info(model)), ""};
  for (const std::string& notice : out.data.splits.notices) out.notices += notice + "\n";
  return out;
}

TEST(Limit, FoldersTablesAndArraysInTheOrderOfTheirClassesGiveEveryClass) {
  const TempFolder folder;
  std::string rows = "x,label\n";
  std::vector<int64_t> labels;
  for (int i = 0; i < 60; ++i) {
    const int cls = i / 20;
    rows += str(i, ",", "abc"[cls], "\n");
    labels.push_back(cls);
    for (const char* kind : {"texts", "photos"})
      fs::create_directories(str(folder.path(), "/", kind, "/", cls));
    write_text(str(folder.path(), "/texts/", cls, "/", i, ".txt"), str("word", cls, " and text ", i));
    write_text(str(folder.path(), "/photos/", cls, "/", i, ".png"),
               "no image: it must not be decoded to be drawn");
  }
  write_text(folder / "rows.csv", rows);
  fs::create_directories(folder / "arrays");
  io::save_npy(folder / "arrays/x.npy", full({60, 2}, 0.5));
  io::save_npy(folder / "arrays/y.npy", from_vector(labels, {60}));
  const std::set<int64_t> all = {0, 1, 2};
  for (const auto& [model, data, place] :
       {std::tuple("mlp", "csv", "rows.csv"), std::tuple("mlp", "npy", "arrays"),
        std::tuple("imdb_lstm", "text-folder", "texts"), std::tuple("lenet", "image-folder", "photos")}) {
    const Opened some = opened(model, data, folder / place, 6);
    const data::Splits& splits = some.data.splits;
    EXPECT_EQ(some.data.taken,
              "6 of 48 samples to train, 6 of 12 samples to test, drawn by chance, split seed 0");
    EXPECT_EQ(some.notices.find("limit:"), std::string::npos);
    EXPECT_EQ(splits.train->size(), 6) << data;
    EXPECT_EQ(splits.test->size(), 6) << data;
    if (std::string(data) == "image-folder") continue;  // whose samples cannot be read here
    EXPECT_EQ(Opened::classes(*splits.train), all) << data;
    EXPECT_EQ(Opened::classes(*splits.test), all) << data;
  }
  EXPECT_HAS(
      opened("mlp", "csv", folder / "rows.csv", 2).notices,
      "limit: the 2 samples to train are of 2 of the 3 classes, and the 2 samples to test are of 2 of the 3 "
      "classes. Give a larger `limit` to have every class.");
  EXPECT_EQ(opened("mlp", "csv", folder / "rows.csv", 48).data.taken, "");
  EXPECT_EQ(opened("mlp", "csv", folder / "rows.csv", 12).data.taken,
            "12 of 48 samples to train, all 12 samples to test, drawn by chance, split seed 0");
}

TEST(Limit, NamedSetsPairsAndSpeechAreDrawnByChanceAndALongTextKeepsItsOrder) {
  const auto is_first = [](const Opened& some, const std::string& data, int64_t limit) {
    const data::Splits whole = data::open_dataset(data);
    return data::fingerprint(*some.data.splits.train) == data::fingerprint(*data::first(whole.train, limit));
  };
  const Opened digits = opened("lenet", "digits", "", 10);
  EXPECT_EQ(Opened::classes(*digits.data.splits.train).size(), 10u);
  EXPECT_EQ(Opened::classes(*digits.data.splits.test).size(), 10u);
  const Opened photos = opened("alexnet", "synthetic-imagenet", "", 1000);
  EXPECT_EQ(Opened::classes(*photos.data.splits.test).size(), 1000u);
  for (const auto& [model, data] :
       {std::pair("seq2seq", "synthetic-manythings"), std::pair("deepspeech2", "synthetic-librispeech")}) {
    const Opened some = opened(model, data, "", 3);
    EXPECT_HAS(some.data.taken, "drawn by chance");
    EXPECT_FALSE(is_first(some, data, 3)) << data;
  }
  const Opened text = opened("ptb_lstm", "synthetic-ptb", "", 3);
  EXPECT_HAS(text.data.taken, "the first windows of the text");
  EXPECT_TRUE(is_first(text, "synthetic-ptb", 3));
}

TEST(Limit, TheSplitSeedDrawsOthersAndValidationIsHeldOutOfWhatWasDrawn) {
  const auto drawn = [](uint64_t seed, double valid) {
    return opened("lenet", "digits", "", 40, [&](TrainConfig& config) {
      config.split_seed = seed;
      config.valid = valid;
    });
  };
  const auto print = [](const Opened& some) { return data::fingerprint(*some.data.splits.train); };
  EXPECT_EQ(print(drawn(0, 0)), print(drawn(0, 0)));
  EXPECT_NE(print(drawn(0, 0)), print(drawn(7, 0)));
  EXPECT_HAS(drawn(7, 0).data.taken, "split seed 7");
  const Opened held = drawn(0, 0.25);
  EXPECT_EQ(held.data.splits.train->size(), 30);
  EXPECT_EQ(held.data.valid->size(), 10);
  // Fewer samples than the numbers of the classes: these are names alone.
  const Opened few =
      opened("lenet", "digits", "", 4, [](TrainConfig& config) { config.class_weights = true; });
  EXPECT_EQ(few.data.splits.train->size(), 4);
}

TEST(Limit, EvaluationDrawsTheSamplesThatTheRunWasTestedOn) {
  const TempFolder folder;
  std::string rows = "x,label\n";
  for (int i = 0; i < 100; ++i) rows += str(i, i < 50 ? ",low\n" : ",high\n");
  write_text(folder / "rows.csv", rows);
  TrainConfig config;
  config.model = "mlp";
  config.data = "csv";
  config.data_dir = folder / "rows.csv";
  config.batch = 5;
  config.limit = 10;
  config.split_seed = 3;
  config.out = folder / "run";
  const DoneEvent done = train(config);
  const EvalReport some = evaluate(EvalConfig{.folder = config.out, .limit = 10});
  EXPECT_EQ(some.metrics["loss"], done["test_loss"]);
  EXPECT_EQ(some.metrics.confusion.scores(0).support, 5);
  EXPECT_EQ(some.metrics.confusion.scores(1).support, 5);
  EXPECT_EQ(some.taken, "10 of 20 samples to test, drawn by chance, split seed 3");
  EXPECT_EQ(evaluate(EvalConfig{.folder = config.out}).samples, 20);
}

}  // namespace
}  // namespace tandem::testing
