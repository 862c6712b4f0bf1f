// ctest: timeout=900 serial
// Studies with the fake driver: order, records, going on after a stop or a kill, budgets.
#include "lab/src/measure/runner.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "lab/src/measure/cooling.h"
#include "lab/src/measure/schedule.h"
#include "lab/tests/measure/bench_of_fakes.h"
#include "tandem/core/error.h"
#include "tandem/data/registry.h"
#include "tests/support/refusal.h"

namespace tandem::lab {
namespace {

using testing::read_text;
using testing::TempFolder;
using testing::write_text;

Plan small_plan(int64_t runs = 3) {
  Plan plan;
  plan.name = "test";
  plan.study = {{"title", "a test"}};
  for (const char* phase : {"train", "infer"})
    for (const char* system : {"fake:eager", "tandem:graph"}) {
      Cell cell = small_cell(phase);
      cell.system = system;
      cell.effort = {.runs = runs, .warmup_steps = 2, .timed_steps = 5, .timed_s = 0.1};
      plan.cells.push_back(cell);
    }
  Cell control = plan.cells[0];
  control.control = "A/A";
  plan.cells.push_back(control);
  return plan;
}

/// A variable of the environment, for as long as this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// What is asked here is which runs are taken and recorded. Whether times can be true is for other tests, and these must not
/// depend on what else the machine does meanwhile.
HonestyLimits believing() {
  HonestyLimits limits;
  limits.uncovered_share = 1, limits.uncovered_s = limits.uncovered_first_s = 1e6;
  limits.least_cpu_share = limits.least_throughput = limits.least_work = 0;
  limits.most_throughput = 1e9;
  return limits;
}

RunnerOptions options_in(const std::string& folder, const std::string& fault = "") {
  RunnerOptions options;
  options.limits = believing();
  options.disturbance = undisturbed();
  options.folder = folder;
  options.seed = 5;
  options.bench = bench_of_fakes(fault);
  return options;
}

/// Each run of the plan is recorded once, and ended well.
void expect_complete(const Plan& plan, const std::string& folder) {
  std::map<std::string, std::set<int64_t>> blocks;
  size_t count = 0;
  for (const lab::Run& run : load_results(folder).runs) {
    EXPECT_EQ(to_string(run.status), "ok") << run.why;
    blocks[cell_key(run.part, run.system, run.control, run.condition)].insert(run.block);
    ++count;
  }
  size_t wanted = 0;
  for (const Cell& cell : plan.cells) {
    EXPECT_EQ(static_cast<int64_t>(blocks[cell_key(cell)].size()), cell.effort.runs) << cell_key(cell);
    wanted += static_cast<size_t>(cell.effort.runs);
  }
  EXPECT_EQ(count, wanted);
}

TEST(Schedule, ABlockHasEveryCellOnceInAnOrderThatTheSeedDraws) {
  Plan plan = small_plan(8);
  plan.cells[1].effort.runs = 2;
  std::set<std::vector<size_t>> orders;
  for (int64_t block = 0; block < block_count(plan.cells); ++block) {
    const auto turns = turns_of_block(plan.cells, block, 5);
    std::vector<size_t> order;
    for (size_t i = 0; i < turns.size(); ++i) {
      order.push_back(turns[i].cell);
      EXPECT_EQ(turns[i].order, static_cast<int64_t>(i));
    }
    const auto a_second_time = turns_of_block(plan.cells, block, 5);
    for (size_t i = 0; i < turns.size(); ++i) EXPECT_EQ(a_second_time[i].cell, turns[i].cell);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order.size(), block < 2 ? 5u : 4u);
    EXPECT_TRUE(std::adjacent_find(order.begin(), order.end()) == order.end());
  }
  EXPECT_GT(orders.size(), 4u) << "the order hardly changes";
  EXPECT_EQ(block_count(plan.cells), 8);
}

TEST(Schedule, EveryPlaceIsTakenByEveryCell) {
  const Plan plan = small_plan(400);
  std::map<std::pair<size_t, int64_t>, int> times;
  for (int64_t block = 0; block < 400; ++block)
    for (const Turn& turn : turns_of_block(plan.cells, block, 1)) ++times[{turn.cell, turn.order}];
  ASSERT_EQ(times.size(), 25u);
  // Each of 25 pairs is expected 80 times, with a deviation of 8.
  for (const auto& [pair, count] : times) EXPECT_NEAR(count, 80, 40);
}

TEST(Standing, GivesUpWhatCannotBeHad) {
  const Plan plan = small_plan();
  const auto record = [&](Status status, int64_t block) {
    lab::Run run;
    run.part = "test", run.system = "fake:eager", run.condition = plan.cells[0].condition;
    run.status = status, run.block = block, run.why = "reason";
    return run;
  };
  for (const Status status : {Status::absent, Status::declined, Status::not_same_model}) {
    Standing standing;
    EXPECT_EQ(standing.given_up(plan.cells[0]), "");
    standing.add(record(status, 0));
    EXPECT_EQ(standing.given_up(plan.cells[0]), "reason");
    EXPECT_EQ(standing.given_up(plan.cells[1]), "");
    EXPECT_TRUE(standing.done(plan.cells[0], 0));
    EXPECT_FALSE(standing.done(plan.cells[0], 1));
  }
  Standing standing;
  standing.add(record(Status::crashed, 0));
  standing.add(record(Status::crashed, 1));
  EXPECT_EQ(standing.given_up(plan.cells[0]), "");
  standing.add(record(Status::ok, 2));
  standing.add(record(Status::crashed, 3));
  EXPECT_EQ(standing.given_up(plan.cells[0]), "") << "it works now and then";
  standing.add(record(Status::crashed, 4));
  standing.add(record(Status::crashed, 5));
  EXPECT_EQ(standing.given_up(plan.cells[0]), "reason");
}

TEST(Runner, AWholeStudyIsTakenAndASecondCallHasNothingToDo) {
  TempFolder folder;
  const Plan plan = small_plan(2);
  const auto progress = no_progress();
  StudyOutcome outcome = run_study(plan, options_in(folder.path()), *progress);
  EXPECT_EQ(outcome.taken, 10);
  EXPECT_EQ(outcome.failed, 0);
  expect_complete(plan, folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / "material"))
      << "a complete study needs no weights and samples";
  const std::string before = read_text(folder / "runs.jsonl");
  outcome = run_study(plan, options_in(folder.path()), *progress);
  EXPECT_EQ(outcome.taken, 0);
  EXPECT_EQ(read_text(folder / "runs.jsonl"), before);
}

/// Keeps what it is told.
class Notes : public Progress {
 public:
  std::vector<std::string> notes;
  int64_t left = -1;

 private:
  void begin(const Plan&, const std::string&, int64_t, int64_t runs_left) override { left = runs_left; }
  void start(size_t, int64_t) override {}
  void stage(const std::string&) override {}
  void known(size_t, const lab::Run&) override {}
  void done(size_t, const lab::Run&, double) override {}
  void give_up(size_t, const std::string&) override {}
  void note(const std::string& text) override { notes.push_back(text); }
  void end() override {}
};

TEST(Runner, SaysAtTheStartWhichWorkloadHasMadeUpSamplesAndHowToGetRealOnes) {
  TempFolder folder, home;
  Plan plan = small_plan(1);
  plan.cells.resize(1);
  // Wherever the tests run: places without any data.
  const Setting data("TANDEM_DATA", home.path()), user("HOME", home.path());
  Notes progress;
  RunnerOptions options = options_in(folder.path());
  run_study(plan, options, progress);
  const lab::Run run = load_results(folder.path()).runs.at(0);
  ASSERT_EQ(to_string(run.status), "ok") << run.why;
  if (run.data == "mnist") GTEST_SKIP() << "this machine has MNIST in a place that cannot be hidden";
  EXPECT_EQ(run.data, "synthetic-mnist");
  ASSERT_EQ(progress.notes.size(), 1u);
  EXPECT_EQ(progress.notes[0].find(
                "data: lenet, 1x28x28 is measured on synthetic-mnist, made-up samples: the files of "
                "mnist are not here. "),
            0u)
      << progress.notes[0];
  EXPECT_NE(progress.notes[0].find(data::dataset_info("mnist").how_to_get), std::string::npos)
      << progress.notes[0];
  const Json study = Json::parse(read_text(folder / "study.json"));
  EXPECT_EQ(study["data"]["lenet, 1x28x28"], "synthetic-mnist");

  // The data that came meanwhile would be other data than the study began with.
  Json real = study;
  real["data"]["lenet, 1x28x28"] = "mnist";
  write_text(folder / "study.json", real.dump());
  const std::string message = testing::message_of<Error>([&] { run_study(plan, options, progress); });
  EXPECT_NE(message.find("lenet, 1x28x28 is \"mnist\" there, and \"synthetic-mnist\" now"), std::string::npos)
      << message;
  // A study of before the data was named goes on.
  real.erase("data");
  write_text(folder / "study.json", real.dump());
  EXPECT_EQ(run_study(plan, options, progress).taken, 0);
}

TEST(Runner, AsManyRunsAsAStudyMayHaveAreCountedAtOnceAndAStopIsHeard) {
  TempFolder folder;
  Plan plan = small_plan(limits::runs.most);
  for (Cell& cell : plan.cells) cell.system = "nothing:eager";  // given up after the first
  plan.cells[0].system = "other:eager";
  plan.cells.pop_back(), plan.cells.pop_back();
  Notes progress;
  int64_t begun = now_ns();
  const StudyOutcome outcome = run_study(plan, options_in(folder.path()), progress);
  EXPECT_EQ(progress.left, 3 * limits::runs.most);
  EXPECT_EQ(outcome.taken, 3);
  EXPECT_LT(now_ns() - begun, 20'000'000'000);
  TempFolder second;
  std::atomic<bool> stop{true};
  RunnerOptions options = options_in(second.path());
  options.bench.stop = &stop;
  begun = now_ns();
  EXPECT_TRUE(run_study(plan, options, progress).stopped);
  EXPECT_LT(now_ns() - begun, 20'000'000'000);
}

TEST(Standing, CountsTheRunsThatAreLeft) {
  const Plan plan = small_plan(5);
  Standing standing;
  EXPECT_EQ(standing.left(plan.cells[0]), 5);
  lab::Run run;
  run.part = "test", run.system = "fake:eager", run.condition = plan.cells[0].condition;
  for (const int64_t block : {0, 1, 1, 4, 7, 1000}) {
    run.block = block;
    standing.add(run);
  }
  EXPECT_EQ(standing.left(plan.cells[0]), 2) << "blocks 2 and 3; those beyond its own do not count";
  EXPECT_EQ(standing.left(plan.cells[1]), 5);
  run.status = Status::absent, run.why = "it is not there";
  standing.add(run);
  EXPECT_EQ(standing.left(plan.cells[0]), 0);
}

TEST(Bench, ACellOnTheProcessorSeesNoGpu) {
  Bench bench;
  const std::string hello =
      R"({\"id\": 1, \"ok\": true, \"protocol\": 2, \"framework\": \"x\", \"version\": \"[${CUDA_VISIBLE_DEVICES-unset}]\", \"variants\": [], \"devices\": [], \"kinds\": [], \"losses\": [], \"listings\": [], \"phases\": [], \"precisions\": [], \"switches\": {}})";
  bench.launcher = [&](const std::string&) -> Launch {
    return {{"sh", "-c", "read line; echo \"" + hello + "\"; cat >/dev/null"}, {}, ""};
  };
  const Setting visible("CUDA_VISIBLE_DEVICES", "0,1");
  EXPECT_EQ(bench.start("x:eager", "cpu").hello().version, "[]");
  EXPECT_EQ(bench.start("x:eager", "cuda:0").hello().version, "[0,1]");
}

TEST(Runner, AStudyGoesOnOnlyAsItBegan) {
  TempFolder folder;
  const auto progress = no_progress();
  run_study(small_plan(1), options_in(folder.path()), *progress);
  const auto message = [&](const Plan& plan, const RunnerOptions& options) {
    return testing::message_of<Error>([&] { run_study(plan, options, *progress); });
  };
  RunnerOptions other_seed = options_in(folder.path());
  other_seed.seed = 6;
  EXPECT_NE(message(small_plan(1), other_seed).find("seed is 5 there, and 6 now"), std::string::npos)
      << message(small_plan(1), other_seed);
  EXPECT_NE(message(small_plan(2), options_in(folder.path())).find("runs is 1 there, and 2 now"),
            std::string::npos)
      << message(small_plan(2), options_in(folder.path()));
  Plan fewer = small_plan(1);
  fewer.cells.pop_back();
  EXPECT_NE(message(fewer, options_in(folder.path())).find("5 cells"), std::string::npos);
  write_text(folder / "study.json", "{");
  EXPECT_NE(message(small_plan(1), options_in(folder.path())).find("holds another: the file "),
            std::string::npos);
}

TEST(Runner, ABrokenDriverCostsItsCellAndNotTheStudy) {
  TempFolder folder;
  Plan plan = small_plan(4);
  Cell absent = plan.cells[0];
  absent.system = "nothing:eager";
  plan.cells.push_back(absent);
  const auto progress = no_progress();
  const StudyOutcome outcome = run_study(plan, options_in(folder.path(), "early_exit"), *progress);
  std::map<std::string, std::map<std::string, int>> counts;
  std::string failures;
  for (const lab::Run& run : load_results(folder.path()).runs) {
    ++counts[run.system][to_string(run.status)];
    if (run.system == "tandem:graph" && run.status != Status::ok)
      failures += to_string(run.status) + ": " + run.why + "\n" + run.last_words + "\n";
  }
  EXPECT_EQ(counts["tandem:graph"]["ok"], 8) << failures;
  EXPECT_EQ(counts["nothing:eager"]["absent"], 1) << "recorded once, and not tried any more";
  EXPECT_EQ(counts["fake:eager"]["crashed"], 9) << "three cells, given up after three times each";
  EXPECT_EQ(outcome.failed, 10);
}

TEST(Runner, ABudgetEndsBetweenBlocksAndWithinTheFirstAndAtLeastOneRunIsTaken) {
  TempFolder folder;
  const Plan plan = small_plan(50);
  RunnerOptions options = options_in(folder.path());
  options.budget_s = 0.001;
  const auto progress = no_progress();
  StudyOutcome outcome = run_study(plan, options, *progress);
  EXPECT_TRUE(outcome.over_budget);
  EXPECT_EQ(outcome.taken, 1) << "the first block has five, and no time for another";
  EXPECT_EQ(outcome.blocks_left, 50);
  EXPECT_TRUE(std::filesystem::exists(folder / "material")) << "the study will go on";
  for (int i = 2; i <= 5; ++i) {
    outcome = run_study(plan, options, *progress);
    EXPECT_EQ(outcome.taken, 1);
    const auto runs = load_results(folder.path()).runs;
    EXPECT_TRUE(i != 2 || runs[0].condition == runs[1].condition) << "two runs are a whole comparison";
    EXPECT_TRUE(i != 4 || runs[2].condition == runs[3].condition) << "and four are two";
    EXPECT_TRUE(i != 4 || runs[1].condition != runs[2].condition);
  }
  EXPECT_EQ(outcome.blocks_left, 49) << "the first block is whole";
  outcome = run_study(plan, options, *progress);
  EXPECT_LE(outcome.taken, 5) << "one more block at most, to learn how long it takes";
  for (const lab::Run& run : load_results(folder.path()).runs) EXPECT_LT(run.block, 2);
}

TEST(Runner, WithABudgetTheFirstBlockIsTakenComparisonByComparisonAndControlsLast) {
  TempFolder folder;
  const Plan plan = small_plan(2);
  RunnerOptions options = options_in(folder.path());
  options.budget_s = 1e6;
  const StudyOutcome outcome = run_study(plan, options, *no_progress());
  EXPECT_EQ(outcome.taken, 10);
  EXPECT_FALSE(outcome.over_budget);
  expect_complete(plan, folder.path());
  const auto runs = load_results(folder.path()).runs;
  for (const size_t i : {0, 2}) {
    EXPECT_EQ(runs[i].condition, runs[i + 1].condition);
    EXPECT_NE(runs[i].system, runs[i + 1].system);
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(runs[i].control, i < 4 ? "" : "A/A");
}

TEST(Runner, AStopIsCleanAndTheStudyGoesOn) {
  TempFolder folder;
  const Plan plan = small_plan(6);
  std::atomic<bool> stop{false};
  RunnerOptions options = options_in(folder.path());
  options.bench.stop = &stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    stop = true;
  });
  const auto progress = no_progress();
  const StudyOutcome outcome = run_study(plan, options, *progress);
  stopper.join();
  EXPECT_TRUE(outcome.stopped);
  EXPECT_LT(outcome.taken, 30);
  run_study(plan, options_in(folder.path()), *progress);
  expect_complete(plan, folder.path());
}

TEST(Runner, TwoStudiesDoNotWriteToOneFolder) {
  TempFolder folder;
  const Plan plan = small_plan(2);
  const auto progress = no_progress();
  std::string message;
  RunnerOptions options = options_in(folder.path());
  options.on_start = [&](const std::string&) {
    message = testing::message_of<Error>([&] { run_study(plan, options_in(folder.path()), *progress); });
    throw Error("enough");
  };
  EXPECT_THROW(run_study(plan, options, *progress), Error);
  EXPECT_NE(message.find("one study at a time"), std::string::npos) << message;
}

/// Not a test by itself: the study that the next one starts in a process of its own, and kills.
TEST(RunnerChild, DISABLED_TakesAStudy) {
  const char* folder = std::getenv("TANDEM_LAB_TEST_FOLDER");
  if (!folder) return;
  run_study(small_plan(6), options_in(folder), *no_progress());
}

TEST(Runner, AKillAtAnyMomentLosesAtMostTheRunInFlight) {
  TempFolder folder;
  const Plan plan = small_plan(6);
  uint32_t random = 12345;
  std::string before;
  int kills = 0;
  for (int i = 0; i < 8; ++i) {
    Process child({.command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                               "--gtest_filter=RunnerChild.*", "--gtest_also_run_disabled_tests"},
                   .environment = {{"TANDEM_LAB_TEST_FOLDER", folder.path()}}});
    random = random * 1664525 + 1013904223;
    const double wait = 0.03 + 0.35 * (random >> 8) / (1 << 24);
    std::string line;
    const int64_t until = now_ns() + static_cast<int64_t>(wait * 1e9);
    Process::Io io;
    while ((io = child.read_line(line, until)) == Process::Io::done) {
    }
    if (io == Process::Io::late) {
      ::kill(child.pid(), SIGKILL);
      ++kills;
    }
    child.finish(5);
    // What was recorded stays, to the byte, apart from a line that the kill cut off.
    const std::string now = read_text(folder / "runs.jsonl");
    EXPECT_EQ(now.substr(0, before.size()), before);
    before = now.substr(0, now.rfind('\n') + 1);
  }
  EXPECT_GE(kills, 3);
  run_study(plan, options_in(folder.path()), *no_progress());
  expect_complete(plan, folder.path());
  EXPECT_EQ(read_text(folder / "runs.jsonl").substr(0, before.size()), before);
}

TEST(Cooling, WaitsForTheStartTemperatureAndNotForEver) {
  double temperature = 40;
  std::vector<std::string> said;
  const auto stage = [&](const std::string& text) { said.push_back(text); };
  const Cooling cooling(0.7, nullptr, [&] { return std::optional(temperature -= said.empty() ? 0 : 3); });
  cooling.wait(stage);
  EXPECT_TRUE(said.empty());
  temperature = 48;
  cooling.wait(stage);
  EXPECT_GE(said.size(), 2u);
  EXPECT_LE(temperature, 42);
  said.clear();
  const Cooling stuck(0.5, nullptr, [&, first = true]() mutable {
    return std::optional(std::exchange(first, false) ? 40.0 : 90.0);
  });
  const int64_t begun = now_ns();
  stuck.wait(stage);
  EXPECT_LT(now_ns() - begun, 5'000'000'000);
  Cooling(5, nullptr, [] { return std::optional<double>(); }).wait([](const std::string&) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace tandem::lab
