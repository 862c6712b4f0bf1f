// The command as a user meets it: exit status, one line on stderr, JSON lines on stdout.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tandem/core/backend.h"
#include "tandem/data/image_set.h"
#include "tandem/data/registry.h"
#include "tandem/train/checkpoint.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace {

using nlohmann::ordered_json;
using tandem::testing::Process;
using tandem::testing::ProcessResult;
using tandem::testing::read_text;
using tandem::testing::run_command;
using tandem::testing::TempFolder;

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A run of a fraction of a second.
const std::vector<std::string> kSmall = {"train",   "mlp", "--data",  "digits",
                                         "--limit", "100", "--batch", "25"};

std::vector<ordered_json> lines_of(const std::string& text) {
  std::vector<ordered_json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

/// Runs, expects the status and one line "tandem: …" on stderr, and returns that line without its prefix.
std::string complaint(const std::vector<std::string>& arguments, int status,
                      const tandem::testing::ProcessOptions& options = {}) {
  const ProcessResult result = run_command(arguments, options);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.substr(0, 8), "tandem: ");
  if (result.err.size() < 9) return result.err;
  return result.err.substr(8, result.err.size() - 9);
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  does not contain: " << part;
}

TEST(Command, TrainEndsWithOneJsonLineOfTheAgreedKeysInOrder) {
  const TempFolder folder;
  const ProcessResult result =
      run_command(kSmall + std::vector<std::string>{"--json", "--out", folder / "a"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::vector<ordered_json> lines = lines_of(result.out);
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(lines.front()["event"], "start");
  std::vector<std::string> keys;
  for (const auto& [key, value] : lines.back().items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"event", "model", "data", "engine", "device", "epochs", "steps",
                                      "train_loss", "test_loss", "test_accuracy", "test_top_5", "test_f1",
                                      "test_perplexity", "seconds", "samples_per_second", "weights_sha256"}));
  EXPECT_EQ(lines.back()["event"], "done");
  EXPECT_EQ(lines.back()["model"], "mlp");
  EXPECT_EQ(lines.back()["data"], "digits");
  EXPECT_EQ(lines.back()["device"], "cpu");
  EXPECT_EQ(lines.back()["steps"], 4);
  EXPECT_EQ(lines.back()["weights_sha256"].get<std::string>().size(), 64u);
}

TEST(Command, EngineAndThreadsGiveTheSameWeights) {
  const TempFolder folder;
  std::vector<std::string> sums;
  int n = 0;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--engine", "eager", "--threads", "1"},
        {"--engine", "graph", "--threads", "2"},
        {"--engine", "graph", "--threads", "3"}}) {
    const ProcessResult result = run_command(
        kSmall + more + std::vector<std::string>{"--json", "--out", folder / std::to_string(n++)});
    ASSERT_EQ(result.status, 0) << result.err;
    sums.push_back(lines_of(result.out).back()["weights_sha256"]);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(Command, TrainForAPersonSaysWhatItDoesAndEvalAgrees) {
  const TempFolder folder;
  const ProcessResult train = run_command(kSmall, {.folder = folder.path()});
  ASSERT_EQ(train.status, 0) << train.err;
  expect_contains(train.out, "runs/mlp");
  expect_contains(train.out, "drawn digits");
  expect_contains(train.out, "test accuracy");
  const ProcessResult second = run_command(kSmall, {.folder = folder.path()});
  expect_contains(second.out, "runs/mlp-2");
  const ProcessResult eval =
      run_command({"eval", "runs/mlp", "--limit", "100", "--json"}, {.folder = folder.path()});
  ASSERT_EQ(eval.status, 0) << eval.err;
  const ordered_json line = lines_of(eval.out).at(0);
  expect_contains(train.out, line["weights_sha256"].get<std::string>());
  const ProcessResult text = run_command({"eval", "runs/mlp", "--limit", "100"}, {.folder = folder.path()});
  expect_contains(text.out, line["weights_sha256"].get<std::string>());
}

TEST(Command, ListsModelsDataSetsAndTheMachine) {
  const ProcessResult models = run_command({"models"});
  EXPECT_EQ(models.status, 0);
  for (const char* name : {"lenet", "mlp", "mnist_cnn", "61,706", "speech-synthesis"})
    expect_contains(models.out, name);
  const ProcessResult datasets = run_command({"datasets", "--json"});
  EXPECT_EQ(datasets.status, 0);
  for (const ordered_json& line : lines_of(datasets.out)) {
    if (line["data"] == "digits") {
      EXPECT_EQ(line["found"], true);
    }
  }
  const ProcessResult info = run_command({"info", "--json"});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_EQ(lines_of(info.out).at(0)["devices"][0]["device"], "cpu");
  EXPECT_EQ(run_command({"info"}).status, 0);
  EXPECT_EQ(run_command({"datasets"}).status, 0);
  EXPECT_EQ(run_command({"--version"}).status, 0);
  EXPECT_EQ(run_command({"train", "--help"}).status, 0);
}

TEST(Command, TheEnvironmentSaysHowBf16MatricesAreMultiplied) {
  const auto cpu = [](const std::string& variable) {
    const ProcessResult info = run_command({"info", "--json"}, {.environment = {variable}});
    EXPECT_EQ(info.status, 0) << info.err;
    return lines_of(info.out).at(0)["devices"][0]["description"].get<std::string>();
  };
  EXPECT_EQ(cpu("TANDEM_BF16=widened").find("bf16"), std::string::npos);
  const TempFolder folder;
  const std::string message = complaint(kSmall + std::vector<std::string>{"--out", folder / "a"}, 1,
                                        {.environment = {"TANDEM_BF16=fast"}});
  expect_contains(message, "TANDEM_BF16: must name a way to multiply bf16 matrices");
  expect_contains(message, "got 'fast'. Here there are: widened");
}

TEST(Command, ExplainPrintsPassesAndMemory) {
  const ProcessResult json = run_command({"explain", "lenet", "--batch", "4", "--json", "--nodes"});
  ASSERT_EQ(json.status, 0) << json.err;
  const ordered_json line = lines_of(json.out).at(0);
  EXPECT_GT(line["passes"].size(), 0u);
  EXPECT_GT(line["arena_bytes"].get<int64_t>(), 0);
  EXPECT_GT(line["graph"]["nodes"].size(), 10u);
  EXPECT_EQ(line["graph"]["results"].size(), line["outputs"].get<size_t>());
  const auto& nodes = line["graph"]["nodes"];
  const auto conv = std::find_if(nodes.begin(), nodes.end(),
                                 [](const auto& node) { return node.value("op", "") == "conv"; });
  ASSERT_NE(conv, nodes.end());
  EXPECT_EQ((*conv)["arguments"].dump(), R"(["x","weight","bias"])");
  EXPECT_EQ((*conv)["about"], "a convolution over one to three axes");
  const ProcessResult text = run_command({"explain", "lenet", "--batch", "4", "--nodes"});
  expect_contains(text.out, ", weight=%");
  expect_contains(text.out, "fuse_pointwise");
  expect_contains(text.out, "one arena");
}

/// With one space in the place of several: columns are as wide as their longest name.
std::string squeezed(std::string text) {
  text.erase(std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
             text.end());
  return text;
}

TEST(Command, ExplainListsEveryImplementationWithItsReason) {
  const ProcessResult text = run_command({"explain", "lenet", "--batch", "4", "--implementations"});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"winograd 2x4 it takes 3x3 kernels only.", "direct chosen", "im2col can",
                           "panels chosen", "integers it takes integers only."})
    expect_contains(squeezed(text.out), part);
  const std::string convolutions =
      squeezed(run_command({"explain", "lenet", "--batch", "4", "--conv", "fixed"}).out);
  expect_contains(convolutions, "direct chosen");
  EXPECT_EQ(convolutions.find("panels"), std::string::npos);

  const ProcessResult json = run_command({"explain", "lenet", "--batch", "4", "--json", "--implementations"});
  int listed = 0;
  const ordered_json line = lines_of(json.out).at(0);
  for (const ordered_json& node : line["graph"]["nodes"]) {
    if (!node.contains("implementations")) continue;
    int chosen = 0;
    for (const ordered_json& each : node["implementations"]) {
      chosen += each["state"] == "chosen" && each["name"] == node["algorithm"];
      EXPECT_EQ(each["can"].get<bool>(), each["state"] == "chosen" || each["state"] == "can");
    }
    EXPECT_EQ(chosen, 1) << node.dump();
    ++listed;
  }
  EXPECT_GT(listed, 8);
}

TEST(Command, ProductsChooseByTheirOwnMode) {
  EXPECT_EQ(complaint({"train", "lenet", "--matmul", "best"}, 2),
            "matmul: must be fixed, heuristic or profile; got 'best'.");
  const TempFolder folder;
  setenv("TANDEM_CACHE", folder.path().c_str(), 1);
  const std::string out = run_command({"explain", "mlp", "--batch", "2", "--matmul", "profile"}).out;
  expect_contains(out, "  thin  ");
  EXPECT_EQ(out.find("not timed yet"), std::string::npos) << out;
  expect_contains(read_text(folder / "algorithms.tsv"), "matmul f32 2x784 784x");
  unsetenv("TANDEM_CACHE");
}

TEST(Command, ProfileWritesATraceThatItsTableAgreesWith) {
  const TempFolder folder;
  const ProcessResult result =
      run_command({"profile", "lenet", "--batch", "4", "--steps", "2", "--json"}, {.folder = folder.path()});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const ordered_json line = lines_of(result.out).at(0);
  EXPECT_EQ(line["trace"], "lenet.trace.json");
  const ordered_json trace = ordered_json::parse(read_text(folder / "lenet.trace.json"));
  std::map<std::string, std::pair<int64_t, double>> seen;
  bool has_memory = false;
  int64_t flops = 0;
  for (const ordered_json& event : trace["traceEvents"]) {
    has_memory = has_memory || event["ph"] == "C";
    if (event["ph"] != "X") continue;
    if (event["cat"] == "op") flops += event["args"]["flops"].get<int64_t>();
    if (event["cat"] != "kernel" && event["cat"] != "copy") continue;
    auto& [count, microseconds] = seen[event["name"]];
    ++count;
    microseconds += event["dur"].get<double>();
  }
  EXPECT_TRUE(has_memory);
  EXPECT_EQ(line["flops_per_step"].get<double>() * 2, static_cast<double>(flops));
  EXPECT_EQ(line["kernels"].size(), seen.size());
  int64_t kernels = 0;
  for (const ordered_json& row : line["kernels"]) {
    const auto& [count, microseconds] = seen[row["name"]];
    EXPECT_EQ(row["count"], count);
    EXPECT_NEAR(row["total_ns"].get<double>(), microseconds * 1000, 1);
    if (row["kind"] == "kernel") kernels += count;
  }
  EXPECT_EQ(line["launches_per_step"].get<double>() * 2, static_cast<double>(kernels));
  EXPECT_NEAR(line["kernel_share"].get<double>() + line["copy_share"].get<double>() +
                  line["idle_share"].get<double>(),
              1, 1e-6);
  for (const char* peak : {"flops_per_second", "bytes_per_second"}) EXPECT_GT(line["peaks"][peak], 0) << peak;
}

TEST(Command, ProfileForAPersonIsATable) {
  const TempFolder folder;
  const ProcessResult result = run_command({"profile", "mlp", "--batch", "2", "--steps", "1", "--infer",
                                            "--engine", "eager", "--out", folder.path()});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"1 forward pass of mlp: batch 2, f32, eager engine, cpu", "in kernels", "in copies", "idle",
        "launches per step", "of the peak", "linear", "mlp.trace.json"})
    expect_contains(result.out, part);
  const std::string trace = read_text(folder / "mlp.trace.json");
  expect_contains(trace, "\"forward\"");
  EXPECT_EQ(trace.find("\"backward\""), std::string::npos);
}

TEST(Command, ProfileRefusesWhatItCannotDoInOneLine) {
  expect_contains(complaint({"profile", "lenett"}, 2), "lenet");
  expect_contains(complaint({"profile", "lenet", "--steps", "0"}, 2), "steps: must be");
  expect_contains(complaint({"profile", "lenet", "--out", "no/such/folder/a.json"}, 2),
                  "out: must be a file");
  expect_contains(complaint({"profile", "lenet", "--engine", "fast"}, 2), "engine");
  expect_contains(complaint({"profile"}, 2), "MODEL");
}

TEST(Command, AStoppedProfileLeavesNoFile) {
  const TempFolder folder;
  Process process({"profile", "resnet18", "--batch", "8", "--steps", "10000"}, {.folder = folder.path()});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  process.send(SIGINT);
  const ProcessResult result = process.wait();
  if (result.signal == 0) {  // else it had not begun yet
    EXPECT_EQ(result.status, 130) << result.err;
    expect_contains(result.err, "no trace was written");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Command, ConvolutionsByTimeAreKeptForTheNextRun) {
  const TempFolder folder;
  setenv("TANDEM_CACHE", folder.path().c_str(), 1);
  const auto table = [&] { return read_text(folder / "algorithms.tsv"); };
  const auto explain = [&](const char* mode) {
    return run_command({"explain", "lenet", "--batch", "4", "--conv", mode, "--nodes"}).out;
  };
  const std::string first = explain("profile"), kept = table();
  expect_contains(kept, "conv f32 x 4x1x28x28 weight 6x1x5x5");
  EXPECT_EQ(first.find("not timed yet"), std::string::npos) << first;
  EXPECT_EQ(explain("profile").substr(first.find("  %")), first.substr(first.find("  %")));
  EXPECT_EQ(table(), kept);
  expect_contains(explain("fixed"), "; direct");
  std::vector<std::string> train{"train", "lenet",  "--data", "digits", "--limit",    "20",    "--batch",
                                 "10",    "--conv", "fixed",  "--out",  folder / "a", "--json"};
  EXPECT_EQ(lines_of(run_command(train).out).at(0)["conv"], "fixed");
  train[11] = folder / "b";
  train.pop_back();
  expect_contains(run_command(train).out, ", conv fixed");
  EXPECT_EQ(complaint({"train", "lenet", "--conv", "best"}, 2),
            "conv: must be fixed, heuristic or profile; got 'best'.");
  unsetenv("TANDEM_CACHE");
}

TEST(Command, AResumedRunTakesItsCheckpointsChoices) {
  const TempFolder folder;
  setenv("TANDEM_CACHE", folder.path().c_str(), 1);
  const std::string table = folder / "algorithms.tsv";
  const auto weights = [&](const std::string& out, const char* conv, const char* epochs, bool resume) {
    std::vector<std::string> arguments{"train",  "lenet",   "--data",   "digits", "--limit",
                                       "40",     "--batch", "20",       "--out",  folder / out,
                                       "--conv", conv,      "--epochs", epochs,   "--json"};
    if (resume) arguments.push_back("--resume");
    return lines_of(run_command(arguments).out).back()["weights_sha256"];
  };
  weights("first", "profile", "1", false);
  std::string forced = read_text(table);  // whatever was the fastest: im2col from now on
  for (size_t at = 0; (at = forced.find('\t', at)) != std::string::npos; at = forced.find('\n', at))
    forced.replace(at + 1, forced.find('\t', at + 1) - at - 1, "im2col");
  std::ofstream(table) << forced;
  const auto whole = weights("whole", "profile", "2", false);
  EXPECT_NE(whole, weights("direct", "fixed", "2", false));  // so the choice does show in the bits
  weights("stopped", "profile", "1", false);
  std::filesystem::remove(table);
  EXPECT_EQ(weights("stopped", "profile", "2", true), whole);
  unsetenv("TANDEM_CACHE");
}

TEST(Command, WrongUsageIsOneLineAndStatusTwo) {
  expect_contains(complaint({"train", "lenett"}, 2), "got 'lenett'. Did you mean lenet?");
  expect_contains(complaint({"train"}, 2), "MODEL is required");
  expect_contains(complaint({"train", "mlp", "--frobnicate"}, 2), "--frobnicate");
  expect_contains(complaint({"tran", "mlp"}, 2), "the command must be one of train, eval");
  EXPECT_EQ(complaint({"train", "mlp", "--batch", "0"}, 2), "batch: must be at least 1; got 0.");
  EXPECT_EQ(complaint({"train", "mlp", "--batch", "many"}, 2), "batch: must be a whole number; got 'many'.");
  EXPECT_EQ(complaint({"train", "mlp", "--lr", "-0.1"}, 2),
            "lr: must be a number above 0; got -0.1. Try 0.01.");
  expect_contains(complaint({"train", "mlp", "--lr", "nan"}, 2), "lr: must be a number above 0; got nan");
  EXPECT_EQ(complaint({"train", "mlp", "--momentum", "1.5"}, 2),
            "momentum: must be at least 0 and below 1; got 1.5.");
  expect_contains(complaint({"train", "mlp", "--optimizer", "adam", "--momentum", "0.5"}, 2),
                  "momentum: adam takes none; got 0.5.");
  EXPECT_EQ(complaint({"train", "mlp", "--epochs", "0"}, 2), "epochs: must be at least 1; got 0.");
  EXPECT_EQ(complaint({"train", "mlp", "--steps", "-3"}, 2), "steps: must be at least 1; got -3.");
  EXPECT_EQ(complaint({"train", "mlp", "--threads", "0"}, 2), "threads: must be at least 1; got 0.");
  EXPECT_EQ(complaint({"train", "mlp", "--optimizer", "lion"}, 2),
            "optimizer: must be one of sgd, nesterov, adam, adamw, adamax, nadam, radam, adadelta, adagrad, "
            "rmsprop, "
            "lamb; got 'lion'.");
  EXPECT_EQ(complaint({"train", "mlp", "--engine", "steam"}, 2),
            "engine: must be eager or graph; got 'steam'.");
  expect_contains(complaint({"train", "mlp", "--data", "imagenet"}, 2), "got 'imagenet'");
  EXPECT_EQ(complaint({"train", "mlp", "--dtype", "f8"}, 2),
            "dtype: must be f32, tf32, bf16, f16 or f64; got 'f8'.");
  EXPECT_EQ(complaint({"train", "mlp", "--dtype", "i32"}, 2),
            "dtype: must be f32, tf32, bf16, f16 or f64; got 'i32'.");
  expect_contains(complaint({"train", "mlp", "--dtype", "tf32"}, 2),
                  "tf32 is how CUDA multiplies f32 matrices");
  expect_contains(complaint({"train", "mlp", "--half-model"}, 2),
                  "half-model: goes with --dtype bf16 or f16");
  expect_contains(complaint({"train", "mlp", "--dtype", "f16", "--anomaly"}, 2), "anomaly: ");
  expect_contains(complaint({"train", "mlp", "--device", "tpu"}, 2), "tpu");
  EXPECT_EQ(complaint({"train", "mlp", "--seed", "-1"}, 2),
            "seed: must be a whole number of at least 0; got '-1'.");
  expect_contains(complaint({"test"}, 2), "./tandem test");
  EXPECT_EQ(run_command({}).status, 2);
}

TEST(Command, FailuresAreOneLineWithCauseAndMendAndStatusOne) {
  const TempFolder folder;
  const std::string file = folder / "file";
  std::ofstream(file) << "x";
  const auto in = [&](const std::string& out) { return kSmall + std::vector<std::string>{"--out", out}; };
  expect_contains(complaint(in(file), 1), "cannot make the folder");
  expect_contains(complaint(in(file + "/below"), 1), "Choose another with --out.");
  expect_contains(complaint(in("/proc/tandem"), 1), "/proc/tandem");
  expect_contains(complaint({"eval", folder / "nothing"}, 1), "the folder holds no run");
  expect_contains(complaint(in(folder / "none") + std::vector<std::string>{"--resume"}, 1),
                  "the folder holds no run");
  expect_contains(complaint({"train", "mlp", "--data", "mnist", "--data-dir", folder.path()}, 1),
                  folder.path());

  ASSERT_EQ(run_command(in(folder / "run")).status, 0);
  expect_contains(complaint(in(folder / "run"), 1), "Go on with it by --resume");
  expect_contains(complaint(in(folder / "run") + std::vector<std::string>{"--resume", "--lr", "0.5"}, 1),
                  "the run was begun with lr 0.01; got lr 0.5");
  const std::vector<std::string> resume =
      in(folder / "run") + std::vector<std::string>{"--resume", "--dtype"};
  expect_contains(complaint(resume + std::vector<std::string>{"bf16"}, 1),
                  "got autocast \"bf16\". Give --dtype as it was");
  expect_contains(complaint(resume + std::vector<std::string>{"bf16", "--half-model"}, 1),
                  "the run was begun with dtype \"f32\"; got dtype \"bf16\"");
}

TEST(Command, TrainsTestsAndPredictsInEachType) {
  const TempFolder folder;
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const std::string out = folder / dtype;
    const ProcessResult run =
        run_command(kSmall + std::vector<std::string>{"--json", "--dtype", dtype, "--out", out});
    ASSERT_EQ(run.status, 0) << run.err;
    const ordered_json done = lines_of(run.out).back();
    const ProcessResult eval = run_command({"eval", out, "--limit", "100", "--json"});
    ASSERT_EQ(eval.status, 0) << eval.err;
    EXPECT_EQ(lines_of(eval.out).back()["weights_sha256"], done["weights_sha256"]);
    EXPECT_EQ(lines_of(eval.out).back()["test_loss"], done["test_loss"]) << dtype;
    EXPECT_EQ(run_command({"predict", out, "--limit", "2"}).status, 0);
  }
}

TEST(Command, TruncatedAndLyingIdxFilesAreNamed) {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  };
  for (const char* name : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"})
    write(name, std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c", 16) + std::string(100, 'x'));
  for (const char* name : {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"})
    write(name, std::string("\0\0\x08\x01\0\0\0\x02\x01\x02", 10));
  const std::vector<std::string> train = {"train",      "mlp",         "--data", "mnist",
                                          "--data-dir", folder.path(), "--out",  folder / "run"};
  expect_contains(complaint(train, 1), "train-images-idx3-ubyte");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  // A header that asks for more than any machine has.
  write("train-images-idx3-ubyte",
        std::string("\0\0\x08\x03\x7f\xff\xff\xff\x7f\xff\xff\xff\x7f\xff\xff\xff", 16));
  expect_contains(complaint(train, 1), "train-images-idx3-ubyte");
}

TEST(Command, ADamagedWeightsFileIsNamed) {
  const TempFolder folder;
  const std::string out = folder / "run";
  ASSERT_EQ(run_command(kSmall + std::vector<std::string>{"--out", out}).status, 0);
  const auto weights = folder / "run/model.safetensors";
  std::filesystem::resize_file(weights, 1000);
  expect_contains(complaint({"eval", out}, 1), weights);
}

TEST(Command, ANanLossIsNamedAtItsStepAndInAnomalyModeAtItsOperation) {
  const TempFolder folder;
  const std::vector<std::string> wild = kSmall + std::vector<std::string>{"--lr", "1e20", "--json"};
  const std::string step = complaint(wild + std::vector<std::string>{"--out", folder / "a"}, 1);
  expect_contains(step, "train: the loss became ");
  expect_contains(step, "run with --anomaly to find the operation.");
  const std::string op = complaint(wild + std::vector<std::string>{"--anomaly", "--out", folder / "b"}, 1);
  expect_contains(op, "train: step ");
  expect_contains(op, "anomaly: ");
}

TEST(Command, ADeviceThatIsNotThereIsNamedAndNothingIsWritten) {
  const TempFolder folder;
  const bool has_gpu = tandem::find_backend(tandem::DeviceKind::cuda) != nullptr;
  const std::string out = folder / "run", device = has_gpu ? "cuda:250" : "cuda";
  expect_contains(
      complaint(kSmall + std::vector<std::string>{"--device", device, "--out", out}, has_gpu ? 2 : 1),
      has_gpu ? "device: must be one of cuda:0 to " : "cuda is not available here");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Command, ADeviceNumberThatIsNotThereIsWrongUsageOfEveryCommand) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"train", "mlp"},
                                                  {"eval", "no/such/run"},
                                                  {"predict", "no/such/run", "x.png"},
                                                  {"explain", "mlp"},
                                                  {"profile", "mlp"}})
    expect_contains(complaint(command + std::vector<std::string>{"--device", "cpu:200"}, 2),
                    "device: must be one of cpu to cpu:");
}

TEST(Command, FlagsOfTrainingThatCannotBeAreNamed) {
  const auto refused = [](const std::vector<std::string>& flags) {
    return complaint(std::vector<std::string>{"train", "mlp"} + flags, 2);
  };
  expect_contains(refused({"--schedule", "linear"}), "schedule: must be constant, step, exponential, cosine");
  EXPECT_EQ(refused({"--schedule-by", "day"}), "schedule-by: must be step or epoch; got 'day'.");
  EXPECT_EQ(refused({"--warmup", "-1"}), "warmup: must be at least 0 steps; got -1.");
  EXPECT_EQ(refused({"--time-budget", "soon"}),
            "time-budget: must be a time like 90s, 10m or 1.5h; got 'soon'.");
  EXPECT_EQ(refused({"--accumulate", "0"}), "accumulate: must be at least 1; got 0.");
  EXPECT_EQ(refused({"--ema", "1"}), "ema: must be at least 0 and below 1; got 1. Try 0.999.");
  EXPECT_EQ(refused({"--clip-norm", "0"}), "clip-norm: must be a number above 0; got 0.");
  EXPECT_EQ(refused({"--weight-decay", "-1"}), "weight-decay: must be a number of at least 0; got -1.");
  expect_contains(refused({"--restore-best"}), "restore-best: acts only with --early-stop");
  const TempFolder folder;  // what can be monitored is known once the data is open
  expect_contains(complaint({"train", "mlp", "--data", "digits", "--early-stop", "1", "--monitor", "luck",
                             "--out", folder / "run"},
                            1),
                  "monitor: must be one of train_loss, test_loss, test_accuracy");
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "a run that wrote nothing leaves no folder";
  std::filesystem::create_directory(folder / "mine");  // but one that was there stays
  complaint({"train", "mlp", "--data", "digits", "--best", "--monitor", "luck", "--out", folder / "mine"}, 1);
  EXPECT_TRUE(std::filesystem::exists(folder / "mine"));
  expect_contains(refused({"--coupled", "--decoupled"}), "excludes");
}

TEST(Command, EveryTrainingFlagIsKeptAndMustBeRepeated) {
  const TempFolder folder;
  const std::vector<std::string> run = kSmall + std::vector<std::string>{"--out", folder / "run", "--json"};
  const std::vector<std::vector<std::string>> flags = {
      {"--schedule", "cosine"}, {"--warmup", "3"},     {"--accumulate", "2"},     {"--ema", "0.9"},
      {"--clip-norm", "0.5"},   {"--clip-value", "2"}, {"--weight-decay", "0.1"}, {"--decoupled"},
      {"--no-decay", "*.bias"}, {"--early-stop", "4"}};
  std::vector<std::string> all =
      run + std::vector<std::string>{"--best", "--tensorboard", "--time-budget", "1h"};
  for (const auto& flag : flags) all = all + flag;
  ASSERT_EQ(run_command(all).status, 0);
  for (const char* file : {"best.safetensors", "metrics.csv", "metrics.jsonl", "loss.svg", "accuracy.svg",
                           "environment.json", "tensorboard"})
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("run/") + file))) << file;
  ASSERT_EQ(run_command(all + std::vector<std::string>{"--resume"}).status, 0);
  // Without them: the first that is missing is named.
  expect_contains(complaint(run + std::vector<std::string>{"--resume"}, 1),
                  "the run was begun with accumulate 2; got");
  const ordered_json config = ordered_json::parse(read_text(folder / "run/config.json"));
  for (const char* key : {"schedule", "accumulate", "ema", "clip-norm", "clip-value", "weight-decay",
                          "decoupled", "no-decay", "early-stop"})
    EXPECT_TRUE(config.contains(key)) << key;
}

TEST(Command, EvalPrintsScoresByClassAndPredictNamesTheClasses) {
  const TempFolder folder;
  const std::string out = folder / "run";
  ASSERT_EQ(run_command(kSmall + std::vector<std::string>{"--epochs", "3", "--best", "--out", out}).status,
            0);
  const ProcessResult eval = run_command({"eval", out, "--limit", "200", "--json", "--best"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  const ordered_json line = lines_of(eval.out).at(0);
  int64_t total = 0, right = 0;
  for (size_t a = 0; a < 10; ++a)
    for (size_t p = 0; p < 10; ++p) {
      total += line["confusion"][a][p].get<int64_t>();
      if (a == p) right += line["confusion"][a][p].get<int64_t>();
    }
  EXPECT_EQ(total, 200);
  EXPECT_NEAR(line["test_accuracy"].get<double>(), static_cast<double>(right) / 200, 1e-12);
  EXPECT_GE(line["test_top_5"].get<double>(), line["test_accuracy"].get<double>());
  EXPECT_EQ(line["classes"].size(), 10u);
  const ProcessResult text = run_command({"eval", out, "--limit", "200"});
  for (const char* part : {"precision", "macro", "micro", "taken for", "top 5"})
    expect_contains(text.out, part);

  // A sample of the data set, and the same pixels in a file, grey and in colour.
  std::vector<uint8_t> pixels(28 * 28);
  const tandem::data::Splits digits = tandem::data::open_dataset("digits");
  const auto* images = dynamic_cast<const tandem::data::ImageDataset*>(digits.test.get());
  ASSERT_NE(images, nullptr);
  const uint8_t* source = images->pixels(7, pixels.data());
  std::string grey(source, source + pixels.size()), colour, inverse;
  for (const char c : grey) {
    colour += std::string(3, c);
    inverse += static_cast<char>(255 - static_cast<uint8_t>(c));
  }
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  write("grey.pgm", "P5\n# a digit\n28 28\n255\n" + grey);
  write("colour.ppm", "P6 28 28 255\n" + colour);
  write("inverse.pgm", "P5\n28 28\n255\n" + inverse);
  write("torn.pgm", "P5\n28 28\n255\n" + grey.substr(100));
  write("other.txt", "hello");
  const ordered_json want = lines_of(run_command({"predict", out, "--index", "7", "--json"}).out).at(0);
  EXPECT_EQ(want["label"], std::to_string(images->label(7)));
  EXPECT_EQ(want["top"].size(), 3u);
  const ProcessResult files =
      run_command({"predict", out, folder / "grey.pgm", folder / "colour.ppm", "--json"});
  ASSERT_EQ(files.status, 0) << files.err;
  for (const ordered_json& row : lines_of(files.out)) EXPECT_EQ(row["top"], want["top"]) << row["source"];
  const ProcessResult inverted = run_command({"predict", out, folder / "inverse.pgm", "--invert", "--json"});
  EXPECT_EQ(lines_of(inverted.out).at(0)["top"], want["top"]);
  expect_contains(run_command({"predict", out, "--limit", "4", "--top", "2"}).out, "digits 3");
  const std::vector<ordered_json> two =
      lines_of(run_command({"predict", out, "--index", "3,7", "--json"}).out);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1]["top"], want["top"]);
  expect_contains(complaint({"predict", out, folder / "grey.pgm", "--limit", "2"}, 2), "limit: acts only on");
  expect_contains(complaint({"predict", out, "--index", "1", "--limit", "2"}, 2), "limit: acts only on");
  expect_contains(complaint({"predict", out, folder / "torn.pgm"}, 1), "torn.pgm");
  expect_contains(complaint({"predict", out, folder / "other.txt"}, 1), "other.txt");
  expect_contains(complaint({"predict", out, "--index", "10000"}, 1), "10000");
  expect_contains(complaint({"predict", folder / "nothing"}, 1), "the folder holds no run");
  expect_contains(complaint({"predict", out, folder / "grey.pgm", "--index", "1"}, 2), "Leave one out.");
}

TEST(Command, TextIsTrainedOnTestedAndPredicted) {
  const TempFolder folder;
  for (const auto& [cls, text] :
       {std::pair("ham", "see you at noon"), std::pair("spam", "buy cheap pills")}) {
    std::filesystem::create_directories(folder / (std::string("mails/") + cls));
    for (int i = 0; i < 20; ++i)
      std::ofstream(folder / ("mails/" + std::string(cls) + "/" + std::to_string(i) + ".txt"))
          << text << " " << i;
  }
  const std::string out = folder / "run";
  const ProcessResult trained =
      run_command({"train", "imdb_lstm", "--data", "text-folder", "--data-dir", folder / "mails", "--batch",
                   "4", "--lr", "0.01", "--out", out, "--json"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(lines_of(trained.out).back()["test_accuracy"], 1);
  const ProcessResult eval = run_command({"eval", out, "--json"});
  EXPECT_EQ(lines_of(eval.out).back()["test_loss"], lines_of(trained.out).back()["test_loss"]) << eval.err;
  const ProcessResult said = run_command({"predict", out, "cheap pills", "at noon", "--json"});
  ASSERT_EQ(said.status, 0) << said.err;
  EXPECT_EQ(lines_of(said.out).at(0)["top"][0]["name"], "spam");
  EXPECT_EQ(lines_of(said.out).at(1)["top"][0]["name"], "ham");
  expect_contains(run_command({"predict", out, "cheap pills"}).out, "spam  ");
  ASSERT_EQ(run_command({"predict", out, "cheap pills", "--to", folder / "said.csv"}).status, 0);
  expect_contains(read_text(folder / "said.csv"), "cheap pills,,spam,");
  for (const char* name : {"said.json", "said.npy"}) {
    expect_contains(complaint({"predict", out, "cheap pills", "--to", folder / name}, 1),
                    "to: predictions are written as CSV, into a file whose name ends in .csv; got '");
    EXPECT_FALSE(std::filesystem::exists(folder / name));
  }
  expect_contains(complaint({"predict", out, "x", "--seed", "3"}, 2),
                  "seed: acts only with a temperature above 0");
  expect_contains(complaint({"predict", out, "x", "--temperature", "1"}, 1),
                  "words and temperature: are of language models");
  expect_contains(complaint({"train", "imdb_lstm", "--data", "csv", "--data-dir", folder / "none.csv",
                             "--tokens", "letters"},
                            2),
                  "tokens: must be words, spaces, bpe or characters; got 'letters'");
  const ProcessResult models = run_command({"models", "ptb_lstm"});
  expect_contains(models.out, "recipe paper  data ptb");
  expect_contains(models.out, "adadelta");
  expect_contains(run_command({"explain", "imdb_lstm", "--batch", "2"}).out, "nodes");
}

TEST(Command, CtrlCSavesACheckpointAndSaysHowToGoOn) {
  const TempFolder folder;
  const std::vector<std::string> run = {"train",    "mlp", "--data",  "digits", "--limit", "600",
                                        "--epochs", "500", "--batch", "20",     "--json"};
  const std::string out = folder / "with space";
  tandem::testing::Process process(run + std::vector<std::string>{"--out", out});
  for (int i = 0; i < 200 && tandem::list_checkpoints(out).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  process.send(SIGINT);
  const ProcessResult stopped = process.wait();
  ASSERT_EQ(stopped.status, 130) << stopped.err;
  const ordered_json event = lines_of(stopped.out).back();
  EXPECT_EQ(event["event"], "interrupted");
  expect_contains(stopped.err, ". Go on with: tandem train mlp --data digits");
  expect_contains(stopped.err, "--out '" + out + "' --resume");
  EXPECT_FALSE(std::filesystem::exists(out + "/model.safetensors"));

  // The second one waits for nothing.
  tandem::testing::Process twice(run + std::vector<std::string>{"--out", folder / "twice"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 2; ++i) twice.send(SIGTERM);
  const ProcessResult ended = twice.wait();
  EXPECT_TRUE(ended.status == 130 || ended.signal == SIGTERM)
      << ended.status;  // before the handler is there, the latter

  const auto step = event["step"].get<int64_t>();
  const std::vector<std::string> more = {"--steps", std::to_string(step + 3), "--out"};
  const ProcessResult resumed = run_command(run + more + std::vector<std::string>{out, "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(lines_of(resumed.out).front()["first_step"], step);
  const ProcessResult whole = run_command(run + more + std::vector<std::string>{folder / "whole"});
  EXPECT_EQ(lines_of(resumed.out).back()["weights_sha256"], lines_of(whole.out).back()["weights_sha256"]);
}

TEST(Command, EverySignalThatEndsARunSavesACheckpointFirst) {
  const TempFolder folder;
  const std::vector<std::string> run = {"train",   "mlp", "--data",   "digits",
                                        "--limit", "200", "--epochs", "100000",
                                        "--batch", "20",  "--json",   "--checkpoint-every",
                                        "0"};
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    const std::string out = folder / std::to_string(signal);
    tandem::testing::Process process(run + std::vector<std::string>{"--out", out});
    for (int i = 0; i < 400 && tandem::list_checkpoints(out).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    process.send(signal);
    const ProcessResult stopped = process.wait();
    EXPECT_EQ(stopped.status, 130) << signal << stopped.err;
    const ordered_json event = lines_of(stopped.out).back();
    EXPECT_EQ(event["event"], "interrupted") << signal;
    const std::string newest = tandem::list_checkpoints(out).at(0);
    EXPECT_EQ(tandem::load_checkpoint(newest).state.step, event["step"].get<int64_t>()) << signal;
  }
}

TEST(Command, TwoRunsInOneFolderAreOneRunAndOneLine) {
  const TempFolder folder;
  const std::string out = folder / "run";
  const std::vector<std::string> run = {"train",    "mlp",    "--data",  "digits", "--limit", "200",
                                        "--epochs", "100000", "--batch", "20",     "--out",   out};
  tandem::testing::Process first(run + std::vector<std::string>{"--seed", "7"});
  for (int i = 0; i < 400 && !std::filesystem::exists(out + "/config.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  const std::string one_at_a_time = "must belong to one run at a time";
  const std::string begun = complaint(run + std::vector<std::string>{"--seed", "8"}, 1);
  if (begun.find("holds a run already") == std::string::npos) expect_contains(begun, one_at_a_time);
  expect_contains(complaint(run + std::vector<std::string>{"--resume"}, 1), one_at_a_time);
  for (int i = 0; i < 400 && tandem::list_checkpoints(out).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  first.kill();
  first.wait();
  EXPECT_EQ(ordered_json::parse(read_text(out + "/config.json"))["seed"], 7);
  // The lock went with the killed process.
  expect_contains(complaint(run + std::vector<std::string>{"--resume"}, 1),
                  "the run was begun with seed 7; got seed 0.");
  EXPECT_EQ(run_command(run + std::vector<std::string>{"--resume", "--seed", "7", "--steps", "1"}).status, 0);
}

TEST(Command, AFolderThatCannotBeWrittenIsOneLine) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "in the way";
  const auto to = [&](const std::string& out) { return kSmall + std::vector<std::string>{"--out", out}; };
  expect_contains(complaint(to(folder / "file"), 1), "cannot make the folder");
  expect_contains(complaint(to(folder / "file/run"), 1), "cannot make the folder");
  expect_contains(complaint(to("/proc/run"), 1), "cannot make the folder");
  expect_contains(complaint(to("/proc/self"), 1), "'/proc/self");
  expect_contains(complaint(to(folder / "full"), 1, {.max_file_bytes = 300}),
                  "config.json': cannot write: File too large");
}

TEST(Command, AFullDiskWhileCheckpointingLosesNothing) {
  const TempFolder folder;
  const std::string whole = folder / "whole", out = folder / "run";
  const ProcessResult expected = run_command(kSmall + std::vector<std::string>{"--json", "--out", whole});
  ASSERT_EQ(expected.status, 0) << expected.err;

  const std::vector<std::string> run = kSmall + std::vector<std::string>{"--json", "--out", out};
  ASSERT_EQ(run_command(run + std::vector<std::string>{"--steps", "2"}).status, 0);
  const auto checkpoint = folder / "run/checkpoint-2.safetensors";
  const std::string before = read_text(checkpoint);
  ASSERT_GT(before.size(), 100000u);

  const std::vector<std::string> resume = run + std::vector<std::string>{"--resume"};
  const std::string text = complaint(resume, 1, {.max_file_bytes = 100000});
  expect_contains(text, "checkpoint-4.safetensors");
  EXPECT_EQ(read_text(checkpoint), before);
  for (const auto& entry : std::filesystem::directory_iterator(out))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();

  const ProcessResult again = run_command(resume);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(lines_of(again.out).back()["weights_sha256"], lines_of(expected.out).back()["weights_sha256"]);
}

}  // namespace
