// The driver's calls fit and breakdown, the switches, and what it makes of bad requests.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "lab/tests/tandem_driver/driver_talk.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

/// The numbers of a progress line that a second run must repeat.
json without_times(json line) {
  for (const char* name : {"begin", "train_end", "end"}) line["progress"].erase(name);
  line.erase("id");
  return line;
}

TEST(TandemDriverFit, LearnsTellsItsProgressAndCountsWhatIsTakenForWhat) {
  const SmallCell cell("lenet", {1, 28, 28}, 330, 45);
  json eager = cell.prepare("eager", "train", 20), graph = cell.prepare("graph", "train", 20);
  for (json* request : {&eager, &graph})
    (*request)["workload"]["optimizer"] = {{"name", "adam"}, {"lr", 0.003}};
  const json fit = {{"call", "fit"}, {"epochs", 5}, {"cap_s", 600}};
  const std::vector<json> answers = answers_to({graph, fit, eager, fit});
  ASSERT_EQ(answers.size(), 14u);
  int64_t last = 0;
  for (size_t e = 0; e < 5; ++e) {
    const json& line = answers[1 + e]["progress"];
    EXPECT_EQ(answers[1 + e]["id"], 2);
    EXPECT_EQ(line["epoch"], e + 1);
    EXPECT_GE(line["begin"], last);
    EXPECT_GT(line["train_end"], line["begin"]);
    EXPECT_GT(line["end"], line["train_end"]);
    last = line["end"];
    EXPECT_EQ(without_times(answers[1 + e]), without_times(answers[8 + e])) << "the engines agree to the bit";
  }
  const json &first = answers[1]["progress"], &end = answers[5]["progress"], &done = succeeded(answers[6]);
  EXPECT_LT(end["loss"].get<double>(), 0.7 * first["loss"].get<double>());
  EXPECT_GT(end["test_metrics"]["accuracy"], 0.8);
  EXPECT_GT(end["metrics"]["accuracy"], first["metrics"]["accuracy"]);
  EXPECT_EQ(done["epochs"], 5);
  EXPECT_EQ(done["capped"], false);
  int64_t all = 0, right = 0;
  for (size_t i = 0; i < 10; ++i)
    for (size_t j = 0; j < 10; ++j) {
      all += done["confusion"][i][j].get<int64_t>();
      right += i == j ? done["confusion"][i][j].get<int64_t>() : 0;
    }
  EXPECT_EQ(all, 45);
  EXPECT_DOUBLE_EQ(end["test_metrics"]["accuracy"].get<double>(), static_cast<double>(right) / 45);
}

TEST(TandemDriverFit, TheFirstEpochIsTheOrderOfTheProtocolStepByStep) {
  // The mean of an epoch's losses equals that of steps over files in the epoch's order.
  const SmallCell cell("lenet", {1, 28, 28}, 45, 0);
  const Tensor x = io::load_npy(cell.data.files["train"]["x"]),
               y = io::load_npy(cell.data.files["train"]["y"]);
  std::vector<std::pair<uint32_t, int64_t>> keys;
  for (uint32_t k = 0; k < 45; ++k) {
    uint32_t h = k * 0x9E3779B1u + (7 + 7919) * 0x7F4A7C15u;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    keys.emplace_back(h ^ (h >> 16), k);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<Tensor> rows, labels;
  for (const auto& [key, k] : keys) {
    rows.push_back(slice(x, 0, k, k + 1));
    labels.push_back(slice(y, 0, k, k + 1));
  }
  const std::string sorted_x = cell.folder / "x.npy", sorted_y = cell.folder / "y.npy";
  io::save_npy(sorted_x, concat(rows));
  io::save_npy(sorted_y, concat(labels));
  json sorted = cell.prepare("eager");
  sorted["data"] = {{"train", {{"x", sorted_x}, {"y", sorted_y}}}};
  const std::vector<json> answers = answers_to(
      {cell.prepare("eager"), {{"call", "fit"}, {"epochs", 1}}, sorted, {{"call", "check"}, {"steps", 5}}});
  double mean = 0;
  for (const json& loss : succeeded(answers[4])["losses"]) mean += loss.get<double>() / 5;
  EXPECT_NEAR(answers[1]["progress"]["loss"].get<double>(), mean, 1e-6);
  EXPECT_TRUE(answers[1]["progress"]["test_metrics"].is_null()) << "there is no test data";
  EXPECT_TRUE(succeeded(answers[2])["confusion"].is_null());
}

/// What the workload trims, for `prepare`.
json trimmed(json request, const SmallCell& cell) {
  request["trim"] = cell.workload.trim;
  return request;
}

TEST(TandemDriverFit, CtcAndSumsAreFittedOverBatchesAsLongAsTheirLongestSample) {
  for (const char* name : {"deepspeech2_small", "tacotron2_small"}) {
    SCOPED_TRACE(name);
    const SmallCell cell(name, {}, 30, 9);
    const json fit = {{"call", "fit"}, {"epochs", 2}, {"cap_s", 600}},
               check = {{"call", "check"}, {"steps", 5}};
    const json whole = cell.prepare("eager", "train", 2), eager = trimmed(whole, cell),
               graph = trimmed(cell.prepare("graph", "train", 2), cell);
    const std::vector<json> answers =
        answers_to({eager, check, eager, fit, graph, fit, whole, check, whole, fit});
    ASSERT_EQ(answers.size(), 16u);
    const json &first = answers[3]["progress"], &end = answers[4]["progress"];
    for (const json& line : {first, end}) {
      EXPECT_TRUE(line["metrics"].empty()) << "there is the loss alone";
      EXPECT_EQ(line["test_metrics"], json::object());
      EXPECT_TRUE(line["test_loss"].is_number());
    }
    EXPECT_LT(end["loss"], first["loss"]);
    EXPECT_TRUE(succeeded(answers[5])["confusion"].is_null());
    EXPECT_EQ(succeeded(answers[9])["epochs"], 2);
    for (size_t e = 0; e < 2; ++e)
      EXPECT_EQ(without_times(answers[3 + e]), without_times(answers[7 + e]))
          << "the engines agree to the bit";
    // The outputs of the first batch are as long as its longest sample.
    const std::vector<int64_t> lengths =
        io::load_npy(cell.data.files["train"]["length"]).to_vector<int64_t>();
    const json &short_ones = succeeded(answers[1]), &long_ones = succeeded(answers[11]);
    const json places = short_ones["outputs"]["out"]["shape"][1];
    EXPECT_LT(places, long_ones["outputs"]["out"]["shape"][1]);
    if (std::string(name) == "deepspeech2_small") {
      const int64_t longest = *std::max_element(lengths.begin(), lengths.begin() + 2);
      EXPECT_EQ(places, (longest + 7) / 8 * 8 / 2) << "a step for two frames";
      // Padding counts for nothing here; in Tacotron 2 it is in the batch norms.
      expect_near(short_ones["losses"], long_ones["losses"], 1e-4, "losses");
      EXPECT_NEAR(first["test_loss"].get<double>(), answers[13]["progress"]["test_loss"].get<double>(), 1e-3);
    }
  }
}

TEST(TandemDriverFit, TheTestOfASumIsTheSumOfItsMeansWhateverTheBatch) {
  // One term counts words, the other every place: means of batches would weigh them wrongly.
  const SmallCell cell("seq2seq_small", {}, 10, 10);
  json request = cell.prepare("eager", "train", 10);
  const json term = request["workload"]["loss"];
  json all = term;
  all.erase("lengths");
  request["workload"]["loss"] = {{"kind", "sum"}, {"terms", {term, all}}};
  request["workload"]["metrics"] = json::array();
  request["workload"]["optimizer"] = {{"name", "sgd"}, {"lr", 1e-12}};
  const json fit = {{"call", "fit"}, {"epochs", 1}};
  std::vector<double> tested;
  for (const char* variant : {"eager", "graph"})
    for (const int64_t batch : {10, 4, 3}) {
      request["variant"] = variant;
      request["batch"] = batch;
      const std::vector<json> answers = answers_to({request, fit});
      ASSERT_EQ(answers.size(), 3u) << answers.back();
      tested.push_back(answers[1]["progress"]["test_loss"].get<double>());
    }
  for (size_t i = 1; i < tested.size(); ++i) EXPECT_NEAR(tested[i], tested[0], 1e-5);
}

TEST(TandemDriverFit, StopsAfterTheEpochInWhichTheCapPassed) {
  const SmallCell cell("lenet", {1, 28, 28}, 24, 9);
  const std::vector<json> answers =
      answers_to({cell.prepare("graph"), {{"call", "fit"}, {"epochs", 50}, {"cap_s", 0}}});
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(succeeded(answers[2])["epochs"], 1);
  EXPECT_EQ(answers[2]["capped"], true);
}

TEST(TandemDriverSearch, FitsOnceForItsTimeAndDeclinesWhatASearchCannotHave) {
  const SmallCell cell("lenet", {1, 28, 28}, 330, 45);
  json prepare = cell.prepare("random");
  const json fit = {{"call", "fit"}, {"epochs", 1}, {"cap_s", 4}},
             run = {{"call", "run"}, {"region", "latency"}, {"steps", 1}};
  json shipped = prepare, two_epochs = fit;
  shipped["track"] = "as_shipped";
  shipped.erase("weights");
  two_epochs["epochs"] = 2;
  const std::vector<json> answers = answers_to({prepare, shipped, fit, run, two_epochs});
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_EQ(answers[0]["error"]["what"], "track");
  EXPECT_EQ(succeeded(answers[1])["parameters"], 61706);
  const json& line = answers[2]["progress"];
  EXPECT_EQ(line["epoch"], 1);
  EXPECT_GT(line["end"].get<int64_t>() - line["begin"].get<int64_t>(), 1'000'000'000);
  EXPECT_GE(line["test_metrics"]["accuracy"], 0)
      << "four seconds may not be enough to learn on a busy machine";
  EXPECT_LE(line["test_metrics"]["accuracy"], 1);
  EXPECT_EQ(succeeded(answers[3])["epochs"], 1);
  EXPECT_EQ(answers[4]["error"]["what"], "run");
  EXPECT_EQ(answers[5]["error"]["what"], "epochs");
}

TEST(TandemDriverBreakdown, ReportsPassesChoicesAndKernels) {
  const SmallCell cell("lenet", {1, 28, 28}, 16, 0);
  const json ask = {{"call", "breakdown"}, {"steps", 3}},
             run = {{"call", "run"}, {"region", "latency"}, {"steps", 1}};
  json plain = cell.prepare("graph"), unfused = cell.prepare("graph");
  plain["switches"] = {{"graph", "off"}};
  unfused["switches"] = {{"graph.fuse_pointwise", "off"}, {"conv", "heuristic"}};
  const std::vector<json> answers =
      answers_to({cell.prepare("graph"), ask, run, plain, ask, unfused, ask, cell.prepare("eager"), ask, run,
                  cell.prepare("graph", "infer"), ask});
  const json &graph = succeeded(answers[1]), &off = succeeded(answers[4]), &eager = succeeded(answers[8]);
  EXPECT_GT(graph["nodes_before"], graph["nodes_after"]);
  EXPECT_GT(graph["passes"]["fuse_pointwise"]["cheap"], 0);
  EXPECT_EQ(graph["choices"].count("conv 1"), 1u) << graph["choices"];
  EXPECT_EQ(graph["choices"].count("conv_weight_gradient 2"), 1u);
  EXPECT_GT(graph["launches"], 10);
  EXPECT_LE(graph["launches"], graph["nodes_after"]);
  EXPECT_EQ(off["nodes_before"], graph["nodes_before"]);
  EXPECT_EQ(off["nodes_after"], off["nodes_before"]);
  EXPECT_TRUE(off["passes"].empty());
  EXPECT_EQ(answers[3]["obeyed"], (json{{"graph", "off"}}));
  EXPECT_FALSE(succeeded(answers[6])["passes"].contains("fuse_pointwise"));
  EXPECT_TRUE(answers[6]["passes"].contains("prune"));
  EXPECT_EQ(off["launches"], eager["launches"]) << "without passes a graph has a kernel for every operation";
  for (const json& answer : {graph, off, eager}) {
    EXPECT_GT(answer["kernel_share"], 0.2);
    EXPECT_LE(answer["kernel_share"], 1.0);
  }
  EXPECT_FALSE(eager.contains("nodes_before"));
  EXPECT_GT(succeeded(answers[11])["launches"], 4);
  for (const json& answer : {graph, off, eager}) {
    ASSERT_FALSE(answer["ops"].empty());
    EXPECT_LE(answer["ops"].size(), 10u);
    double sum = 0, before = 1;
    for (const json& op : answer["ops"]) {
      EXPECT_LE(op[1], before) << "the largest first";
      before = op[1];
      sum += before;
    }
    EXPECT_GT(sum, 0.2);
    EXPECT_LE(sum, 1.0 + 1e-9);
  }
  EXPECT_EQ(succeeded(answers[2])["updates"], 5) << "one that may compile, three on the clock, one more";
  EXPECT_EQ(succeeded(answers[9])["loss"], answers[2]["loss"]);
}

TEST(TandemDriverBreakdown, ReportsKernelsOfAGpu) {
  if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  const SmallCell cell("lenet", {1, 28, 28}, 16, 0);
  const json ask = {{"call", "breakdown"}, {"steps", 5}};
  std::vector<json> requests;
  for (const char* variant : {"eager", "graph"})
    for (const char* phase : {"train", "infer"}) {
      requests.push_back(cell.prepare(variant, phase));
      requests.back()["device"] = "cuda:0";
      requests.push_back(ask);
    }
  const std::vector<json> answers = answers_to(requests);
  for (size_t i = 1; i < answers.size(); i += 2) {
    const json& answer = succeeded(answers[i]);
    EXPECT_GT(answer["kernel_share"], 0.0) << answer;
    EXPECT_LE(answer["kernel_share"], 1.2) << "watched kernels are a little slower";
    EXPECT_GE(answer["copy_share"], 0.0);
    EXPECT_GE(answer["launches"], 4) << answer;
    ASSERT_FALSE(answer["ops"].empty());
    EXPECT_EQ(answer.contains("nodes_after"), i > 4);
  }
  EXPECT_GT(answers[1]["launches"], answers[5]["launches"]) << "the graph engine fuses";
}

TEST(TandemDriverSwitches, NoPassChangesABit) {
  const SmallCell cell("mnist_cnn", {1, 28, 28}, 16, 0);
  const json five = {{"call", "check"}, {"steps", 5}};
  std::vector<json> requests = {cell.prepare("graph", "train", 4), five};
  std::vector<json> settings = {{{"graph", "off"}}, {{"graph", "off"}, {"graph.prune", "on"}}};
  for (const std::string& pass : all_stages()) settings.push_back({{"graph." + pass, "off"}});
  for (const json& switches : settings) {
    requests.push_back(requests[0]);
    requests.back()["switches"] = switches;
    requests.push_back(five);
  }
  const std::vector<json> answers = answers_to(requests);
  for (size_t i = 3; i < answers.size(); i += 2) {
    EXPECT_EQ(succeeded(answers[i])["losses"], succeeded(answers[1])["losses"]) << settings[i / 2 - 1];
    EXPECT_EQ(answers[i - 1]["obeyed"], settings[i / 2 - 1]);
  }
}

TEST(TandemDriverSwitches, LstmImplementationsAreObeyedAndGiveTheSame) {
  const SmallCell cell("sensor_lstm", {}, 16, 0);
  std::vector<json> losses, launches;
  for (const std::string implementation : {"cell", "block", "fused"}) {
    json prepare = cell.prepare("eager");
    prepare["switches"] = {{"lstm", implementation}};
    const std::vector<json> answers =
        answers_to({prepare, {{"call", "check"}, {"steps", 3}}, {{"call", "breakdown"}, {"steps", 1}}});
    EXPECT_EQ(succeeded(answers[0])["obeyed"]["lstm"], implementation);
    losses.push_back(succeeded(answers[1])["losses"]);
    launches.push_back(succeeded(answers[2])["launches"]);
  }
  expect_near(losses[1], losses[0], 1e-5, "block");
  expect_near(losses[2], losses[0], 1e-5, "fused");
  EXPECT_GT(launches[0], launches[1]);
  EXPECT_GT(launches[1], launches[2]);
}

/// The error that a changed request `prepare` gets.
json error_with(const SmallCell& cell, const std::function<void(json&)>& change) {
  json request = cell.prepare("graph");
  change(request);
  const std::vector<json> answers = answers_to({request, {{"call", "hello"}}});
  EXPECT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["ok"], false) << answers[0];
  EXPECT_EQ(answers[0]["id"], 1);
  succeeded(answers.back());  // it lives on
  return answers[0].value("error", json::object());
}

TEST(TandemDriverBreakdown, ConvolutionModesAreObeyed) {
  const SmallCell cell("lenet", {1, 28, 28}, 16, 0);
  for (const std::string mode : {"fixed", "heuristic", "profile"}) {
    json prepare = cell.prepare("graph");
    prepare["switches"] = {{"conv", mode}};
    const std::vector<json> answers = answers_to({prepare, {{"call", "breakdown"}, {"steps", 1}}});
    EXPECT_EQ(succeeded(answers[0])["obeyed"]["conv"], mode);
    const json& choices = succeeded(answers[1])["choices"];
    ASSERT_EQ(choices.count("conv 1"), 1u) << choices;
    for (const auto& [node, algorithm] : choices.items()) {
      if (mode == "fixed") {
        EXPECT_EQ(algorithm, "direct") << node;
      }
      EXPECT_NE(algorithm, "not timed yet") << node;
    }
  }
}

TEST(TandemDriverErrors, WhatCannotBeObeyedIsDeclinedByName) {
  const SmallCell cell("lenet", {1, 28, 28}, 8, 4);
  const auto declined = [&](const std::string& what, const std::function<void(json&)>& change) {
    const json error = error_with(cell, change);
    EXPECT_EQ(error["kind"], "declined") << error;
    EXPECT_EQ(error["what"], what) << error;
    EXPECT_TRUE(error["message"].get<std::string>().starts_with(what + ":")) << error;
  };
  declined("kind", [](json& r) { r["network"]["calls"][1]["kind"] = "hyena"; });
  declined("loss", [](json& r) { r["workload"]["loss"]["kind"] = "hinge"; });
  declined("metrics", [](json& r) { r["workload"]["metrics"] = {"bleu"}; });
  declined("definition", [](json& r) { r["definition"] = "dream"; });
  declined("variant", [](json& r) { r["variant"] = "xla"; });
  declined("phase", [](json& r) { r["phase"] = "serve"; });
  declined("track", [](json& r) { r["track"] = "odd"; });
  declined("device", [](json& r) { r["device"] = "cuda:77"; });
  declined("device", [](json& r) { r["device"] = "tpu"; });
  declined("precision", [](json& r) { r["precision"] = "f8"; });
  declined("precision", [](json& r) { r["precision"] = "tf32"; });
  declined("conv", [](json& r) { r["switches"]["conv"] = "guess"; });
  declined("lstm", [](json& r) { r["switches"]["lstm"] = "fused"; });
  declined("graph.prune", [](json& r) { r["switches"]["graph.prune"] = 3; });
  declined("graph", [](json& r) {
    r["variant"] = "eager";
    r["switches"]["graph"] = "off";
  });
  declined("optimizer", [](json& r) { r["workload"]["optimizer"]["name"] = "lion"; });
  declined("optimizer", [](json& r) { r["workload"]["optimizer"]["dampening"] = 0.5; });
  declined("optimizer", [](json& r) { r["workload"]["optimizer"]["betas"] = {0.9, 0.99}; });  // sgd has none
  const std::vector<json> answers = answers_to({{{"call", "dance"}}});
  EXPECT_EQ(answers[0]["error"]["kind"], "declined");
  EXPECT_EQ(answers[0]["error"]["what"], "dance");
}

TEST(TandemDriverErrors, WrongFieldsAndFilesFailWithTheRule) {
  const SmallCell cell("lenet", {1, 28, 28}, 8, 4);
  const auto failed = [&](const std::string& words, const std::function<void(json&)>& change) {
    const json error = error_with(cell, change);
    EXPECT_EQ(error["kind"], "failed") << error;
    EXPECT_NE(error["message"].get<std::string>().find(words), std::string::npos) << error << "\n" << words;
  };
  failed("workload: must be an object; got nothing", [](json& r) { r.erase("workload"); });
  failed("batch: must be an integer from 1", [](json& r) { r["batch"] = 0; });
  failed("batch: must be an integer from 1", [](json& r) { r["batch"] = "many"; });
  failed("batch: must be an integer from 1", [](json& r) { r["batch"] = 18446744073709551615u; });
  failed("threads: must be an integer", [](json& r) { r["threads"] = 1.5; });
  failed("dropout: must be true or false", [](json& r) { r["dropout"] = 0; });
  failed("network: must be an object", [](json& r) { r.erase("network"); });
  failed("network.calls: must be 1 to 10000 calls", [](json& r) { r["network"]["calls"] = json::array(); });
  failed("network.inputs.shape: must be at most five sizes", [](json& r) {
    r["network"]["inputs"][0]["shape"] = {1, -28, 28};
  });
  failed("must name an input or what an earlier layer gave",
         [](json& r) { r["network"]["calls"][3]["in"] = {"v99"}; });
  failed("takes samples of rank 2 to 4", [](json& r) { r["network"]["inputs"][0]["shape"] = {28}; });
  failed("conv1.weight is [6,1,3,3] in the network and [6,1,5,5] in the class", [](json& r) {
    r["network"]["calls"][0]["parameters"]["conv1.weight"] = {6, 1, 3, 3};
  });
  failed("workload.loss.output: must be an output", [](json& r) { r["workload"]["loss"]["output"] = "mel"; });
  failed("workload.loss.target: must be one of", [](json& r) { r["workload"]["loss"]["target"] = "z"; });
  failed("workload.loss.lengths: must be an input", [](json& r) { r["workload"]["loss"]["lengths"] = "n"; });
  failed("weights: the track equal needs", [](json& r) { r.erase("weights"); });
  failed("weights.file: must be a text", [](json& r) { r["weights"] = json::object(); });
  failed("nowhere.safetensors", [&](json& r) {
    r["weights"] = {{"file", cell.folder / "nowhere.safetensors"}};
  });
  failed("nowhere.npy", [&](json& r) { r["data"]["train"]["x"] = cell.folder / "nowhere.npy"; });
  failed("data: must have the part train", [](json& r) { r["data"] = json::object(); });
  failed("data.train.y: must be i64", [](json& r) { r["data"]["train"]["y"] = r["data"]["train"]["x"]; });
  failed("data.train.y: must be i64", [](json& r) { r["data"]["train"]["y"] = r["data"]["test"]["y"]; });
  failed("data.train.y: must be a text; got nothing", [](json& r) { r["data"]["train"].erase("y"); });
  failed("data.train.x: must be f32 of at least one sample of (1, 28, 28)",
         [](json& r) { r["data"]["train"]["x"] = r["data"]["train"]["y"]; });
  failed("must have the target's classes, 1, on its last axis; got (10,)",
         [](json& r) { r["workload"]["targets"]["y"]["below"] = 1; });
  failed("data.train.y: labels must be in 0 … 9; got", [&](json& r) {
    io::save_npy(cell.folder / "far.npy", full({8}, 10.0, DType::i64));
    r["data"]["train"]["y"] = cell.folder / "far.npy";
  });
  failed("switches: must be an object", [](json& r) { r["switches"] = {1, 2}; });
  failed("workload.optimizer.lr: must be a number",
         [](json& r) { r["workload"]["optimizer"]["lr"] = "fast"; });
  failed("must have all parameters of the model; has no conv1.weight", [&](json& r) {
    io::save_safetensors(cell.folder / "part.safetensors", {{"conv1.bias", zeros({6})}});
    r["weights"] = {{"file", cell.folder / "part.safetensors"}};
  });
  failed("conv1.weight", [&](json& r) {
    auto state = zoo::make_model("lenet")->state();
    state[0].second = zeros({6, 1, 3, 3});
    io::save_safetensors(cell.folder / "odd.safetensors", state);
    r["weights"] = {{"file", cell.folder / "odd.safetensors"}};
  });
}

TEST(TandemDriverErrors, ANetworkThatNoMachineHoldsIsRefused) {
  const SmallCell cell("lenet", {1, 28, 28}, 2, 0);
  const json error = error_with(cell, [](json& r) {
    r["network"]["name"] = "wide";  // 2^31 parameters of a network that the zoo has not
    r["network"]["calls"] = {{{"kind", "flatten"},
                              {"name", "a"},
                              {"in", {"x"}},
                              {"out", "v1"},
                              {"settings", json::object()},
                              {"parameters", json::object()}},
                             {{"kind", "linear"},
                              {"name", "b"},
                              {"in", {"v1"}},
                              {"out", "v2"},
                              {"settings", {{"outputs", 1 << 24}, {"bias", false}}},
                              {"parameters", json::object()}}};
    r["network"]["outputs"] = {{{"name", "out"}, {"value", "v2"}, {"shape", {1 << 24}}}};
    r["workload"]["targets"]["y"]["below"] = 1 << 24;
  });
  EXPECT_EQ(error["kind"], "failed") << error;
  EXPECT_NE(error["message"].get<std::string>().find("at most 2147483648 parameters"), std::string::npos)
      << error;
}

TEST(TandemDriverErrors, RubbishAndCallsOutOfOrderAreAnsweredAndSurvived) {
  const std::vector<json> answers = answers_to_text(
      "rubbish\n{\"id\": 1\n[1, 2]\n\n   \n{\"id\": 4}\n{\"id\": 5, \"call\": 7}\n\xff\xfe\n{\"id\": 6, "
      "\"call\": "
      "\"run\", \"region\": \"latency\", \"steps\": 1}\n{\"id\": 7, \"call\": \"check\"}\n{\"id\": 8, "
      "\"call\": "
      "\"fit\", \"epochs\": 1}\n{\"id\": 9, \"call\": \"breakdown\"}\n{\"id\": 10, \"call\": \"quit\"}");
  ASSERT_EQ(answers.size(), 11u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(answers[i]["ok"], false) << answers[i];
    EXPECT_EQ(answers[i]["error"]["kind"], "failed") << answers[i];
  }
  EXPECT_TRUE(answers[0]["id"].is_null());
  EXPECT_EQ(answers[3]["id"], 4);
  EXPECT_EQ(answers[6]["error"]["message"], "run: a cell must be prepared first; got none.");
  EXPECT_EQ(succeeded(answers[10])["id"], 10);
}

TEST(TandemDriverErrors, WrongCallsOfAPreparedCellLeaveItUsable) {
  const SmallCell cell("lenet", {1, 28, 28}, 8, 0);
  const std::vector<json> answers = answers_to({cell.prepare("eager", "infer"),
                                                {{"call", "run"}, {"region", "sideways"}, {"steps", 1}},
                                                {{"call", "run"}, {"region", "latency"}, {"steps", 0}},
                                                {{"call", "run"}, {"region", "latency"}},
                                                {{"call", "fit"}, {"epochs", 1}},
                                                {{"call", "check"}, {"steps", -1}},
                                                {{"call", "breakdown"}, {"steps", "all"}},
                                                {{"call", "run"}, {"region", "latency"}, {"steps", 2}},
                                                cell.prepare("eager", "train", 9),
                                                {{"call", "fit"}, {"epochs", 1}},
                                                {{"call", "fit"}, {"epochs", 1}, {"cap_s", "long"}}});
  ASSERT_EQ(answers.size(), 11u);
  for (size_t i : {1u, 2u, 3u, 4u, 5u, 6u, 9u, 10u}) EXPECT_EQ(answers[i]["ok"], false) << answers[i];
  EXPECT_EQ(answers[1]["error"]["what"], "region");
  EXPECT_EQ(answers[4]["error"]["kind"], "declined");
  succeeded(answers[7]);
  EXPECT_NE(answers[9]["error"]["message"].get<std::string>().find("an epoch must have a whole batch"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::lab
