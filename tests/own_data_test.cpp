// Runs on data of the user's own, from end to end: tables, photographs and arrays are trained on, tested and predicted by
// name; the model is made to fit them; engines, stops and saved runs agree to the bit.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/core/rng.h"
#include "tandem/data/labels.h"
#include "tandem/data/split.h"
#include "tandem/data/table_set.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/parameter_names.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/train.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

std::string table(const char* name) { return (source_dir() / "tests/data/tables" / name).string(); }

TrainConfig on_table(const char* file, const std::string& target, const std::string& out) {
  TrainConfig config;
  config.model = "mlp";
  config.data = "csv";
  config.data_dir = table(file);
  config.target = target;
  config.epochs = 12;
  config.batch = 16;
  config.optimizer = "adam";
  config.out = out;
  return config;
}

/// Photographs of two kinds, more of the first: bright above, or bright below; in sizes of their own.
void make_photos(const std::string& folder, int first = 12, int second = 6) {
  for (const auto& [name, count] : {std::pair("above", first), std::pair("below", second)}) {
    fs::create_directories(fs::path(folder) / name);
    for (int i = 0; i < count; ++i) {
      const Dim height = 30 + i, width = 44 - i;
      std::vector<uint8_t> pixels;
      for (Dim c = 0; c < 3; ++c)
        for (Dim y = 0; y < height; ++y)
          for (Dim x = 0; x < width; ++x) {
            const bool bright = (y < height / 2) == (std::string(name) == "above");
            pixels.push_back(
                static_cast<uint8_t>((bright ? 150 : 20) + (x * 7 + y * 3 + i * 11 + c * 5) % 60));
          }
      write_text(str(folder, "/", name, "/", i, ".png"), [&] {
        const std::vector<uint8_t> png = io::encode_png(from_vector(pixels, {3, height, width}));
        return std::string(png.begin(), png.end());
      }());
    }
  }
}

TrainConfig on_photos(const std::string& photos, const std::string& out) {
  TrainConfig config;
  config.model = "lenet";
  config.data = "image-folder";
  config.data_dir = photos;
  config.epochs = 4;
  config.batch = 4;
  config.optimizer = "adam";
  config.out = out;
  return config;
}

void expect_same(const DoneEvent& a, const DoneEvent& b, const std::string& what) {
  EXPECT_EQ(a.weights_sha256, b.weights_sha256) << what;
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) EXPECT_EQ(a.values[i].value, b.values[i].value) << what;
}

TEST(OwnData, ATableOfQuantitiesIsRegressionInItsOwnUnit) {
  const TempFolder folder;
  const DoneEvent done = train(on_table("diabetes.csv", "progression", folder / "run"));
  EXPECT_GT(done["test_r2"], 0.3);
  EXPECT_NEAR(done["test_rmse"], std::sqrt(done["test_mse"]), 1e-9);
  EXPECT_GT(done["test_rmse"], 30) << "in the unit of the column, not in deviations";
  const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
  EXPECT_EQ(report.task, "regression");
  for (const char* metric : {"loss", "r2", "mse", "mae"})
    EXPECT_EQ(report.metrics[metric], done["test_" + std::string(metric)]) << metric;

  // Rows of another file, in another order of columns, without the target.
  const data::Table all = data::read_table(table("diabetes.csv"));
  write_text(folder / "few.csv", "s6,age,sex,bmi,bp,s1,s2,s3,s4,s5\n87,59,2,32.1,101,157,93.2,38,4,4.8598\n");
  const PredictReport few = predict(PredictConfig{.folder = folder / "run", .files = {folder / "few.csv"}});
  ASSERT_EQ(few.predictions.size(), 1u);
  const PredictReport whole =
      predict(PredictConfig{.folder = folder / "run", .files = {table("diabetes.csv")}});
  ASSERT_EQ(whole.predictions.size(), static_cast<size_t>(all.rows()));
  EXPECT_NEAR(few.predictions[0].values.at(0), whole.predictions[0].values.at(0), 1e-3)
      << "the first row is that row";
  EXPECT_EQ(few.predictions[0].label, "");
  EXPECT_EQ(whole.predictions[0].label, "151");
  const std::string csv = predictions_csv(few);
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "s6,age,sex,bmi,bp,s1,s2,s3,s4,s5,predicted progression");
  EXPECT_EQ(data::parse_table(csv).rows(), 1);
  // All rows of another file are the test; those of the run's own file are the test part.
  fs::copy_file(table("diabetes.csv"), folder / "other.csv");
  EXPECT_EQ(evaluate(EvalConfig{.folder = folder / "run", .data_dir = folder / "other.csv"}).samples,
            all.rows());
  EXPECT_EQ(report.samples, 88);
}

TEST(OwnData, ATableOfClassesNamesThem) {
  const TempFolder folder;
  TrainConfig config = on_table("iris.csv", "species", folder / "run");
  config.epochs = 30;
  const DoneEvent done = train(config);
  EXPECT_GT(done["test_accuracy"], 0.9);
  const EvalReport report = evaluate(EvalConfig{.folder = folder / "run"});
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"setosa", "versicolor", "virginica"}));
  EXPECT_EQ(report.metrics["accuracy"], done["test_accuracy"]);
  const PredictReport said = predict(PredictConfig{.folder = folder / "run", .files = {table("iris.csv")}});
  EXPECT_EQ(said.predictions[0].label, "setosa");
  EXPECT_EQ(said.predictions[0].top[0].name, "setosa");
  EXPECT_EQ(said.target, "species");
  EXPECT_NE(predictions_csv(said).find(",species,predicted species,probability\n"), std::string::npos);
}

TEST(OwnData, EnginesAndStopsGiveTheSameBits) {
  const TempFolder folder;
  make_photos(folder / "photos");
  const TrainConfig configs[] = {on_table("diabetes.csv", "progression", ""),
                                 on_table("wine.csv", "cultivar", ""), on_photos(folder / "photos", "")};
  int number = 0;
  for (TrainConfig config : configs) {
    const std::string what = config.data_dir;
    config.epochs = 3;
    config.valid = 0.2;
    config.class_weights = config.data == "image-folder";
    config.augment = config.class_weights;
    const auto out = [&] { return folder / str("run", ++number); };
    config.out = out();
    const DoneEvent graph = train(config);
    config.engine = Engine::eager;
    config.out = out();
    expect_same(train(config), graph, what + ", eager");
    config.out = out();
    config.steps = 5;
    config.checkpoint_every = 1;
    train(config);
    config.steps = {};
    config.resume = true;
    fs::remove(config.out + "/model.safetensors");
    expect_same(train(config), graph, what + ", resumed");
    config.split_seed = 1;
    EXPECT_HAS(refusal([&] { train(config); }), "resume") << "other samples";
  }
}

TEST(OwnData, ARunIsNotResumedWithOtherNamesOfTheSameNumbers) {
  const TempFolder folder;
  const auto write = [&](const std::string& column, const std::string& city, const std::string& cls) {
    std::string csv = column + ",city,kind\n";
    for (int i = 0; i < 40; ++i)
      csv += str(i % 7, ",", i % 3 == 0 ? city : "Rome", ",", i % 2 == 0 ? cls : "tame", "\n");
    write_text(folder / "a.csv", csv);
  };
  write("size", "Oslo", "shy");
  TrainConfig config = on_table("iris.csv", "kind", folder / "table");
  config.data_dir = folder / "a.csv";
  config.epochs = 1;
  train(config);
  config.resume = true;
  config.epochs = 2;
  const auto refused = [](TrainConfig& c) { return refusal([&] { train(c); }); };
  write("width", "Oslo", "shy");
  EXPECT_HAS(refused(config),
             "the run was begun with other columns in its data. Give the same data, or begin a new run");
  write("size", "Nice", "shy");
  EXPECT_HAS(refused(config), "the run was begun with other columns in its data");
  write("size", "Oslo", "mad");
  EXPECT_HAS(refused(config), "the run was begun with other class names in its data");
  EXPECT_EQ(load_run("test", folder / "table").data.class_names, (std::vector<std::string>{"shy", "tame"}));
  write("size", "Oslo", "shy");
  EXPECT_EQ(train(config).epochs, 2);

  make_photos(folder / "photos");
  config = on_photos(folder / "photos", folder / "images");
  config.epochs = 1;
  train(config);
  config.resume = true;
  fs::rename(folder / "photos/below", folder / "photos/under");
  EXPECT_HAS(refused(config), "the run was begun with other class names in its data");

  // A run that is older than these goes on, and has them from then on.
  const std::string newest = list_checkpoints(folder / "images").at(0);
  Checkpoint old = load_checkpoint(newest);
  auto settings = nlohmann::ordered_json::parse(old.settings);
  EXPECT_EQ(settings.erase("class_names"), 1u);
  old.settings = settings.dump();
  save_checkpoint(folder / "images", old);
  config.epochs = 2;
  EXPECT_EQ(train(config).epochs, 2);
  fs::rename(folder / "photos/under", folder / "photos/below");
  EXPECT_HAS(refused(config), "the run was begun with other class names in its data");
}

TEST(OwnData, PhotographsOfAnySizeBecomeInputsAndPredictSeesWhatTestingSaw) {
  const TempFolder folder;
  make_photos(folder / "photos");
  TrainConfig config = on_photos(folder / "photos", folder / "run");
  config.epochs = 8;
  std::vector<std::string> notices;
  config.callbacks = {listen([&](const NoticeEvent& notice) { notices.push_back(notice.text); })};
  const DoneEvent done = train(config);
  EXPECT_EQ(done["test_accuracy"], 1);
  EXPECT_EQ(notices,
            (std::vector<std::string>{"4 of 18 images were split off for testing (seed 0).",
                                      "lenet: made for inputs of (3, 28, 28) in place of (1, 28, 28).",
                                      "lenet: gives 2 numbers in place of 10."}));
  const PredictReport by_index = predict(PredictConfig{.folder = folder / "run", .indices = {0}});
  EXPECT_EQ(by_index.predictions[0].label, "above");
  EXPECT_EQ(by_index.predictions[0].top[0].name, "above");
  // The same photograph as a file gives the same probabilities, to the bit.
  const data::Splits splits =
      data::open_dataset("image-folder", {.data_dir = folder / "photos", .image_size = {{28, 28}}});
  const std::string quoted = splits.test->sample_name(0), path = quoted.substr(1, quoted.size() - 2);
  const PredictReport by_file = predict(PredictConfig{.folder = folder / "run", .files = {path}});
  EXPECT_EQ(by_file.predictions[0].top[0].probability, by_index.predictions[0].top[0].probability);

  config.input = {{20, 40}};
  config.model = "resnet18";
  config.steps = 1;
  config.out = folder / "wide";
  train(config);
  EXPECT_EQ(choose_model(load_run("eval", folder / "wide")).info.input, (Dims{3, 20, 40}));
  EXPECT_EQ(evaluate(EvalConfig{.folder = folder / "wide"}).samples, 4);
}

TEST(OwnData, WeightsOfAnotherRunAreTakenWhereTheyFitAndFrozenOnesStay) {
  const TempFolder folder;
  make_photos(folder / "photos");
  TrainConfig config = on_photos(folder / "photos", folder / "first");
  train(config);
  make_photos(folder / "more", 9, 9);
  fs::create_directories(folder / "more/none");
  for (int i = 0; i < 4; ++i)
    fs::copy_file(str(folder / "more/above/", i, ".png"), str(folder / "more/none/", i, ".png"));
  config.data_dir = folder / "more";
  config.out = folder / "second";
  config.weights = folder / "first";
  config.freeze = {"conv1", "conv2"};
  std::vector<std::string> notices;
  config.callbacks = {listen([&](const NoticeEvent& notice) { notices.push_back(notice.text); })};
  train(config);
  config.callbacks = {};
  const std::string text = notices.at(3) + notices.at(4);
  EXPECT_HAS(text, "took 8 of the model's 10 tensors");
  EXPECT_HAS(text, "of another shape, and drawn anew: fc3.weight");
  EXPECT_HAS(notices.back(), "freeze: 4 of 10 parameters stay as they are, ");
  const auto before = load_run("eval", folder / "first").weights,
             after = load_run("eval", folder / "second").weights;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool frozen = before[i].first.starts_with("conv");
    ASSERT_EQ(before[i].first, after[i].first);
    if (before[i].first.starts_with("fc3")) continue;
    EXPECT_EQ(same_bits(before[i].second, after[i].second), frozen) << before[i].first;
  }
  config.out = folder / "third";
  config.freeze = {"conv9"};
  EXPECT_EQ(
      refusal([&] { train(config); }),
      "freeze: must name layers or parameters of the model; 'conv9' is none of conv1.weight, conv1.bias, "
      "conv2.weight, "
      "conv2.bias, fc1.weight, fc1.bias, fc2.weight, fc2.bias, fc3.weight, fc3.bias.");
  config.freeze = {"weight"};
  EXPECT_HAS(refusal([&] { train(config); }), "Write *.weight for those within layers.");
  config.freeze = {"fc3"};  // its shape differs
  EXPECT_HAS(refusal([&] { train(config); }),
             "freeze: what is frozen must have come from `weights`; fc3.weight did not fit");
  config.freeze = {};
  io::save_safetensors(folder / "other.safetensors", {{"encoder.weight", ones({3})}});
  config.weights = folder / "other.safetensors";
  EXPECT_HAS(refusal([&] { train(config); }), "nothing in it fits the model: it has 1 tensors, the model 10");
}

TEST(OwnData, WeightsWhoseNamesStandBehindAPrefixAreTakenAndItIsSaid) {
  const TempFolder folder;
  make_photos(folder / "photos");
  TrainConfig config = on_photos(folder / "photos", folder / "first");
  train(config);
  nn::NamedTensors behind;
  for (const auto& [name, tensor] : load_run("eval", folder / "first").weights)
    behind.emplace_back("module." + name, tensor);
  io::save_safetensors(folder / "parallel.safetensors", behind);
  std::vector<std::string> notices;
  config.callbacks = {listen([&](const NoticeEvent& notice) { notices.push_back(notice.text); })};
  config.weights = folder / "parallel.safetensors";
  config.out = folder / "second";
  train(config);
  std::string text;
  for (const std::string& notice : notices) text += notice + "\n";
  EXPECT_HAS(text, "parallel.safetensors': the names in it begin with 'module.', which is left out.");
  EXPECT_HAS(text, "took 10 of the model's 10 tensors");
}

TEST(OwnData, FrozenNamesAreWholePartsFromTheStart) {
  EXPECT_TRUE(is_named_by("conv1", "conv1.weight"));
  EXPECT_TRUE(is_named_by("conv1.weight", "conv1.weight"));
  EXPECT_FALSE(is_named_by("conv1", "layer2.0.conv1.weight"));
  EXPECT_FALSE(is_named_by("conv1", "conv10.weight"));
  EXPECT_FALSE(is_named_by("conv1.weight.x", "conv1.weight"));
  EXPECT_TRUE(is_named_by("layer1", "layer1.0.conv1.weight"));
  EXPECT_TRUE(is_named_by("*.bn1", "layer1.0.bn1.weight"));
  EXPECT_FALSE(is_named_by("*.bn1", "bn1.weight"));
  EXPECT_TRUE(is_named_by("*.bias", "fc1.bias"));
  EXPECT_TRUE(is_named_by("*.bias", "layer1.0.bn1.bias"));
  EXPECT_TRUE(is_named_by("layer*.0.conv1", "layer3.0.conv1.weight"));
  EXPECT_FALSE(is_named_by("layer*.0.conv1", "layer3.1.conv1.weight"));
  EXPECT_TRUE(is_named_by("l*y*1", "layer1.0.weight"));
  EXPECT_FALSE(is_named_by("", "conv1.weight"));
}

TEST(OwnData, AFrozenBatchNormKeepsItsStatistics) {
  const TempFolder folder;
  TrainConfig config;
  config.model = "resnet18";
  config.data = "synthetic-cifar10";
  config.limit = 8;
  config.batch = 4;
  config.out = folder / "first";
  config.epochs = 1;
  train(config);
  config.out = folder / "second";
  config.weights = folder / "first";
  config.freeze = {"conv1", "bn1", "layer1"};
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    config.engine = engine;
    config.out = folder / name(engine);
    std::string notice;
    config.callbacks = {listen([&](const NoticeEvent& event) { notice = event.text; })};
    train(config);
    EXPECT_HAS(notice, "freeze: 15 of 62 parameters stay as they are, ");
    EXPECT_HAS(notice, "; so do the statistics of 5 batch norms.");
    const auto before = load_run("eval", folder / "first").weights,
               after = load_run("eval", config.out).weights;
    for (size_t i = 0; i < before.size(); ++i) {
      const std::string& tensor = before[i].first;
      const bool frozen =
          tensor.starts_with("conv1.") || tensor.starts_with("bn1.") || tensor.starts_with("layer1.");
      EXPECT_EQ(same_bits(before[i].second, after[i].second), frozen) << tensor;
    }
  }
}

TEST(OwnData, ArraysAreClassesNumbersOrLabels) {
  const TempFolder folder;
  manual_seed(4);
  const Tensor x = uniform({60, 5}, -1, 1);
  io::save_npy(folder / "x.npy", x);
  io::save_npy(folder / "y.npy", cast(greater(sum(x, 1), 0), DType::i64));
  TrainConfig config;
  config.model = "mlp";
  config.data = "npy";
  config.data_dir = folder.path();
  config.epochs = 10;
  config.batch = 10;
  config.optimizer = "adam";
  config.out = folder / "classes";
  EXPECT_GT(train(config)["test_accuracy"], 0.7);
  const PredictReport said =
      predict(PredictConfig{.folder = folder / "classes", .files = {folder / "x.npy"}});
  EXPECT_EQ(said.predictions.size(), 60u);
  EXPECT_EQ(said.predictions[59].source, "row 59 of '" + folder / "x.npy" + "'");

  io::save_npy(folder / "y.npy", stack({sum(x, 1), max(x, 1)}, 1));
  config.out = folder / "numbers";
  config.epochs = 20;
  EXPECT_GT(train(config)["test_r2"], 0.3);
  EXPECT_EQ(predict(PredictConfig{.folder = folder / "numbers", .limit = 2}).predictions[1].values.size(),
            2u);

  io::save_npy(folder / "y.npy", cast(greater(x, 0), DType::f32));
  config.task_name = "multi-label";
  config.out = folder / "labels";
  const DoneEvent labels = train(config);
  EXPECT_GT(labels["test_f1"], 0.6);
  EXPECT_EQ(evaluate(EvalConfig{.folder = folder / "labels"}).metrics["exact_match"],
            labels["test_exact_match"]);
  const PredictReport chances = predict(PredictConfig{.folder = folder / "labels", .limit = 1});
  for (const double chance : chances.predictions[0].values) EXPECT_TRUE(chance > 0 && chance < 1);
}

TEST(OwnData, WhatDoesNotFitIsOneLine) {
  const TempFolder folder;
  make_photos(folder / "photos");
  TrainConfig config = on_photos(folder / "photos", folder / "run");
  config.model = "svhn_cnn";
  config.input = {{4, 4}};
  EXPECT_HAS(refusal([&] { train(config); }), "train: svhn_cnn on image-folder: ");
  EXPECT_FALSE(fs::exists(folder / "run")) << "nothing is written before it is known to fit";
  config = on_table("diabetes.csv", "progression", folder / "run");
  config.class_weights = true;
  EXPECT_EQ(refusal([&] { train(config); }),
            "class-weights: belong to classes; the task here is regression. Leave `class_weights` out.");
  config.class_weights = false;
  config.valid = 1;
  EXPECT_EQ(refusal([&] { train(config); }), "valid: must be at least 0 and below 1; got 1.");
  config.valid = 0;
  config.target = "price";
  EXPECT_HAS(refusal([&] { train(config); }), "progression");
  config.target = "progression";
  config.epochs = 1;
  train(config);
  EXPECT_HAS(refusal([&] { predict(PredictConfig{.folder = folder / "run", .files = {table("iris.csv")}}); }),
             "column");
  EXPECT_HAS(refusal([&] {
               predict(PredictConfig{.folder = folder / "run", .files = {folder / "photos/above/0.png"}});
             }),
             "Give a .csv file with its columns.");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = folder / "run", .data = "digits"}); }),
             "data digits: mlp takes samples of (10,)");
  fs::remove(folder / "run/table.json");
  EXPECT_EQ(
      refusal([&] { evaluate(EvalConfig{.folder = folder / "run"}); }),
      "eval '" + folder / "run" +
          "': the run was trained on a table, and its table.json, which says how columns become inputs, is "
          "missing. Put the file back, or train again.");
  for (const char* task : {"segmentation", "sequence-labelling"}) {
    config.task_name = task;
    EXPECT_EQ(refusal([&] { train(config); }),
              str("task: must be classification, multi-label or regression; got '", task, "'."));
  }
  config.task_name = "multi-label";
  EXPECT_EQ(refusal([&] { train(config); }),
            "task: multi-label is for npy, whose targets are (n, labels); got data csv.");
  // Other classes than those of training would be taken for them.
  config = on_photos(folder / "photos", folder / "seen");
  config.epochs = 1;
  train(config);
  fs::rename(folder / "photos/above", folder / "photos/across");
  EXPECT_EQ(refusal([&] { evaluate(EvalConfig{.folder = folder / "seen"}); }),
            "data image-folder: the classes must be those of training, above, below; got across, below. Give "
            "data with "
            "the same classes.");
}

/// Lines of numbers a, b and their class.
std::string points(int rows, int first = 0) {
  std::string text = "a,b,kind\n";
  for (int i = first; i < first + rows; ++i) {
    const int a = i * 37 % 101, b = i * 53 % 89;
    text += str(a, ",", b, ",", a > b ? "more" : "less", "\n");
  }
  return text;
}

TEST(OwnData, WhatWasTrainedOnIsNotMeasuredWithoutAWord) {
  const TempFolder folder;
  const std::string data = folder / "points/d.csv", run = folder / "run";
  fs::create_directories(folder / "points");
  write_text(data, points(50));
  TrainConfig config = on_table("", "kind", run);
  config.data_dir = data;
  config.epochs = 2;
  const DoneEvent done = train(config);
  const auto eval = [&](const std::string& dir = "") {
    return evaluate(EvalConfig{.folder = run, .data_dir = dir});
  };
  // The same file by other names: its test part.
  fs::create_symlink(data, folder / "link.csv");
  fs::create_hard_link(data, folder / "hard.csv");
  for (const std::string& dir : {std::string(), data, folder / "points", folder / "points/../points/./d.csv",
                                 folder / "link.csv", folder / "hard.csv"}) {
    const EvalReport report = eval(dir);
    EXPECT_EQ(report.samples, 10) << dir;
    EXPECT_EQ(report.metrics["loss"], done["test_loss"]) << dir;
    EXPECT_TRUE(report.warnings.empty()) << dir;
  }
  // A copy cannot be told by its path.
  fs::copy_file(data, folder / "copy.csv");
  EXPECT_EQ(eval(folder / "copy.csv").samples, 50);
  EXPECT_EQ(eval(folder / "copy.csv").warnings,
            (std::vector<std::string>{str("measured on all 50 rows of '", folder / "copy.csv",
                                          "', among which are those that the run was trained on: this is no "
                                          "test.")}));
  write_text(folder / "new.csv", points(30, 70));
  EXPECT_EQ(eval(folder / "new.csv").warnings,
            (std::vector<std::string>{str("measured on all 30 rows of '", folder / "new.csv", "'.")}));
  write_text(folder / "one.csv", points(1, 70));
  EXPECT_EQ(eval(folder / "one.csv").samples, 1) << "too few to split, and not the run's own";
  const auto changed = [&] {
    return str(
        "data csv: '", data,
        "' has changed since the run was trained: what is split off for testing now would hold samples "
        "that it was trained on. Measure another file or folder by `data_dir`, or train again.");
  };
  for (const std::string& text : {points(51), points(49), points(50, 1)}) {
    write_text(data, text);
    EXPECT_EQ(refusal([&] { eval(); }), changed());
    EXPECT_EQ(refusal([&] { predict(PredictConfig{.folder = run}); }), changed());
  }
  write_text(data, points(50));
  EXPECT_EQ(eval().samples, 10);

  // Less of the data in training: the part that was tested is compared.
  config.limit = 7;
  config.out = folder / "limited";
  train(config);
  EXPECT_EQ(evaluate(EvalConfig{.folder = config.out}).samples, 10);

  // A test part of its own may be another one: nothing of training comes into it.
  fs::create_directories(folder / "two");
  write_text(folder / "two/train.csv", points(50));
  write_text(folder / "two/test.csv", points(20, 60));
  config.limit = {};
  config.data_dir = folder / "two";
  config.out = folder / "two-run";
  train(config);
  EXPECT_TRUE(evaluate(EvalConfig{.folder = config.out}).warnings.empty());
  write_text(folder / "two/test.csv", points(10, 60));
  EXPECT_HAS(evaluate(EvalConfig{.folder = config.out}).warnings.at(0),
             "has changed since the run was trained");
  EXPECT_HAS(evaluate(EvalConfig{.folder = config.out, .data_dir = folder / "two/train.csv"}).warnings.at(0),
             "among which are those that the run was trained on");

  make_photos(folder / "photos");
  config = on_photos(folder / "photos", folder / "seen");
  config.epochs = 1;
  train(config);
  EXPECT_EQ(evaluate(EvalConfig{.folder = config.out, .data_dir = folder / "photos/../photos/"}).samples, 4);
  fs::remove(folder / "photos/above/3.png");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = config.out}); }), "has changed since");
}

TEST(OwnData, AnswersAreInTheUnitOfTheTableToItsDigits) {
  // Times in seconds: far from 0 beside their spread.
  const TempFolder folder;
  std::string text = "a,b,y\n";
  for (int i = 0; i < 120; ++i)
    text += str(i * 37 % 101, ",", i * 53 % 89, ",", 1700000000 + i * 37 % 101, "\n");
  write_text(folder / "t.csv", text);
  for (const std::optional<DType> type :
       {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    const std::string what = type ? name(*type) : "f32";
    TrainConfig config = on_table("", "y", folder / what);
    config.data_dir = folder / "t.csv";
    config.epochs = 30;
    config.autocast = type;
    const DoneEvent done = train(config);
    EXPECT_LT(done["test_rmse"], 20) << what;
    const PredictReport rows = predict(PredictConfig{.folder = config.out, .files = {folder / "t.csv"}});
    double squares = 0;
    std::set<double> different;
    for (size_t i = 0; i < rows.predictions.size(); ++i) {
      const Prediction& p = rows.predictions[i];
      EXPECT_EQ(std::stod(p.label), 1.7e9 + static_cast<double>(i * 37 % 101)) << what;
      const double error = p.values.at(0) - (1.7e9 + static_cast<double>(i * 37 % 101));
      squares += error * error;
      different.insert(p.values[0]);
    }
    EXPECT_LT(std::sqrt(squares / 120), 20) << what;
    EXPECT_GT(different.size(), 50u) << what;
    const data::Table csv = data::parse_table(predictions_csv(rows));
    for (size_t i = 0; i < 120; ++i)
      EXPECT_EQ(std::stod(std::string(csv.column("predicted y")[static_cast<int64_t>(i)])),
                rows.predictions[i].values[0]);
    // What is measured is what is predicted.
    const PredictReport test = predict(PredictConfig{.folder = config.out, .limit = 24});
    squares = 0;
    for (const Prediction& p : test.predictions) {
      const double error = p.values.at(0) - std::stod(p.label);
      squares += error * error;
    }
    EXPECT_NEAR(std::sqrt(squares / 24), done["test_rmse"], 1e-3 * done["test_rmse"]) << what;
  }
}

TEST(OwnData, ArraysAreScaledAsThoseOfTraining) {
  const TempFolder folder;
  manual_seed(4);
  const Tensor bytes = cast(uniform({60, 5}, 0, 255), DType::u8), numbers = cast(bytes, DType::f32);
  const Tensor y = cast(greater(slice(numbers, 1, 0, 1), 128), DType::i64);
  const auto on = [&](const Tensor& x, const std::string& name) {
    fs::create_directories(folder / name);
    io::save_npy(folder / name + "/x.npy", x);
    io::save_npy(folder / name + "/y.npy", reshape(y, {60}));
    TrainConfig config;
    config.model = "mlp";
    config.data = "npy";
    config.data_dir = folder / name;
    config.batch = 10;
    config.optimizer = "adam";
    config.out = folder / name + "-run";
    train(config);
    return config.out;
  };
  const std::string of_bytes = on(bytes, "bytes"), of_numbers = on(numbers, "numbers");
  const auto said = [&](const std::string& run, const std::string& file) {
    return message_of<Error>([&] { predict(PredictConfig{.folder = run, .files = {file}}); });
  };
  EXPECT_EQ(said(of_bytes, folder / "bytes/x.npy"), "");
  EXPECT_EQ(said(of_numbers, folder / "numbers/x.npy"), "");
  EXPECT_EQ(
      said(of_bytes, folder / "numbers/x.npy"),
      "predict '" + folder / "numbers/x.npy" +
          "': inputs must be of the kind of training, bytes (u8), which are divided by 255; got numbers "
          "that are taken as they are. Give data of that kind.");
  EXPECT_HAS(said(of_numbers, folder / "bytes/x.npy"), "got bytes (u8), which are divided by 255");
  EXPECT_HAS(refusal([&] { evaluate(EvalConfig{.folder = of_numbers, .data_dir = folder / "bytes"}); }),
             "inputs must be of the kind of training");
  io::save_npy(folder / "nan.npy", full({2, 5}, std::nan("")));
  EXPECT_HAS(said(of_numbers, folder / "nan.npy"), "every number must be finite in f32; row 0 holds nan");

  // Images of a data set have its mean and deviation, in arrays and files as well.
  TrainConfig config;
  config.model = "lenet";
  config.data = "digits";
  config.limit = 200;
  config.out = folder / "digits-run";
  train(config);
  const data::Splits digits = data::open_dataset("digits");
  const auto images = data::as_bytes(std::dynamic_pointer_cast<const data::ImageDataset>(digits.test));
  const std::vector<Tensor> first = images->batch(std::vector<int64_t>{0, 1, 2, 3});
  io::save_npy(folder / "digits.npy", first[0]);
  const PredictReport by_index = predict(PredictConfig{.folder = config.out, .indices = {0, 1, 2, 3}});
  const PredictReport by_array =
      predict(PredictConfig{.folder = config.out, .files = {folder / "digits.npy"}});
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(by_array.predictions[i].top[0].probability, by_index.predictions[i].top[0].probability, 1e-6);
  io::save_npy(folder / "digits.npy", cast(first[0], DType::f32));
  EXPECT_HAS(said(config.out, folder / "digits.npy"),
             "the kind of training, pixels, as bytes (u8); got numbers that are taken as they are");
  const std::vector<int64_t> hundred = data::draw_indices(data::class_labels(*digits.test), 100, 0);
  const std::vector<Tensor> batch = images->batch(hundred);
  fs::create_directories(folder / "hundred");
  io::save_npy(folder / "hundred/x.npy", batch[0]);
  io::save_npy(folder / "hundred/y.npy", batch[1]);
  const EvalReport arrays =
      evaluate(EvalConfig{.folder = config.out, .data = "npy", .data_dir = folder / "hundred"});
  EXPECT_EQ(arrays.samples, 100);
  EXPECT_NEAR(arrays.metrics["loss"],
              evaluate(EvalConfig{.folder = config.out, .limit = 100}).metrics["loss"], 1e-5);
}

TEST(OwnData, TablesOfOtherFormsAreReadByTheFlagsThatMessagesName) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += str(i % 5 == 0 ? "-" : std::to_string(i * 37 % 101), "|0", 1 + i % 9, "/0", 1 + i % 7, "/2020|",
                i % 2 == 0 ? "x" : "y", "\n");
  write_text(folder / "t.csv", text);
  TrainConfig config = on_table("", "c2", folder / "run");
  config.data_dir = folder / "t.csv";
  config.epochs = 1;
  config.csv.delimiter = "|";
  config.csv.no_header = true;
  config.csv.missing = {"-"};
  EXPECT_HAS(refusal([&] { train(config); }), "Name the column by `day_first` or `month_first`");
  config.csv.day_first = {"c1"};
  train(config);
  EXPECT_EQ(evaluate(EvalConfig{.folder = config.out}).samples, 8);
  EXPECT_EQ(load_run("eval", config.out).data.encoder->columns().at(0).type, data::ColumnType::number);
  fs::copy_file(folder / "t.csv", folder / "T.TSV");
  EXPECT_EQ(predict(PredictConfig{.folder = config.out, .files = {folder / "T.TSV"}}).predictions.size(),
            40u);
  config.csv.delimiter = "||";
  EXPECT_HAS(refusal([&] { train(config); }), "delimiter: must be one character");
}

TEST(OwnData, ClassWeightsChangeNoMeasure) {
  const TempFolder folder;
  make_photos(folder / "photos");
  TrainConfig config = on_photos(folder / "photos", folder / "run");
  config.epochs = 1;
  config.class_weights = true;
  const DoneEvent done = train(config);
  EXPECT_EQ(evaluate(EvalConfig{.folder = config.out}).metrics["loss"], done["test_loss"]);
}

}  // namespace
}  // namespace tandem::testing
