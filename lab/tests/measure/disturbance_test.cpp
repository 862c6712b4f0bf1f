// Which runs count as disturbed, what becomes of them, and in which order a study takes and repeats its runs.
#include "lab/src/measure/disturbance.h"

#include <unistd.h>

#include <limits>
#include <set>

#include "lab/src/driver/process.h"
#include "lab/src/measure/honesty.h"
#include "lab/src/measure/schedule.h"
#include "lab/tests/measure/bench_of_fakes.h"

namespace tandem::lab {
namespace {

/// Two seconds of timed steps in a run of four, on a machine that does nothing else.
Observed quiet() {
  Observed seen;
  seen.timed = {.seconds = 2, .others_s = 0.02, .stolen_s = 0.0, .pressure_s = 0.1};
  seen.whole = {.seconds = 4, .others_s = 0.05, .stolen_s = 0.01, .pressure_s = 0.2};
  seen.wait_s = 0.01;
  seen.before = seen.after = Calibration{0.040, 0.99};
  seen.fastest_s = 0.039;
  return seen;
}

std::string all_of(const Observed& seen) {
  std::string text;
  for (const std::string& line : disturbances(seen, {})) text += line + "\n";
  return text;
}

TEST(Disturbance, AQuietMachineDisturbsNothing) { EXPECT_EQ(all_of(quiet()), ""); }

TEST(Disturbance, EachLimitIsNamedWithItsNumber) {
  Observed seen = quiet();
  seen.timed.others_s = 1.96;
  EXPECT_EQ(all_of(seen),
            "others: other processes used 0.98 cores while the steps were timed, and 0.1 is the most that a "
            "time can bear\n");
  seen = quiet();
  seen.whole.others_s = 1.0;
  EXPECT_NE(all_of(seen).find("others: other processes used 0.25 cores during the run"), std::string::npos);
  seen = quiet();
  seen.timed.stolen_s = 0.5;
  EXPECT_NE(all_of(seen).find("stolen: the hypervisor took 0.25 cores"), std::string::npos);
  seen = quiet();
  seen.before->core_share = 0.52;
  EXPECT_EQ(all_of(seen), "calibration: a loop before the run got 52 % of its core, less than 80 %\n");
  seen = quiet();
  seen.after->seconds = 0.078;
  EXPECT_EQ(all_of(seen),
            "calibration: a loop after the run took 2 times as long as at best, more than 1.3\n");
}

TEST(Disturbance, TicksOfAShortWindowAreNoDisturbance) {
  Observed seen = quiet();
  seen.timed = {.seconds = 0.05, .others_s = 0.03, .stolen_s = 0.0};
  EXPECT_EQ(all_of(seen), "");
  seen.timed.others_s = 0.05;
  EXPECT_NE(all_of(seen), "");
}

TEST(Disturbance, WhatTheMachineDoesNotTellIsUnavailableAndAccusesNobody) {
  Observed seen;
  seen.timed = {.seconds = 2, .no_others = "'/proc/stat' is not there", .no_pressure = "no PSI"};
  seen.whole = {.seconds = 4, .no_others = "'/proc/stat' is not there"};
  EXPECT_EQ(all_of(seen), "");
  lab::Run run;
  settle(run, seen, {}, false);
  EXPECT_EQ(run.status, Status::ok);
  for (const char* name : {"machine.others_cores", "machine.run_others_cores", "machine.stolen_cores",
                           "machine.pressure_percent", "machine.wait_percent", "machine.runnable_others",
                           "machine.calibration_before_s", "machine.calibration_after_s",
                           "machine.core_share_before", "machine.core_share_after"}) {
    EXPECT_FALSE(run.metrics.contains(name)) << name;
    ASSERT_TRUE(run.unavailable.contains(name)) << name;
    EXPECT_NE(run.unavailable.at(name), "") << name;
  }
  EXPECT_EQ(run.unavailable.at("machine.others_cores"), "'/proc/stat' is not there");
}

TEST(Disturbance, NumbersOfAQuietRunAreRecordedWithTheirSources) {
  lab::Run run;
  settle(run, quiet(), {}, false);
  EXPECT_EQ(run.status, Status::ok);
  EXPECT_EQ(run.disturbed, "");
  EXPECT_NEAR(run.metrics.at("machine.others_cores"), 0.01, 1e-12);
  EXPECT_NEAR(run.metrics.at("machine.wait_percent"), 0.5, 1e-12);
  EXPECT_NEAR(run.metrics.at("machine.pressure_percent"), 5, 1e-12);
  EXPECT_EQ(run.metrics.at("machine.calibration_before_s"), 0.040);
  for (const auto& [name, value] : run.metrics) EXPECT_NE(run.sources[name], "") << name;
}

Observed busy() {
  Observed seen = quiet();
  seen.timed.others_s = 2;
  return seen;
}

TEST(Disturbance, ADisturbedRunIsLeftOutWithItsReasonOrKeptWithIt) {
  lab::Run left_out, kept;
  settle(left_out, busy(), {}, false);
  EXPECT_EQ(left_out.status, Status::disturbed);
  EXPECT_EQ(left_out.why, left_out.disturbed);
  EXPECT_TRUE(left_out.why.starts_with("others: ")) << left_out.why;
  settle(kept, busy(), {}, true);
  EXPECT_EQ(kept.status, Status::ok);
  EXPECT_EQ(kept.disturbed, left_out.disturbed);
}

TEST(Disturbance, ARuleOfTimeAccusesNobodyOnABusyMachineAndEveryOtherRuleDoes) {
  for (const char* rule : {"clock", "window", "idle", "regions", "work", "wait", "decoding"}) {
    lab::Run run;
    run.status = Status::dishonest;
    run.why = std::string(rule) + ": two numbers contradict each other";
    lab::Run on_quiet = run;
    settle(on_quiet, quiet(), {}, false);
    EXPECT_EQ(on_quiet.status, Status::dishonest) << rule;
    for (const bool keep : {false, true}) {
      lab::Run on_busy = run;
      settle(on_busy, busy(), {}, keep);
      EXPECT_EQ(on_busy.status, Status::disturbed) << rule;
      EXPECT_NE(on_busy.why.find(std::string("the rule '") + rule + "' is not held against a driver"),
                std::string::npos)
          << on_busy.why;
    }
  }
  for (const char* rule :
       {"count", "order", "updates", "loss", "output", "network", "samples", "confusion"}) {
    lab::Run run;
    run.status = Status::dishonest;
    run.why = std::string(rule) + ": wrong";
    settle(run, busy(), {}, false);
    EXPECT_EQ(run.status, Status::dishonest) << rule;
  }
  lab::Run crashed;
  crashed.status = Status::crashed, crashed.why = "signal 11";
  settle(crashed, busy(), {}, false);
  EXPECT_EQ(crashed.status, Status::crashed);
}

TEST(Disturbance, TheKernelReadsTheDiskForACellThatMeasuresIt) {
  lab::Run run;
  run.condition.switches["storage"] = "disk";
  settle(run, busy(), {}, false);
  EXPECT_EQ(run.status, Status::ok);
}

TEST(Disturbance, TheProcessorTimeOfADriverThatHasEndedIsOurs) {
  const Surroundings watched({});
  const MachineCounters before = watched.read(::getpid());
  Process driver({.command = {"sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"}});
  std::string line;
  EXPECT_EQ(driver.read_line(line, now_ns() + int64_t{60'000'000'000}), Process::Io::closed);
  driver.finish(60);
  const MachineCounters after = watched.read(::getpid());
  ASSERT_TRUE(before.ours_s && after.ours_s);
  EXPECT_GT(*after.ours_s, *before.ours_s + 0.02) << "else it would be taken for a neighbour's";
}

lab::Run run_of(const Cell& cell, int64_t block, Status status) {
  lab::Run run;
  run.part = cell.part, run.system = cell.system, run.control = cell.control, run.condition = cell.condition;
  run.block = block, run.status = status;
  if (status == Status::disturbed) run.disturbed = run.why = "others: many";
  return run;
}

TEST(Standing, ADisturbedRunIsRepeatedTwiceThenLeftOutAndTakenAgainWhenTheStudyGoesOn) {
  const Cell cell = small_cell();  // two runs
  Standing standing;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    EXPECT_FALSE(standing.done(cell, 0));
    const lab::Run run = run_of(cell, 0, Status::disturbed);
    standing.add(run);
    EXPECT_EQ(standing.repeats(run), attempt < kAttempts);
  }
  EXPECT_TRUE(standing.done(cell, 0));
  EXPECT_EQ(standing.left(cell), 1);
  EXPECT_EQ(standing.given_up(cell), "") << "it says nothing about the driver";
  Standing later;
  later.add_earlier(run_of(cell, 0, Status::disturbed));
  EXPECT_FALSE(later.done(cell, 0));
  EXPECT_EQ(later.left(cell), 2);
}

TEST(Standing, OnAMachineThatStaysBusyNothingIsRepeatedUntilARunIsUndisturbed) {
  Cell cell = small_cell();
  cell.effort.runs = 100;
  Standing standing;
  int64_t block = 0, taken = 0;
  while (taken < kBusyForLong) {
    standing.add(run_of(cell, block, Status::disturbed)), ++taken;
    if (standing.done(cell, block)) ++block;
  }
  const lab::Run late = run_of(cell, 50, Status::disturbed);
  standing.add(late);
  EXPECT_FALSE(standing.repeats(late));
  EXPECT_TRUE(standing.done(cell, 50));
  standing.add(run_of(cell, 51, Status::ok));
  const lab::Run again = run_of(cell, 52, Status::disturbed);
  standing.add(again);
  EXPECT_TRUE(standing.repeats(again));
}

TEST(Schedule, ByComparisonTheSystemsOfAConditionStandTogetherAndControlsComeLast) {
  std::vector<Cell> cells;
  for (const int64_t batch : {8, 16, 32})
    for (const char* system : {"a:x", "b:y", "c:z", "a:x"}) {
      Cell cell = small_cell();
      cell.system = system;
      cell.condition.batch = batch;
      if (cells.size() % 4 == 3) cell.control = "A/A";
      cells.push_back(cell);
    }
  std::set<std::vector<size_t>> orders;
  for (int64_t block = 0; block < 2; ++block) {
    const auto sorted = by_comparison(cells, turns_of_block(cells, block, 3));
    ASSERT_EQ(sorted.size(), 12u);
    std::vector<size_t> order;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const Cell& cell = cells[sorted[i].cell];
      EXPECT_EQ(sorted[i].order, static_cast<int64_t>(i));
      EXPECT_EQ(cell.control.empty(), i < 9);
      const int64_t batch = i < 3 ? 8 : i < 6 ? 16 : 32;
      EXPECT_TRUE(i >= 9 || cell.condition.batch == batch) << i;
      order.push_back(sorted[i].cell);
    }
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 2u) << "within a comparison the order is still drawn";
}

}  // namespace
}  // namespace tandem::lab
