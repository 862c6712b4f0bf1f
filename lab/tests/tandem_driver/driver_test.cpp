// Tandem's driver, call by call, within this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "lab/src/protocol/hash.h"
#include "lab/src/tandem_driver/network.h"
#include "lab/src/tandem_driver/prepared_cell.h"
#include "lab/tests/tandem_driver/driver_talk.h"

namespace tandem::lab {
namespace {

const json kTenSteps = {{"call", "check"}, {"steps", 10}};

TEST(TandemDriver, HelloOffersBothEnginesEveryKindOfLayerAndEveryPassOfTheLibrary) {
  const std::vector<json> answers =
      answers_to({{{"call", "hello"}}, {{"call", "quit"}}, {{"call", "hello"}}});
  ASSERT_EQ(answers.size(), 2u) << "nothing is answered after quit";
  const json& hello = succeeded(answers[0]);
  EXPECT_EQ(hello["id"], 1);
  EXPECT_EQ(hello["protocol"], 2);
  EXPECT_EQ(hello["framework"], "tandem");
  EXPECT_EQ(hello["variants"], (json{"eager", "graph", "tpe", "asha", "random"}));
  EXPECT_EQ(hello["devices"][0], "cpu");
  EXPECT_FALSE(hello["version"].get<std::string>().empty());
  const auto kinds = hello["kinds"].get<std::vector<std::string>>();
  for (const std::string& name : workload_names())
    for (const zoo::LayerCall& call : load_network(load_workload(name)).line.calls)
      EXPECT_EQ(std::count(kinds.begin(), kinds.end(), call.layer.type), 1)
          << name << ", " << call.layer.type;
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "residual"), 0) << "blocks are unrolled before";
  EXPECT_EQ(hello["losses"], (json{"cross_entropy", "mse", "mae", "bce", "ctc", "sum"}));
  EXPECT_EQ(hello["switches"]["conv"], (json{"fixed", "heuristic", "profile"}));
  for (const std::string& pass : all_stages())
    EXPECT_EQ(hello["switches"]["graph." + pass], (json{"on", "off"})) << pass;
}

TEST(TandemDriver,
     TheHashTheOrderAndTheWeightsAreTheProtocols) {  // numbers computed from the page's formulas in Python
  EXPECT_EQ(hashed(0, 0), 0u);
  EXPECT_EQ(hashed(1, 2), 1712184577u);
  EXPECT_EQ(hashed(123456, 99), 3637633216u);
  EXPECT_EQ(hashed(4294967295u, 7), 2477081019u);
  EXPECT_EQ(tandem_driver::epoch_order(12, 5, 0),
            (std::vector<int64_t>{4, 10, 8, 7, 3, 1, 0, 5, 9, 2, 11, 6}));
  EXPECT_EQ(tandem_driver::epoch_order(12, 5, 1),
            (std::vector<int64_t>{5, 8, 7, 4, 6, 10, 9, 2, 1, 3, 11, 0}));
  const auto lenet = zoo::make_model("lenet");
  tandem_driver::set_hash_weights(*lenet, 40);
  const nn::NamedTensors named = lenet->named_parameters();  // conv1.weight, conv1.bias, …
  const std::vector<float> weight = named[0].second.to_vector<float>(),
                           bias = named[1].second.to_vector<float>();
  EXPECT_EQ(weight[0], 0.051170650869607925f);
  EXPECT_EQ(weight[149], -0.46754905581474304f);
  EXPECT_EQ(bias[0], -0.01575498655438423f);
  EXPECT_EQ(bias[5], -0.010849827900528908f);
  const auto resnet = zoo::make_model("resnet18");
  tandem_driver::set_hash_weights(*resnet, 39);  // the second name is bn1.weight, and this its stream 40
  for (const auto& [name, tensor] : resnet->named_parameters())
    if (name == "bn1.weight") {
      EXPECT_EQ(tensor.to_vector<float>()[3], 1.0020653009414673f);
    }
  for (const auto& [name, tensor] : resnet->named_buffers())
    if (name.ends_with("running_var")) {
      EXPECT_EQ(tensor.to_vector<float>()[0], 1.0f) << name;
    }
}

TEST(TandemDriver, CheckHasTheSameBitsWithBothEnginesAndAgreesWithF64) {
  const SmallCell cell("lenet", {1, 28, 28}, 40, 0);
  json wide = cell.prepare("graph");
  wide["precision"] = "f64";
  const std::vector<json> answers = answers_to(
      {cell.prepare("eager"), kTenSteps, cell.prepare("graph"), kTenSteps, wide, kTenSteps, kTenSteps});
  ASSERT_EQ(answers.size(), 7u);
  const json &eager = succeeded(answers[1]), &f64 = succeeded(answers[5]);
  json graph = succeeded(answers[3]);
  EXPECT_EQ(answers[0]["parameters"], 61706);
  EXPECT_GT(answers[0]["prepare_ns"], 0);
  EXPECT_EQ(eager["parameters"], 61706);
  EXPECT_EQ(eager["outputs"]["out"]["shape"], (json{8, 10}));
  EXPECT_EQ(eager["outputs"]["out"]["values"].size(), 80u);
  EXPECT_EQ(eager["losses"].size(), 10u);
  EXPECT_EQ(eager["losses"][0], eager["loss"]);
  EXPECT_EQ(eager["gradients"].size(), 10u);
  EXPECT_GT(eager["gradients"]["conv1.weight"], 1e-3);
  EXPECT_NE(eager["losses"][0], eager["losses"][9]);
  graph["id"] = eager["id"];
  EXPECT_EQ(graph, eager);
  for (const char* name : {"outputs", "loss", "gradients", "losses"})
    expect_near(eager[name], f64[name], 1e-4, name);
  EXPECT_NE(eager["loss"], f64["loss"]);
  json second = answers[6];  // begins with the prepared weights each time
  second["id"] = f64["id"];
  EXPECT_EQ(second, f64);
}

TEST(TandemDriver, WholeModelsHaveTheSameBitsWithBothEnginesAndAgreeWithF64) {
  const json three = {{"call", "check"}, {"steps", 3}};
  for (const char* name : {"deepspeech2_small", "gnmt_small", "seq2seq_small", "tacotron2_small"}) {
    SCOPED_TRACE(name);
    const SmallCell cell(name, {}, 12, 0);
    json wide = cell.prepare("graph", "train", 4);
    wide["precision"] = "f64";
    const std::vector<json> answers = answers_to(
        {cell.prepare("eager", "train", 4), three, cell.prepare("graph", "train", 4), three, wide, three});
    const json &eager = succeeded(answers[1]), &f64 = succeeded(answers[5]);
    json graph = succeeded(answers[3]);
    EXPECT_EQ(eager["losses"].size(), 3u);
    EXPECT_EQ(eager["losses"][0], eager["loss"]);
    EXPECT_NE(eager["losses"][0], eager["losses"][2]);
    graph["id"] = eager["id"];
    EXPECT_EQ(graph, eager);
    for (const char* part : {"outputs", "loss", "gradients", "losses"})
      expect_near(eager[part], f64[part], 1e-3, part);
  }
}

TEST(TandemDriver, AWholeModelIsRefusedOrDeclinedByWhatItCannotHave) {
  const SmallCell cell("deepspeech2_small", {}, 8, 4);
  const auto refused = [&](const std::function<void(json&)>& change, const char* kind, const char* rule) {
    json request = cell.prepare("eager", "train", 4);
    change(request);
    const json answer = answers_to({request})[0];
    ASSERT_FALSE(answer["ok"]) << rule;
    EXPECT_EQ(answer["error"]["kind"], kind) << answer;
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(rule), std::string::npos) << answer;
  };
  refused([](json& r) { r["switches"]["lstm"] = "cell"; }, "declined", "lstm: the network has no such layer");
  refused([](json& r) { r["network"]["calls"][0]["settings"]["hidden"] = 32; }, "failed",
          "must have the parameters of Tandem's class");
  refused([](json& r) { r["network"]["calls"][0]["settings"]["units"] = 32; }, "failed", "units");
  refused([](json& r) { r["network"]["calls"].push_back(r["network"]["calls"][0]); }, "declined",
          "must be the only call of its network");
  refused([](json& r) { r["workload"]["loss"].erase("lengths"); }, "failed", "without lengths");
  refused(
      [](json& r) {
        r["workload"]["loss"] = {{"kind", "sum"}, {"terms", json::array()}};
      },
      "failed", "must be 1 to 64 losses");
  refused([](json& r) { r["workload"]["metrics"] = {"accuracy"}; }, "declined", "none of ctc and sum");
  refused(
      [](json& r) {
        r["workload"]["loss"] = {{"kind", "sum"}, {"terms", {r["workload"]["loss"]}}};
      },
      "declined", "loss: must be one of cross_entropy");
  const auto trimmed = [&](const json& trim, const char* kind, const char* rule) {
    refused([&](json& r) { r["trim"] = trim; }, kind, rule);
  };
  trimmed({{"labels", {{"of", {"features"}}}}}, "failed",
          "trim.labels: must be an input or a target of whole numbers");
  trimmed({{"length", {{"of", {"nobody"}}}}}, "failed",
          "trim.length.of: must be inputs and targets of as many places");
  trimmed({{"length", {{"of", {"features", "features"}}}}}, "failed", "and each once");
  trimmed({{"length", {{"of", json::array()}}}}, "failed", "must name what the length trims");
  trimmed({{"length", {{"of", {"labels"}}}}}, "failed",
          "is trimmed by the lengths of its term alone; got labels");
  trimmed({{"length", {{"of", {"features"}}, {"multiple", 0}}}}, "failed",
          "trim.length.multiple: must be an integer");
  refused(
      [](json& r) {
        r["trim"] = {{"length", {{"of", {"features"}}}}};
        r["switches"]["feed"] = "loader";
      },
      "declined", "trim: batches of the loader are whole");
  refused(
      [&](json& r) {
        r["trim"] = {{"length", {{"of", {"features"}}}}};
        io::save_npy(cell.folder / "long.npy", full({8}, 65.0, DType::i64));
        r["data"]["train"]["length"] = cell.folder / "long.npy";
      },
      "failed", "data.train.length: lengths must be in 1 … 64, the places of features; got 65 … 65");
}

TEST(TandemDriver, TheImplementationOfAnLstmIsTurnedInWholeModelsToo) {
  const SmallCell cell("gnmt_small", {}, 8, 0);
  std::vector<json> requests;
  for (const char* value : {"cell", "block", "fused"}) {
    requests.push_back(cell.prepare("eager", "train", 4));
    requests.back()["switches"]["lstm"] = value;
    requests.push_back({{"call", "check"}, {"steps", 2}});
  }
  const std::vector<json> answers = answers_to(requests);
  for (const size_t i : {3u, 5u})
    expect_near(succeeded(answers[i])["losses"], succeeded(answers[1])["losses"], 1e-4, "losses");
}

TEST(TandemDriver, ANetworkWithBatchNormIsCheckedWithoutTouchingItsStatistics) {
  const SmallCell cell("resnet18", {3, 32, 32}, 12, 6);
  const json three = {{"call", "check"}, {"steps", 3}}, none = {{"call", "check"}, {"steps", 0}};
  const std::vector<json> answers =
      answers_to({cell.prepare("eager", "train", 4), three, cell.prepare("graph", "train", 4), three, none,
                  none, cell.prepare("graph", "infer", 4), none});
  json graph = succeeded(answers[3]), second = succeeded(answers[5]);
  graph["id"] = answers[1]["id"];
  EXPECT_EQ(graph, succeeded(answers[1]));
  second["id"] = answers[4]["id"];
  EXPECT_EQ(second, succeeded(answers[4])) << "a check without steps leaves everything as it was";
  EXPECT_EQ(succeeded(answers[7])["outputs"], graph["outputs"]);
  EXPECT_FALSE(answers[7].contains("loss"));
}

TEST(TandemDriver, SixteenBitNumbersGiveLossesNearThoseOfF32) {
  const SmallCell cell("lenet", {1, 28, 28}, 24, 0);
  write_weights(cell.folder / "w.safetensors", cell.network, 3);
  const auto prepare = [&](const char* variant, const char* precision) {
    json request = cell.prepare(variant);
    request["weights"] = {{"file", cell.folder / "w.safetensors"}};
    request["precision"] = precision;
    return request;
  };
  const std::vector<json> answers = answers_to(
      {prepare("eager", "f32"), kTenSteps, prepare("eager", "bf16"), kTenSteps, prepare("graph", "bf16"),
       kTenSteps, prepare("eager", "f16"), kTenSteps, prepare("graph", "f16"), kTenSteps});
  for (size_t i = 3; i < answers.size(); i += 2) {
    const double tolerance = i < 7 ? 4e-3 : 5e-4;  // 8 and 11 bits
    expect_near(succeeded(answers[i])["losses"], answers[1]["losses"], tolerance, "losses");
    expect_near(answers[i]["gradients"], answers[1]["gradients"], 2 * tolerance, "gradients");
    EXPECT_NE(answers[i]["losses"], answers[1]["losses"]);
    EXPECT_FALSE(answers[i - 1]["notes"].empty());
  }
  EXPECT_EQ(answers[3]["losses"], answers[5]["losses"]);
  EXPECT_EQ(answers[7]["losses"], answers[9]["losses"]);
}

TEST(TandemDriver, RunTakesTheStepsOfCheckAndTellsWhenEachBeganAndEnded) {
  const SmallCell cell("lenet", {1, 28, 28}, 40, 0);
  const auto run = [](const char* region, int steps) {
    return json{{"call", "run"}, {"region", region}, {"steps", steps}};
  };
  const int64_t before = tandem_driver::now_ns();
  const std::vector<json> answers =
      answers_to({cell.prepare("graph"), run("latency", 4), run("throughput", 6), kTenSteps,
                  run("latency", 1), cell.prepare("eager"), run("throughput", 7)});
  const int64_t after = tandem_driver::now_ns();
  const json& latency = succeeded(answers[1]);
  ASSERT_EQ(latency["steps"].size(), 4u);
  int64_t last = before;
  for (const json& step : latency["steps"]) {
    EXPECT_GE(step[0], last);
    EXPECT_GT(step[1], step[0]);
    last = step[1];
  }
  EXPECT_EQ(latency["updates"], 4);
  const json& throughput = succeeded(answers[2]);
  EXPECT_EQ(throughput["count"], 6);
  EXPECT_GE(throughput["begin"], last);
  EXPECT_GT(throughput["end"], throughput["begin"]);
  EXPECT_LE(throughput["end"], after);
  EXPECT_EQ(throughput["updates"], 10);
  const json& check = succeeded(answers[3]);
  EXPECT_EQ(check["losses"][3], latency["loss"]);
  EXPECT_EQ(answers[4]["updates"], 21);
  // Five whole batches are in the file: step 6 is the first batch's second turn, as check's is.
  EXPECT_EQ(succeeded(answers[6])["loss"], check["losses"][6]);
}

TEST(TandemDriver, InferenceGivesTheSameSumWithBothEnginesAndChangesNothing) {
  const SmallCell cell("mnist_cnn", {1, 28, 28}, 16, 0);
  const json run = {{"call", "run"}, {"region", "throughput"}, {"steps", 3}};
  json eager = cell.prepare("eager", "infer"), graph = cell.prepare("graph", "infer");
  eager["dropout"] = graph["dropout"] = true;  // off in test mode all the same
  const std::vector<json> answers =
      answers_to({eager, run, graph, run, run, {{"call", "check"}, {"steps", 0}}});
  EXPECT_TRUE(succeeded(answers[1])["loss"].is_null());
  EXPECT_EQ(answers[1]["updates"], 0);
  EXPECT_NE(answers[1]["output_sum"], 0.0);
  for (size_t i : {3u, 4u}) EXPECT_EQ(succeeded(answers[i])["output_sum"], answers[1]["output_sum"]);
  EXPECT_EQ(succeeded(answers[5])["outputs"].size(), 1u);
}

TEST(TandemDriver, DropoutIsDrawnFromTheSeedAndAgreesBetweenTheEngines) {
  const SmallCell cell("mnist_cnn", {1, 28, 28}, 16, 0);
  const json run = {{"call", "run"}, {"region", "throughput"}, {"steps", 3}};
  json eager = cell.prepare("eager"), graph = cell.prepare("graph"), other = cell.prepare("graph");
  eager["dropout"] = graph["dropout"] = other["dropout"] = true;
  other["seed"] = 8;
  const std::vector<json> answers =
      answers_to({eager, run, graph, run, other, run, cell.prepare("graph"), run});
  EXPECT_EQ(succeeded(answers[3])["loss"], succeeded(answers[1])["loss"]);
  EXPECT_NE(succeeded(answers[5])["loss"], answers[1]["loss"]);
  EXPECT_NE(succeeded(answers[7])["loss"], answers[1]["loss"]);
}

TEST(TandemDriver, AsShippedBeginsWithTandemsOwnWeightsAndRate) {
  const SmallCell cell("resnet18", {3, 32, 32}, 8, 0);
  json request = cell.prepare("graph", "train", 4);
  request["track"] = "as_shipped";
  std::vector<json> answers = answers_to({request});
  EXPECT_NE(answers[0]["error"]["message"].get<std::string>().find("weights: the track as_shipped"),
            std::string::npos);
  request.erase("weights");
  json adam = request;
  adam["workload"]["optimizer"] = {{"name", "adam"}, {"lr", 0.5}};
  const json one = {{"call", "check"}, {"steps", 1}};
  answers = answers_to({request, one, request, one, adam});
  EXPECT_NE(succeeded(answers[0])["notes"].dump().find("sgd with learning rate 0.001"), std::string::npos);
  EXPECT_NE(succeeded(answers[4])["notes"].dump().find("adam with learning rate 0.001"), std::string::npos);
  answers[3]["id"] = answers[1]["id"];
  EXPECT_EQ(succeeded(answers[1]), answers[3]);
}

TEST(TandemDriver, ARequestNestedTooDeepIsRefusedAndTheDriverLivesOn) {
  const auto answers = answers_to_text("{\"id\": 1, \"call\": " + std::string(100'000, '[') +
                                       std::string(100'000, ']') + "}\n{\"id\": 2, \"call\": \"hello\"}\n");
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["ok"], false);
  EXPECT_NE(answers[0]["error"]["message"].get<std::string>().find("at most 100 levels deep"),
            std::string::npos);
  EXPECT_EQ(answers[1]["ok"], true);
}

}  // namespace
}  // namespace tandem::lab
