// Tandem's driver in phase load and with the switch feed: which samples its pipeline makes, and what it says of them.
#include "lab/src/inputs/pictures.h"
#include "lab/src/protocol/cut.h"
#include "lab/tests/tandem_driver/driver_talk.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

/// Made-up pictures, and requests about them.
class Pictures : public ::testing::Test {
 protected:
  Pictures()
      : cell("photos_cnn", {3, 64, 64}, 16, 0),
        list(write_pictures(cell.folder / "pictures", cell.workload, 10, 5, cell.folder / "none")) {}

  json load(int64_t batch = 4) const {
    json request = cell.prepare("graph", "load", batch);
    request.erase("weights");
    request["data"] = {{"images", images_request(cell.workload, list)}};
    return request;
  }
  json train(const std::string& feed) const {
    json request = cell.prepare("graph");
    request["switches"] = {{"feed", feed}};
    return request;
  }

  SmallCell cell;
  std::string list;
  const json check = {{"call", "check"}, {"steps", 0}};
};

json steps(const char* region, int count) { return {{"call", "run"}, {"region", region}, {"steps", count}}; }

void expect_sums(const json& got, const BatchSums& want) {
  ASSERT_EQ(got.size(), want.of.size());
  for (const auto& [name, sum] : want.of)
    EXPECT_NEAR(got.at(name).get<double>(), sum.sum, 1e-5 * (1 + sum.size)) << name;
}

TEST_F(Pictures, TheCutsAreTheProtocols) {  // numbers computed from the page's formula in Python
  const Cut a = drawn_cut(0, 7, 80, 100, 64, 64), b = drawn_cut(12345, 7, 80, 100, 64, 64);
  EXPECT_EQ((std::vector<int64_t>{a.top, a.left, a.is_mirrored}), (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ((std::vector<int64_t>{b.top, b.left, b.is_mirrored}), (std::vector<int64_t>{4, 10, 0}));
  const Cut middle = middle_cut(81, 100, 64, 64);
  EXPECT_EQ((std::vector<int64_t>{middle.top, middle.left, middle.is_mirrored}),
            (std::vector<int64_t>{8, 18, 0}));
  int64_t most = 0, mirrored = 0;
  for (int64_t p = 0; p < 1000; ++p) {
    const Cut cut = drawn_cut(p, 1, 72, 64, 64, 64);
    EXPECT_GE(cut.top, 0);
    EXPECT_LE(cut.top, 8);
    EXPECT_EQ(cut.left, 0) << "there is no room";
    most += cut.top == 8, mirrored += cut.is_mirrored;
  }
  EXPECT_NEAR(static_cast<double>(most), 1000 / 9.0, 40);
  EXPECT_NEAR(static_cast<double>(mirrored), 500, 80);
}

TEST_F(Pictures, CheckTellsTheMiddleOfTheFirstFiles) {
  const std::vector<json> answers = answers_to({load(), check});
  EXPECT_EQ(succeeded(answers[0])["parameters"], 0);
  const json& x = succeeded(answers[1])["outputs"]["x"];
  EXPECT_EQ(x["shape"], (json{4, 3, 64, 64}));
  const std::vector<PictureFile> files = read_picture_list(list);
  std::vector<Tensor> samples;
  for (size_t i = 0; i < 4; ++i) samples.push_back(picture_sample(cell.workload, {3, 64, 64}, files[i].path));
  const std::vector<float> all = stack(samples, 0).to_vector<float>();
  ASSERT_EQ(x["values"].size(), 4096u);
  for (uint32_t k = 0; k < 4096; ++k)
    ASSERT_NEAR(x["values"][k].get<double>(), all[hashed(k, 4096) % all.size()], 1e-6);
}

TEST_F(Pictures, EveryRunBeginsAnewAndEndsWithItsOwnBatch) {
  const std::vector<json> answers =
      answers_to({load(), steps("latency", 1), steps("throughput", 7), steps("latency", 3)});
  for (const auto& [at, last] : {std::pair{1, 0}, {2, 6}, {3, 2}}) {
    const json& run = succeeded(answers[static_cast<size_t>(at)]);
    EXPECT_EQ(run["updates"], 0);
    EXPECT_TRUE(run["loss"].is_null());
    expect_sums(run["samples_sum"], picture_sums(cell.workload, cell.network, list, last, 4, 7));
  }
  EXPECT_EQ(answers[2]["count"], 7);
  EXPECT_EQ(answers[3]["steps"].size(), 3u);
}

TEST_F(Pictures, TrainingStepsTakeTheirBatchesFromFilesOrArraysAndTellHowLongTheyWaited) {
  json from_files = train("loader");
  from_files["data"]["images"] = images_request(cell.workload, list);
  const std::vector<json> answers = answers_to({from_files,
                                                steps("latency", 3),
                                                train("loader"),
                                                steps("throughput", 3),
                                                train("resident"),
                                                steps("throughput", 3),
                                                {{"call", "breakdown"}, {"steps", 2}}});
  EXPECT_EQ(succeeded(answers[0])["obeyed"]["feed"], "loader");
  expect_sums(succeeded(answers[1])["samples_sum"], picture_sums(cell.workload, cell.network, list, 2, 8, 7));
  expect_sums(succeeded(answers[3])["samples_sum"], array_sums(cell.data.files.at("train"), 2, 8));
  for (const size_t at : {1, 3}) {
    EXPECT_EQ(answers[at]["updates"], 3);
    EXPECT_GT(answers[at]["wait_ns"].get<int64_t>(), 0);
  }
  EXPECT_FALSE(succeeded(answers[5]).contains("samples_sum"));
  // Batches of arrays that the loader brings train the network as resident ones do.
  EXPECT_NEAR(answers[3]["loss"].get<double>(), answers[5]["loss"].get<double>(), 1e-6);
  succeeded(answers[6]);
}

TEST_F(Pictures, ABreakdownTakesItsStepsFromThePipeline) {
  json request = train("loader");
  request["data"]["images"] = images_request(cell.workload, list);
  const std::vector<json> answers =
      answers_to({request, {{"call", "breakdown"}, {"steps", 2}}, steps("latency", 2)});
  EXPECT_GT(succeeded(answers[1])["kernel_share"].get<double>(), 0);
  expect_sums(succeeded(answers[2])["samples_sum"], picture_sums(cell.workload, cell.network, list, 1, 8, 7));
}

TEST_F(Pictures, WhatThePhaseCannotHaveIsDeclinedByNameAndWhatIsWrongIsRefused) {
  const auto refusal = [&](json request, const json& call = {{"call", "hello"}}) {
    const std::vector<json> answers = answers_to({std::move(request), call});
    const json& answer = answers[0].value("ok", false) ? answers[1] : answers[0];
    EXPECT_FALSE(answer["ok"].get<bool>()) << answer;
    return answer.value("error", json::object());
  };
  json request = load();
  request["switches"] = {{"feed", "loader"}};
  EXPECT_EQ(refusal(request)["what"], "feed");
  request = load();
  request["precision"] = "bf16";
  EXPECT_EQ(refusal(request)["what"], "precision");
  request = cell.prepare("graph", "infer");
  request["switches"] = {{"feed", "loader"}};
  EXPECT_EQ(refusal(request)["what"], "feed");
  EXPECT_EQ(refusal(load(), {{"call", "fit"}, {"epochs", 1}})["what"], "fit");
  EXPECT_EQ(refusal(load(), {{"call", "breakdown"}})["what"], "breakdown");

  const auto message = [&](const char* key, const json& value) {
    json broken = load();
    broken["data"]["images"][key] = value;
    return refusal(broken)["message"].get<std::string>();
  };
  EXPECT_NE(message("resize", 40).find("data.images.resize: must be at least 64 and 64"), std::string::npos);
  EXPECT_NE(message("std", {1, 1, 0}).find("data.images.std: must be three numbers"), std::string::npos);
  EXPECT_NE(message("mean", {1, 1}).find("data.images.mean"), std::string::npos);
  EXPECT_NE(message("list", "/nowhere").find("data.images.list"), std::string::npos);
  testing::write_text(cell.folder / "bad.txt", "20\t" + (cell.folder / "x.jpg") + "\n");
  EXPECT_NE(message("list", cell.folder / "bad.txt").find("a label below 20"), std::string::npos);
  json empty = load();
  empty["data"] = json::object();
  EXPECT_NE(refusal(empty)["message"].get<std::string>().find("must have images in phase load"),
            std::string::npos);
  // A file that is not a picture gives an error as the answer, and the driver goes on.
  testing::write_text(cell.folder / "x.jpg", "no picture");
  testing::write_text(cell.folder / "one.txt", "0\t" + (cell.folder / "x.jpg") + "\n");
  request = load();
  request["data"]["images"]["list"] = cell.folder / "one.txt";
  const std::vector<json> answers = answers_to({request, steps("throughput", 2), {{"call", "hello"}}});
  EXPECT_EQ(answers[1]["error"]["kind"], "failed");
  EXPECT_NE(answers[1]["error"]["message"].get<std::string>().find("x.jpg"), std::string::npos);
  succeeded(answers[2]);
}

}  // namespace
}  // namespace tandem::lab
