// Searches: spaces, proposals, successive halving, variants of models, and whole searches, killed and resumed.
// ctest: timeout=600
#include "tandem/search/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "tandem/io/safetensors.h"
#include "tandem/search/halving.h"
#include "tandem/search/tpe.h"
#include "tandem/search/variant.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/train.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem;
using namespace tandem::search;
using nlohmann::ordered_json;
using tandem::testing::Process;
using tandem::testing::ProcessResult;
using tandem::testing::refusal;
using tandem::testing::run_command;
using tandem::testing::TempFolder;

ordered_json read_json_file(const std::string& path) {
  std::ifstream file(path);
  return ordered_json::parse(file);
}

/// What must be the same however often a search was stopped: all but the times.
ordered_json trials_of(const std::string& folder) {
  ordered_json trials = read_json_file(folder + "/search.json").at("trials");
  for (ordered_json& trial : trials) {
    trial.erase("seconds");
    trial.erase("marks");
  }
  return trials;
}

// --- spaces

TEST(Space, AFileIsReadInItsOrderAndWrittenAsItWas) {
  const Space space = parse_space(
      "momentum = { low = 0.8, high = 0.98 }\n"
      "lr = { low = 1e-4, high = 0.1, scale = \"log\" }\n"
      "batch = [128, 32, 64]\n"
      "optimizer = [\"sgd\", \"adam\"]\n"
      "depth = { low = 1, high = 3 }\n"
      "batch_norm = [false, true]\n"
      "schedule = \"cosine\"\n");
  ASSERT_EQ(space.parameters.size(), 7u);
  EXPECT_EQ(space.parameters[0].name, "momentum");
  EXPECT_EQ(space.find("lr")->scale, Scale::log);
  EXPECT_NEAR(space.find("lr")->number(0.5), std::sqrt(1e-5), 1e-5);
  EXPECT_EQ(space.find("batch")->scale, Scale::ordered);
  EXPECT_EQ(space.find("batch")->text(0), "32");  // numbers are put in order
  EXPECT_EQ(space.find("depth")->scale, Scale::whole);
  EXPECT_EQ(space.find("depth")->text(0), "1");
  EXPECT_EQ(space.find("depth")->text(0.5), "2");
  EXPECT_EQ(space.find("depth")->text(1), "3");
  EXPECT_EQ(space.find("schedule")->text(0), "cosine");
  EXPECT_EQ(parse_space(space.to_toml()).to_toml(), space.to_toml());
}

TEST(Space, TheNearestPointHasTheNearestValues) {
  const Space space = default_space();
  const Settings near = space.settings(space.nearest(
      {{"lr_factor", "1"}, {"batch", "100"}, {"optimizer", "adam"}, {"depth", "2"}, {"width", "1"}}));
  EXPECT_EQ(near[0], (std::pair<std::string, std::string>("lr_factor", "1")));
  EXPECT_EQ(near[1].second, "128");
  EXPECT_EQ(near[2].second, "adam");
  EXPECT_EQ(near[6].second, "1");
  EXPECT_EQ(near[7].second, "2");
}

TEST(Space, WhatIsWrongInAFileIsSaidInOneLineWithItsLine) {
  const auto message = [](const std::string& text) {
    return refusal([&] { (void)parse_space(text, "s.toml"); });
  };
  EXPECT_EQ(message("lr = 0.1\nmomentun = [0.9]\n").substr(0, 55),
            "space 's.toml', line 2: a parameter must be one of mode");
  EXPECT_HAS(message("momentun = [0.9]"), "Did you mean momentum?");
  EXPECT_HAS(message("lr = { low = 0.1, high = 0.01 }"),
             "the low end of lr must be below the high one; got 0.1 and 0.01");
  EXPECT_HAS(message("lr = { low = 0.1 }"), "got no high");
  EXPECT_HAS(message("lr = { low = 0.1, high = 1, step = 2 }"),
             "a range has low, high and scale; got 'step'");
  EXPECT_HAS(message("weight_decay = { low = 0, high = 1, scale = \"log\" }"), "begin above 0");
  EXPECT_HAS(message("optimizer = [\"sgd\", \"adan\"]"), "Did you mean adam?");
  EXPECT_HAS(message("optimizer = { low = 1, high = 2 }"), "must be a list of words");
  EXPECT_HAS(message("batch = [0.5]"), "whole numbers from 1");
  EXPECT_HAS(message("batch = []"), "must list 1 to 100 values; got 0");
  EXPECT_HAS(message("batch = [32, 32]"), "once; got 32 twice");
  EXPECT_HAS(message("lr = [0.1]\nlr_factor = [1]"), "say the same");
  EXPECT_HAS(message("lr = = 1"), "line 1: must be TOML");
  EXPECT_HAS(message(""), "must have a parameter; got none");
  for (const char* text : {"momentun = [0.9]", "lr = = 1", "batch = []", "lr = nan"})
    EXPECT_EQ(message(text).find('\n'), std::string::npos) << text;
}

// --- proposals

/// Highest at lr 0.01 of adam, where the other optimisers are worse at every rate.
double known_function(const Space& space, const Point& point) {
  const double lr = std::log10(space.parameters[0].number(point[0])),
               momentum = space.parameters[1].number(point[1]);
  const std::string optimizer = space.parameters[2].text(point[2]);
  const double batch = std::log2(space.parameters[3].number(point[3]));
  return -(lr + 2) * (lr + 2) - 20 * (momentum - 0.9) * (momentum - 0.9) - 0.1 * (batch - 6) * (batch - 6) -
         (optimizer == "adam" ? 0 : 0.5);
}

TEST(Proposals, ParzenEstimatorsFindMoreThanChanceOnAKnownFunction) {
  const Space space = parse_space(
      "lr = { low = 1e-6, high = 10, scale = \"log\" }\nmomentum = { low = 0, high = 0.99 }\n"
      "optimizer = [\"sgd\", \"adam\", \"nesterov\", \"rmsprop\"]\nbatch = [16, 32, 64, 128, 256]\n");
  int won = 0;
  double sum_tpe = 0, sum_random = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<std::pair<double, Point>> seen;  // the best first
    double best_random = -1e9;
    for (int64_t number = 1; number <= 60; ++number) {
      std::vector<Point> points;
      for (const auto& row : seen) points.push_back(row.second);
      const Point point = tpe_point(space, points, number, {.seed = seed});
      ASSERT_EQ(point, tpe_point(space, points, number, {.seed = seed}));  // a function of its arguments
      seen.emplace_back(known_function(space, point), point);
      std::stable_sort(seen.begin(), seen.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      best_random = std::max(best_random, known_function(space, random_point(space, seed, number)));
    }
    won += seen[0].first > best_random;
    sum_tpe += seen[0].first;
    sum_random += best_random;
  }
  EXPECT_GE(won, 9);
  EXPECT_GT(sum_tpe, sum_random / 3);  // both are negative: a third of the loss
}

TEST(Proposals, PointsLieInTheSpaceAndSeedsDiffer) {
  const Space space = default_space();
  std::vector<Point> points;
  for (int64_t i = 0; i < 30; ++i) points.push_back(random_point(space, 3, i));
  EXPECT_NE(random_point(space, 3, 1), random_point(space, 4, 1));
  EXPECT_NE(points[0], points[1]);
  for (int64_t i = 0; i < 100; ++i) {
    const Point point = tpe_point(space, points, i, {.seed = 1});
    for (size_t k = 0; k < point.size(); ++k) {
      const Parameter& p = space.parameters[k];
      EXPECT_GE(point[k], 0);
      EXPECT_LE(point[k], p.is_list() ? static_cast<double>(p.values.size() - 1) : 1.0);
    }
  }
}

// --- successive halving

TEST(Halving, RungsGrowByEta) {
  EXPECT_EQ(rungs_of(1, 9, 3), (std::vector<int64_t>{1, 3, 9}));
  EXPECT_EQ(rungs_of(1, 10, 3), (std::vector<int64_t>{1, 3, 10}));
  EXPECT_EQ(rungs_of(2, 16, 2), (std::vector<int64_t>{2, 4, 8, 16}));
  EXPECT_EQ(rungs_of(1, 1, 3), (std::vector<int64_t>{1}));
}

TEST(Halving, TheBestOfEachRungGoOnByRank) {
  constexpr double kFailed = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(next_promotion({{0.5}, {0.9}}, 3, 3), std::nullopt);  // one of three, and there are two
  EXPECT_EQ(next_promotion({{0.5}, {0.9}, {0.7}}, 3, 3), 1u);
  EXPECT_EQ(next_promotion({{0.5}, {0.9, 0.91}, {0.7}}, 3, 3), std::nullopt);  // it has gone on already
  EXPECT_EQ(next_promotion({{0.5}, {0.9, 0.91}, {0.7}, {0.95}}, 3, 3), 3u);    // now it is the best
  EXPECT_EQ(next_promotion({{0.9}, {0.9}, {0.9}}, 3, 3), 0u);                  // the earlier one
  // Two rungs could go on: the higher one comes first.
  EXPECT_EQ(next_promotion({{0.6, 0.7}, {0.7, 0.9}, {0.8, 0.8}, {0.95}, {0.1}, {0.2}}, 3, 3), 1u);
  EXPECT_EQ(next_promotion({{kFailed}, {kFailed}, {kFailed}}, 3, 3), std::nullopt);
  EXPECT_EQ(next_promotion({{0.5}, {0.9}, {0.7}}, 1, 3), std::nullopt);  // nothing above the only rung
}

TEST(Halving, AtTheEndTheLeaderGetsItsFullLength) {
  EXPECT_EQ(next_leader({{0.5}, {0.9}}, 3, 1), 1u);
  EXPECT_EQ(next_leader({{0.95}, {0.9, 0.91}}, 3, 1), 1u);  // the furthest first
  EXPECT_EQ(next_leader({{0.95}, {0.9, 0.91, 0.92}}, 3, 1), std::nullopt);
  EXPECT_EQ(next_leader({{0.95}, {0.9, 0.91, 0.92}}, 3, 2), 0u);
}

// --- variants

TEST(Variants, EveryModelOfTheZooCanBeVariedAndKeepsItsOutputs) {
  for (const zoo::ModelInfo& row : zoo::models()) {
    // Of text: its layers have no widths that are varied; of speech: it has no description.
    if (row.task != "classification") continue;
    SCOPED_TRACE(row.name);
    const zoo::ModelDescription own = zoo::describe(row.name);
    EXPECT_EQ(zoo::to_toml(vary(own, {})), zoo::to_toml(own));
    for (const Variant& variant :
         {Variant{.width = 0.5}, Variant{.width = 1.7}, Variant{.depth = 3}, Variant{.activation = "silu"},
          Variant{.dropout = 0.3}, Variant{.batch_norm = true}, Variant{.batch_norm = false},
          Variant{.width = 0.7, .depth = 2, .activation = "tanh", .dropout = 0.1, .batch_norm = true}}) {
      const zoo::ModelDescription varied = vary(own, variant);
      EXPECT_EQ(zoo::output_shape(varied), (Dims{row.classes}));
      EXPECT_EQ(zoo::to_toml(zoo::parse_description(zoo::to_toml(varied))), zoo::to_toml(varied));
    }
    EXPECT_GT(vary(own, {.depth = 2}).layers.size(), own.layers.size());
  }
}

TEST(Variants, TemplatesTakeSamplesOfAnyShape) {
  for (const Dims& input : {Dims{4}, Dims{1, 28, 28}, Dims{3, 32, 32}, Dims{3, 5, 5}, Dims{6, 20}})
    EXPECT_EQ(zoo::output_shape(template_model(input, 7)), (Dims{7})) << str(input);
}

// --- whole searches

SearchConfig small_search(const std::string& out) {
  SearchConfig config{.trials = 7};
  config.base.model = "lenet";
  config.base.data = "digits";
  config.base.limit = 600;
  config.base.epochs = 3;
  config.base.out = out;
  config.space = parse_space(
      "lr = { low = 0.001, high = 0.1, scale = \"log\" }\nbatch = [20, 50]\noptimizer = [\"sgd\", \"adam\"]\n"
      "schedule = [\"constant\", \"cosine\"]\nwidth = { low = 0.5, high = 1.5 }\n");
  return config;
}

TEST(Search, ASmallOneOnDigitsFindsMoreThanTheUsualSettings) {
  const TempFolder folder;
  int ends = 0;
  const SearchResult result = tandem::search::search(
      small_search(folder / "s"),
      [&](const SearchEvent& event) { ends += std::holds_alternative<TrialEndEvent>(event); });
  ASSERT_TRUE(result.winner);
  EXPECT_EQ(result.ended, "trials");
  EXPECT_EQ(result.trials.size(), 7u);
  EXPECT_GT(ends, 7);  // the best went on
  EXPECT_EQ(result.metric.name, "valid_accuracy");
  const Trial &best = result.trials[*result.winner], &usual = result.trials[0];
  EXPECT_EQ(usual.settings[0].second,
            "0.01");  // the first trial is as near to the defaults as the space allows
  EXPECT_GT(best.values[*best.best_epoch(true)], usual.values[0]);
  EXPECT_EQ(best.values.size(), 3u);  // the winner has had its full length
  EXPECT_GT(value_of(result.test, "test_accuracy"), 0.5);
  for (const char* file : {"search.json", "leaderboard.csv", "search.svg", "winner.toml"})
    EXPECT_TRUE(fs::exists(folder / ("s/" + std::string(file)))) << file;
  EXPECT_TRUE(fs::exists(best_path(result.winner_folder)));

  // The command that it gives makes the same weights.
  std::istringstream words(result.winner_command);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  arguments.erase(arguments.begin());
  arguments.insert(arguments.end(), {"--out", folder / "again"});
  const ProcessResult again = run_command(arguments);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(io::weights_sha256(io::load_safetensors(best_path(folder / "again")).tensors),
            io::weights_sha256(io::load_safetensors(best_path(result.winner_folder)).tensors));
}

TEST(Search, ADataSetAloneIsSearchedFromTheModelsThatFitIt) {
  const TempFolder folder;
  SearchConfig config{.trials = 2};
  config.base.data = "digits";
  config.base.limit = 200;
  config.base.epochs = 1;
  config.base.out = folder / "s";
  std::vector<std::string> models;
  const SearchResult result = tandem::search::search(config, [&](const SearchEvent& event) {
    if (const auto* start = std::get_if<SearchStartEvent>(&event)) models = start->models;
  });
  EXPECT_EQ(models, (std::vector<std::string>{"lenet", "mlp", "mnist_cnn", "simple_cnn"}));
  EXPECT_TRUE(result.winner);
}

TEST(Search, ATrialThatFailsIsRecordedAndTheSearchGoesOn) {
  const TempFolder folder;
  SearchConfig config = small_search(folder / "s");
  config.space = parse_space("lr = [0.01, 1e6]\noptimizer = \"sgd\"\n");
  config.base.limit = 600;
  config.base.epochs = 1;
  config.method = "random";
  config.trials = 5;
  const SearchResult result = tandem::search::search(config);
  ASSERT_TRUE(result.winner);
  EXPECT_EQ(result.trials.size(), 5u);
  int failed = 0;
  for (const Trial& trial : result.trials) {
    if (trial.failed.empty()) continue;
    ++failed;
    EXPECT_HAS(trial.failed, "the loss became");
  }
  EXPECT_GT(failed, 0);
  EXPECT_FALSE(result.trials[result.ranked.back()].failed.empty());
}

TEST(Search, ResumedAfterEveryTrialItMakesTheSameProposals) {
  const TempFolder folder;
  SearchConfig config = small_search(folder / "whole");
  config.trials = 13;  // enough for proposals that learn from the trials before
  config.base.limit = 200;
  (void)tandem::search::search(config);
  config.base.out = folder / "parts";
  for (int64_t trials = 1; trials <= 13; ++trials) {
    std::atomic<bool> stop{false};
    config.base.stop = &stop;
    const SearchResult part = tandem::search::search(config, [&](const SearchEvent& event) {
      const auto* end = std::get_if<TrialStartEvent>(&event);
      if (end && end->trial.number == trials) stop = trials < 13;
    });
    EXPECT_EQ(part.ended, trials < 13 ? "interrupted" : "trials");
    config.base.resume = true;
  }
  EXPECT_EQ(trials_of(folder / "parts"), trials_of(folder / "whole"));
}

TEST(Search, KilledAtAnyMomentAndResumedItHasTheSameTrials) {
  const TempFolder folder;
  const auto arguments = [&](const std::string& out) {
    return std::vector<std::string>{"search", "lenet",    "--data", "digits",   "--limit",
                                    "300",    "--trials", "6",      "--epochs", "3",
                                    "--json", "--seed",   "5",      "--out",    folder / out};
  };
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult whole = run_command(arguments("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::chrono::duration<double> length = std::chrono::steady_clock::now() - begin;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(str("seed ", seed));
  std::mt19937 random(seed);
  for (int kills = 0;; ++kills) {
    std::vector<std::string> now = arguments("killed");
    if (fs::exists(folder / "killed/search.json")) now.push_back("--resume");
    Process process(now);
    if (kills < 6) {
      const double moment = std::uniform_real_distribution<double>(0, 0.6 * length.count())(random);
      std::this_thread::sleep_for(std::chrono::duration<double>(moment));
      process.kill();
      (void)process.wait();
      continue;
    }
    const ProcessResult last = process.wait();
    ASSERT_EQ(last.status, 0) << last.err;
    break;
  }
  EXPECT_EQ(trials_of(folder / "killed"), trials_of(folder / "whole"));
}

TEST(Search, TheBudgetEndsItAndMoreOfItGoesOn) {
  const TempFolder folder;
  SearchConfig config = small_search(folder / "s");
  config.trials.reset();
  config.base.limit = 3000;
  config.base.epochs = 9;
  config.budget = 1;
  const SearchResult first = tandem::search::search(config);
  EXPECT_EQ(first.ended, "budget");
  config.base.resume = true;
  config.budget = first.seconds + 3;
  const SearchResult second = tandem::search::search(config);
  EXPECT_GT(second.seconds, first.seconds + 2);
  EXPECT_GE(second.trials.size(), first.trials.size());
}

TEST(Search, WhatCannotBeIsRefusedBeforeAnythingIsWritten) {
  const TempFolder folder;
  const auto message = [&](const auto& change) {
    SearchConfig config = small_search(folder / "s");
    change(config);
    const std::string text = refusal([&] { (void)tandem::search::search(config); });
    EXPECT_FALSE(fs::exists(folder / "s/search.json")) << text;
    return text;
  };
  EXPECT_HAS(message([](SearchConfig& c) { c.trials.reset(); }), "must have an end");
  EXPECT_HAS(message([](SearchConfig& c) { c.method = "grid"; }), "must be tpe, asha or random");
  EXPECT_HAS(message([](SearchConfig& c) { c.monitor = "test_accuracy"; }),
             "validation part; got test_accuracy");
  EXPECT_HAS(message([](SearchConfig& c) { c.monitor = "beauty"; }), "must be one of accuracy");
  EXPECT_HAS(message([](SearchConfig& c) { c.base.model = "lenot"; }), "Did you mean lenet?");
  EXPECT_HAS(message([](SearchConfig& c) { c.base.resume = true; }), "holds no search");
  EXPECT_HAS(message([](SearchConfig& c) { c.trials = 0; }), "trials: ");
}

TEST(Search, AResumedOneMustHaveTheSameSettings) {
  const TempFolder folder;
  SearchConfig config = small_search(folder / "s");
  config.trials = 1;
  config.base.limit = 100;
  config.base.epochs = 1;
  (void)tandem::search::search(config);
  EXPECT_HAS(refusal([&] { (void)tandem::search::search(config); }), "holds a search already");
  config.base.resume = true;
  config.trials = 2;
  const auto refused = [&](const auto& change) {
    SearchConfig other = config;
    change(other.base);
    return refusal([&] { (void)tandem::search::search(other); });
  };
  EXPECT_HAS(refused([](TrainConfig& c) { c.seed = 1; }),
             "the search was begun with seed 0; got seed 1. Give `seed` as it was, or begin a new search");
  EXPECT_HAS(refused([](TrainConfig& c) { c.split_seed = 5; }), "split-seed 0; got split-seed 5");
  EXPECT_HAS(refused([](TrainConfig& c) { c.class_weights = true; }), "Give `class_weights` as it was");
  EXPECT_HAS(refused([](TrainConfig& c) { c.ema = 0.9; }), "ema none; got ema 0.9");
  EXPECT_HAS(refused([](TrainConfig& c) { c.accumulate = 2; }), "accumulate 1; got accumulate 2");
  EXPECT_HAS(refused([](TrainConfig& c) { c.freeze = {"conv1"}; }), "Give `freeze` as it was");
  EXPECT_HAS(refused([](TrainConfig& c) { c.machine.conv = ChoiceMode::fixed; }),
             "Give `machine.conv` as it was");
  EXPECT_HAS(refused([](TrainConfig& c) { c.valid = 0.3; }), "valid 0.1; got valid 0.3");
  EXPECT_HAS(refused([](TrainConfig& c) { c.clip_norm = 1; }), "Give `clip_norm` as it was");
  EXPECT_HAS(refused([&](TrainConfig& c) { c.weights = folder / "s/trials/0001"; }),
             "Give `weights` as it was");
  config.base.machine.threads = 1;
  config.base.engine = Engine::eager;
  EXPECT_EQ(tandem::search::search(config).trials.size(), 2u);
}

TEST(Search, AResumedOneMustHaveTheSameData) {
  const TempFolder folder;
  const auto write = [&](int period, const char* second = "odd") {
    std::ofstream file(folder / "a.csv");
    file << "x,y,label\n";
    for (int i = 0; i < 60; ++i)
      file << i << ',' << i % period << ',' << (i % 2 == 0 ? "even" : second) << '\n';
  };
  write(7);
  SearchConfig config;
  config.base.model = "mlp";
  config.base.data = "csv";
  config.base.data_dir = folder / "a.csv";
  config.base.epochs = 1;
  config.base.freeze = {"fc1"};
  config.base.out = folder / "s";
  config.trials = 1;
  (void)tandem::search::search(config);
  config.base.resume = true;
  config.trials = 2;
  write(5);
  const std::string text = refusal([&] { (void)tandem::search::search(config); });
  EXPECT_HAS(text, "the search was begun with train_data ");
  EXPECT_HAS(text, "Give the same data");
  write(7, "uneven");
  EXPECT_HAS(refusal([&] { (void)tandem::search::search(config); }),
             "the search was begun with other class names in its data");
  write(5);
  config.base.freeze = {};
  EXPECT_HAS(refusal([&] { (void)tandem::search::search(config); }), "Give `freeze` as it was");
}

TEST(Search, AFrozenLayerThatAVariantDrawsAnewFailsTheTrial) {
  const TempFolder folder;
  TrainConfig first;
  first.model = "lenet";
  first.data = "digits";
  first.limit = 50;
  first.out = folder / "first";
  (void)train(first);
  SearchConfig config = small_search(folder / "s");
  config.space = parse_space("width = [1, 2]\n");
  config.base.limit = 50;
  config.base.epochs = 1;
  config.base.weights = folder / "first";
  config.base.freeze = {"conv1"};
  config.method = "random";
  config.trials = 4;
  const SearchResult result = tandem::search::search(config);
  ASSERT_TRUE(result.winner);
  int failed = 0;
  for (const Trial& trial : result.trials) {
    const bool is_wide = trial.settings.back().second == "2";
    EXPECT_EQ(trial.failed.empty(), !is_wide) << trial.failed;
    if (!is_wide) continue;
    ++failed;
    EXPECT_HAS(trial.failed,
               "freeze: what is frozen must have come from `weights`; conv1.weight did not fit");
  }
  EXPECT_GT(failed, 0);
}

TEST(Search, OneThatFindsNothingHasFailed) {
  const TempFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"search", "mlp", "--data", "digits", "--limit", "2000"};
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  };
  std::ofstream(folder / "space.toml") << "lr = [1e6]\n";
  const ProcessResult failed =
      run({"--space", folder / "space.toml", "--trials", "2", "--epochs", "1", "--out", folder / "failed"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_HAS(failed.err,
             "search: some trial must succeed; all 2 failed, the first with: train: the loss became");
  const ProcessResult spent = run({"--budget", "0.001s", "--epochs", "9", "--out", folder / "spent"});
  EXPECT_EQ(spent.status, 1);
  EXPECT_HAS(spent.err, "Give more --budget with --resume.");
  const ProcessResult empty = run({"--budget", "", "--out", folder / "empty"});
  EXPECT_EQ(empty.status, 2);
  EXPECT_HAS(empty.err, "budget: must not be empty; got ''.");
  const ProcessResult none = run({"--trials", "1", "--valid", "0", "--out", folder / "none"});
  EXPECT_EQ(none.status, 2);
  EXPECT_HAS(none.err, "valid: a search must hold samples out");
}

}  // namespace
