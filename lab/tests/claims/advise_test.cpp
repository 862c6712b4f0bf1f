// Advice on made-up sweeps: the cheapest candidate wins, those within the noise are ties, and breakdowns say why.
#include "lab/src/claims/advise.h"

#include <gtest/gtest.h>

#include <set>

#include "lab/src/study/catalogue.h"
#include "lab/tests/claims/made_up.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

const std::string kTime = "step.throughput_s";

/// tandem:graph is best at batch 64; pytorch:eager at batch 64 is 1 % behind, which is less than the noise.
MadeUp sweep() {
  MadeUp made("");
  for (const int64_t batch : {16, 64}) {
    const Condition condition = condition_of("lenet", "train", batch);
    const double scale = batch == 16 ? 0.3 : 1.0;
    made.add(condition, "tandem:graph", kTime, 0.0100 * scale, 0.004);
    made.add(condition, "tandem:graph", kTime, 0.0100 * scale, 0.004, 10, "A/A");
    made.add(condition, "pytorch:eager", kTime, 0.0101 * scale, 0.004);
    made.add(condition, "tensorflow:function", kTime, 0.0200 * scale, 0.004);
    made.add(condition, "tandem:graph", "rss.peak_mib", batch == 16 ? 100 : 150, 0.001);
    made.add(condition, "pytorch:eager", "rss.peak_mib", batch == 16 ? 400 : 450, 0.001);
    made.add(condition, "tensorflow:function", "rss.peak_mib", batch == 16 ? 700 : 750, 0.001);
    made.add(condition, "tandem:graph", "breakdown.launches", 12, 0);
    made.add(condition, "tensorflow:function", "breakdown.launches", 88, 0);
    made.run_of(condition, "tandem:graph", 0).breakdown = {{"choices", {{"conv1", "winograd"}}}};
    made.run_of(condition, "tensorflow:function", 0).breakdown = {{"choices", {{"conv1", "im2col"}}}};
  }
  return made;
}

TEST(Advise, TheCheapestASampleWinsAndTiesAreNamed) {
  const MadeUp made = sweep();
  const Advice advice = advise(made.results(), made.analysis(), Goal::time);
  ASSERT_EQ(advice.candidates.size(), 6u);
  const Candidate& best = advice.candidates[0];
  EXPECT_EQ(best.system, "tandem:graph");
  EXPECT_EQ(best.condition.batch, 64);
  EXPECT_NEAR(best.cost.value, 0.0100 / 64 * 1e6, 2);
  EXPECT_LE(best.cost.low, best.cost.value);
  std::set<std::string> ties;
  for (const Candidate& candidate : advice.candidates) {
    if (candidate.tie) ties.insert(candidate.system + " " + std::to_string(candidate.condition.batch));
  }
  EXPECT_EQ(ties, (std::set<std::string>{"pytorch:eager 64"}));
  const std::string text = advice_text(advice);
  EXPECT_NE(text.find("take tandem:graph at batch 64 in f32"), std::string::npos) << text;
  EXPECT_NE(text.find("Ties"), std::string::npos) << text;
  EXPECT_NE(text.find("a step launches 12 kernels with tandem:graph, 88 with tensorflow:function"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("winograd"), std::string::npos) << text;
  const Json json = to_json(advice);
  EXPECT_EQ(json["candidates"][0]["system"], "tandem:graph");
  EXPECT_EQ(json["goal"], "time");
}

TEST(Advise, MemoryAndEnergyHaveTheirOwnOrder) {
  const MadeUp made = sweep();
  const Advice memory = advise(made.results(), made.analysis(), Goal::memory);
  EXPECT_EQ(memory.candidates.at(0).system, "tandem:graph");
  EXPECT_EQ(memory.candidates.at(0).condition.batch, 16);
  EXPECT_EQ(memory.unit, "MiB");
  const Advice energy = advise(made.results(), made.analysis(), Goal::energy);
  EXPECT_TRUE(energy.candidates.empty());
  EXPECT_NE(advice_text(energy).find("No advice"), std::string::npos);
  EXPECT_NE(energy.reason.find("step.energy_j"), std::string::npos) << energy.reason;
}

TEST(Advise, FewRunsDecideNothingAndTheOtherTrackIsLeftOut) {
  MadeUp made("");
  const Condition condition = condition_of("lenet", "train", 64);
  made.add(condition, "tandem:graph", kTime, 0.010, 0.01, 2)
      .add(condition, "pytorch:eager", kTime, 0.020, 0.01, 2);
  Condition shipped = condition;
  shipped.track = "as_shipped";
  made.add(shipped, "keras:fit", kTime, 0.001);
  const Advice advice = advise(made.results(), made.analysis(), Goal::time);
  ASSERT_EQ(advice.candidates.size(), 2u);
  EXPECT_FALSE(advice.candidates[1].tie) << "twice as slow is no tie";
  EXPECT_TRUE(advice.candidates[1].few);
  const std::string text = advice_text(advice);
  EXPECT_NE(text.find("This rests on 2 runs, too few to decide anything"), std::string::npos) << text;
  EXPECT_NE(text.find("), too few runs to decide"), std::string::npos) << text;
  EXPECT_EQ(text.find("tie"), std::string::npos) << text;
  EXPECT_EQ(to_json(advice)["candidates"][1]["too_few_runs"], true);
}

TEST(Advise, OneRunHasNoInterval) {
  MadeUp made("");
  const Condition condition = condition_of("lenet", "train", 64);
  made.add(condition, "tandem:graph", kTime, 0.010, 0.01, 1)
      .add(condition, "pytorch:eager", kTime, 0.070, 0.01, 1);
  const Advice advice = advise(made.results(), made.analysis(), Goal::time);
  const std::string text = advice_text(advice);
  EXPECT_NE(text.find(" µs (one run).\nThis rests on one run, too few to decide anything; from 6 on"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" times the best (one run), too few runs to decide"), std::string::npos) << text;
  EXPECT_EQ(text.find("95 %"), std::string::npos) << text;
  EXPECT_TRUE(to_json(advice)["candidates"][1]["ratio"]["low"].is_null());
}

TEST(Advise, NothingMeasuredIsSaid) {
  MadeUp made("");
  const Advice none = advise(made.results(), made.analysis(), Goal::time);
  EXPECT_TRUE(none.candidates.empty());
  EXPECT_FALSE(none.reason.empty());
  lab::Run& run = made.run_of(condition_of("lenet", "train"), "pytorch:eager", 0);
  run.status = Status::absent;
  run.why = "not installed";
  const Advice absent = advise(made.results(), made.analysis(), Goal::time);
  EXPECT_TRUE(absent.candidates.empty());
  EXPECT_NE(advice_text(absent).find("not installed"), std::string::npos) << advice_text(absent);
}

TEST(AdvicePlan, SweepsSystemsBatchesAndPrecisions) {
  const Plan quick = make_advice_plan("lenet", "cpu", Goal::time, true);
  std::set<std::string> systems;
  std::set<int64_t> batches;
  for (const Cell& cell : quick.cells) {
    systems.insert(cell.system);
    batches.insert(cell.condition.batch);
    EXPECT_EQ(cell.condition.device, "cpu");
    EXPECT_EQ(cell.condition.phase, "train");
    EXPECT_GE(cell.effort.runs, cell.control.empty() ? 6 : 3);
    EXPECT_TRUE(cell.effort.breakdown);
  }
  EXPECT_TRUE(systems.contains("tandem:graph") && systems.contains("pytorch:eager"));
  EXPECT_EQ(batches, (std::set<int64_t>{100, 400}));
  EXPECT_EQ(quick.study["advise"]["goal"], "time");
  const Plan full = make_advice_plan("lenet", "cpu", Goal::memory, false, "infer");
  EXPECT_GT(full.cells.size(), quick.cells.size());
  EXPECT_TRUE(full.cells[0].optimizer.is_null());
  EXPECT_THROW(make_advice_plan("no_such_network", "cpu", Goal::time, true), Error);
  EXPECT_THROW(make_advice_plan("lenet", "cuda:63", Goal::time, true), Error);
  EXPECT_THROW(make_advice_plan("lenet", "cpu", Goal::time, true, "fit"), Error);
  EXPECT_EQ(parse_goal("energy"), Goal::energy);
  EXPECT_THROW(parse_goal("beauty"), Error);
}

}  // namespace
}  // namespace tandem::lab
