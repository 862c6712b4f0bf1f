// Pipelines: drivers that make other samples than they were asked for, or the same ones again and again, are caught by name.
#include <filesystem>

#include "lab/src/measure/input_checks.h"
#include "lab/src/measure/runner.h"
#include "lab/tests/measure/bench_of_fakes.h"

namespace tandem::lab {
namespace {

using testing::TempFolder;

Cell picture_cell(const std::string& phase, std::map<std::string, std::string> switches = {}) {
  Cell cell = small_cell(phase == "load" ? "infer" : phase, "photos_cnn");
  cell.condition.phase = phase;
  cell.condition.input = {3, 64, 64};
  cell.condition.switches = std::move(switches);
  cell.effort.timed_steps = 16;
  cell.effort.warmup_steps = 1;
  return cell;
}

TEST(Loading, AnHonestPipelineIsMeasured) {
  TempFolder folder;
  const lab::Run run = honest_run(picture_cell("load", {{"storage", "disk"}}), folder.path());
  ASSERT_EQ(to_string(run.status), "ok") << run.why << "\n" << run.last_words;
  EXPECT_GT(run.metrics.at("samples_per_s"), 0);
  EXPECT_GT(run.metrics.at("input.cold_share"), 0);
  EXPECT_LE(run.metrics.at("input.cold_share"), 1);
  EXPECT_FALSE(run.metrics.contains("step.latency_s"));
  EXPECT_TRUE(run.unavailable.contains("step.latency_s"));
  EXPECT_EQ(run.gate.at("kind"), "samples");
  EXPECT_TRUE(run.data == "voc2012" || run.data == "synthetic-photographs") << run.data;
}

TEST(Loading, TrainingIsFedFromFilesAndFromArrays) {
  TempFolder folder;
  lab::Run run = honest_run(picture_cell("train", {{"feed", "loader"}, {"storage", "disk"}}), folder.path());
  ASSERT_EQ(to_string(run.status), "ok") << run.why << "\n" << run.last_words;
  EXPECT_GT(run.metrics.at("input.wait_share"), 0);
  EXPECT_LE(run.metrics.at("input.wait_share"), 1);
  EXPECT_GT(run.metrics.at("step.latency_s"), 0);
  Cell arrays = small_cell("train");
  arrays.condition.switches = {{"feed", "loader"}};
  run = honest_run(arrays, folder.path());
  ASSERT_EQ(to_string(run.status), "ok") << run.why << "\n" << run.last_words;
  EXPECT_TRUE(run.metrics.contains("input.wait_share"));
}

TEST(Loading, OtherSamplesAreCaughtByName) {
  struct Case {
    const char* fault;
    const char* phase;
    const char* status;
    const char* why;
  };
  TempFolder folder;
  for (const Case& c :
       {Case{"wrong_mean", "load", "not_same_model", "not the same samples"},
        Case{"wrong_crop", "load", "not_same_model", "not the same samples: x["},
        Case{"wrong_mean", "train", "not_same_model", "not the same samples"},
        Case{"same_batch", "load", "dishonest", "samples: batch"},
        Case{"same_batch", "train", "dishonest", "samples: batch"},
        Case{"no_sums", "load", "dishonest", "samples: the sums"},
        Case{"other_sums", "load", "dishonest", "samples: the sums must be of inputs"},
        Case{"no_wait", "train", "dishonest", "wait: "}, Case{"long_wait", "train", "dishonest", "wait: "},
        Case{"text_in_sums", "load", "garbage", "'samples_sum' must be a finite number"}}) {
    std::filesystem::remove(folder / "gate.json");
    const Cell cell =
        std::string(c.phase) == "load" ? picture_cell("load") : picture_cell("train", {{"feed", "loader"}});
    const lab::Run run = run_with(c.fault, cell, folder.path());
    EXPECT_EQ(to_string(run.status), c.status) << c.fault << ", " << c.phase << ": " << run.why;
    EXPECT_NE(run.why.find(c.why), std::string::npos) << c.fault << ", " << c.phase << ": " << run.why;
  }
}

TEST(Loading, AStepThatUsesNoProcessorTimeHasDecodedNothing) {
  Timed timed;
  timed.count = timed.asked = 100;
  BatchSums made;
  made.cpu_s = 0.05;
  EXPECT_FALSE(check_decoding(timed, {.cpu_s = 5, .delay_s = 0}, made));
  EXPECT_FALSE(check_decoding(timed, {.cpu_s = 1.3, .delay_s = 0}, made))
      << "a decoder that is four times as fast";
  EXPECT_FALSE(check_decoding(timed, {.cpu_s = 0.5, .delay_s = 1}, made)) << "it waited for a core";
  const Objection found = check_decoding(timed, {.cpu_s = 0.5, .delay_s = 0}, made);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rule, "decoding");
  timed.count = timed.asked = 2;
  EXPECT_FALSE(check_decoding(timed, {.cpu_s = 0, .delay_s = 0}, made)) << "too short to see";
}

TEST(Loading, AWaitForTheDiskIsNotIdleness) {
  // Of 0.5 s of steps the processor worked 10 ms: a contradiction, unless files come from the disk (one_run.cpp).
  Timed timed;
  timed.region = Region::throughput;
  timed.asked = timed.count = 5;
  timed.sent_ns = 0, timed.begin_ns = 1'000'000, timed.end_ns = 501'000'000, timed.received_ns = 502'000'000;
  const Witness seen{.cpu_s = 0.01, .delay_s = 0};
  HonestyLimits limits;
  const Objection found = check_region(timed, seen, Window::timed, "load", "cpu", 0, limits);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rule, "idle");
  limits.least_cpu_share = 0;
  EXPECT_FALSE(check_region(timed, seen, Window::timed, "load", "cpu", 0, limits));
}

TEST(Loading, BurstsOfBatchesAreNoContradiction) {
  // Two workers: every second batch is there already.
  Timed latency;
  latency.asked = latency.count = 20;
  for (int64_t i = 0; i < 20; ++i)
    latency.steps.emplace_back(i / 2 * 100'000'000 + (i % 2) * 99'000'000,
                               i / 2 * 100'000'000 + 99'000'000 + (i % 2) * 1'000'000);
  Timed throughput;
  throughput.region = Region::throughput;
  throughput.asked = throughput.count = 20;
  throughput.end_ns = 1'000'000'000;
  const Witness seen{.cpu_s = 1.5, .delay_s = 0};
  EXPECT_FALSE(check_regions(throughput, seen, latency, seen, "cpu", {}, true));
  latency.steps.erase(latency.steps.begin(),
                      latency.steps.begin() + 2);  // the median is a batch that was there
  std::vector<std::pair<int64_t, int64_t>> there;
  for (const auto& step : latency.steps)
    if (step.second - step.first < 2'000'000) there.push_back(step);
  latency.steps.insert(latency.steps.end(), there.begin(), there.end());
  const Objection found = check_regions(throughput, seen, latency, seen, "cpu");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rule, "regions");
}

TEST(Loading, CellsWhoseFilesCannotLieThereAreMissingWithTheReason) {
  if (!storage_refusal("memory", "", 1 << 20).empty()) GTEST_SKIP() << "no " << kRamDisk << " here";
  TempFolder folder{std::filesystem::path(kRamDisk)};  // no disk
  Plan plan;
  plan.name = "test";
  plan.study = Json::object();
  plan.cells = {picture_cell("load", {{"storage", "disk"}}), picture_cell("load")};
  for (Cell& cell : plan.cells) cell.effort.runs = 1;
  RunnerOptions options;
  options.disturbance = undisturbed();
  options.folder = folder / "study";
  options.bench = bench_of_fakes("");
  options.cool_down_s = 0;
  const auto progress = no_progress();
  const StudyOutcome outcome = run_study(plan, options, *progress);
  EXPECT_EQ(outcome.taken, 1);
  const Results results = load_results(options.folder);
  ASSERT_EQ(results.study.at("missing").size(), 1u);
  const std::string why = results.study["missing"][0]["why"];
  EXPECT_NE(why.find("storage disk: the study's folder must be on a disk"), std::string::npos) << why;
  ASSERT_EQ(results.runs.size(), 1u);
  EXPECT_TRUE(results.runs[0].condition.switches.empty());
}

TEST(Loading, ADriverWithoutThePhaseOrTheSwitchDeclinesByName) {
  TempFolder folder;
  lab::Run run = run_with("no_pipeline", picture_cell("load"), folder.path());
  EXPECT_EQ(to_string(run.status), "declined");
  EXPECT_NE(run.why.find("phase: the driver has train, infer; got load"), std::string::npos) << run.why;
  run = run_with("no_pipeline", picture_cell("train", {{"feed", "loader"}}), folder.path());
  EXPECT_EQ(to_string(run.status), "declined");
  EXPECT_NE(run.why.find("feed"), std::string::npos) << run.why;
}

}  // namespace
}  // namespace tandem::lab
