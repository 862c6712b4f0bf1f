// What else the machine does: from made-up files, and on this machine.
#include "lab/src/monitor/surroundings.h"

#include <gtest/gtest.h>

#include <string>

#include "lab/src/monitor/calibration.h"
#include "lab/src/monitor/process_tree.h"
#include "lab/tests/monitor/fake_tree.h"

namespace tandem::lab {
namespace {

/// /proc/stat of two cores with so many busy ticks each, and so many stolen ones on the first.
std::string stat_of(int first, int second, int stolen) {
  return "cpu  0 0 0 0 0 0 0 0\ncpu0 " + std::to_string(first) + " 0 0 100 0 0 0 " + std::to_string(stolen) +
         " 0 0\ncpu1 " + std::to_string(second) + " 0 0 100 0 0 0 0 0 0\nprocesses 5\nprocs_running 3\n";
}

/// A process's line: user and system time, and that of children that it waited for, in ticks.
std::string process(int pid, int own, int waited) {
  return std::to_string(pid) + " (lab) S 1 1 1 0 -1 0 0 0 0 0 " + std::to_string(own) + " 0 " +
         std::to_string(waited) + " 0 20 0 1 0 100 4096 10 0";
}

TEST(Surroundings, WhatIsNotOursOnTheDriversCoresIsTheOthers) {
  FakeTree proc;
  proc.write("stat", stat_of(1000, 5000, 7));
  proc.write("7/stat", process(7, 100, 50));
  proc.write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0 total=0\n");
  const Surroundings watched({0}, proc.path(), proc.path("sys"));
  const MachineCounters before = watched.read(7);
  proc.write("stat", stat_of(1300, 9000, 27));
  proc.write("7/stat", process(7, 120, 130));  // 20 ticks of its own, 80 of children that have ended
  proc.write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n");
  const Beside seen = between(before, watched.read(7));
  ASSERT_TRUE(seen.others_s && seen.stolen_s && seen.pressure_s);
  EXPECT_NEAR(*seen.others_s, 2.0, 1e-9)
      << "300 ticks on core 0, of which 100 are ours; core 1 is not the driver's";
  EXPECT_NEAR(*seen.stolen_s, 0.2, 1e-9);
  EXPECT_NEAR(*seen.pressure_s, 0.5, 1e-9);
}

TEST(Surroundings, AHardwareThreadThatSharesADriversCoreIsWatchedToo) {
  FakeTree proc;
  proc.write("stat", stat_of(0, 0, 0));
  proc.write("7/stat", process(7, 0, 0));
  proc.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
  const Surroundings watched({0}, proc.path(), proc.path("sys"));
  const MachineCounters before = watched.read(7);
  proc.write("stat", stat_of(0, 400, 0));
  EXPECT_NEAR(between(before, watched.read(7)).others_s.value(), 4.0, 1e-9);
}

TEST(Surroundings, WhatTheMachineDoesNotTellIsAbsentWithTheReason) {
  FakeTree proc;
  proc.write("7/stat", process(7, 0, 0));
  const Surroundings nothing({0}, proc.path(), proc.path("sys"));
  Beside seen = between(nothing.read(7), nothing.read(7));
  EXPECT_FALSE(seen.others_s || seen.stolen_s || seen.pressure_s);
  EXPECT_NE(seen.no_others.find("stat' is not there"), std::string::npos) << seen.no_others;
  EXPECT_NE(seen.no_pressure.find("pressure/cpu' is not there"), std::string::npos) << seen.no_pressure;

  proc.write("stat", stat_of(0, 0, 0));
  const Surroundings other_cores({5}, proc.path(), proc.path("sys"));
  seen = between(other_cores.read(7), other_cores.read(7));
  EXPECT_FALSE(seen.others_s);
  EXPECT_NE(seen.no_others.find("does not name the driver's cores"), std::string::npos) << seen.no_others;

  // One half that is not told makes the whole unknown, not smaller.
  Beside sum{.seconds = 1, .others_s = 0.5};
  sum += Beside{.seconds = 1, .no_others = "gone"};
  EXPECT_FALSE(sum.others_s);
  EXPECT_EQ(sum.no_others, "gone");
}

TEST(Surroundings, WhatTheLabDoesOnOtherCoresHidesNoOthersFromTheDriver) {
  FakeTree proc;
  proc.write("stat", stat_of(0, 0, 0));
  proc.write("7/stat", process(7, 0, 0));
  proc.write("8/stat", process(8, 0, 0));
  const Surroundings watched({0}, proc.path(), proc.path("sys"));
  const MachineCounters before = watched.read(8);
  proc.write("stat", stat_of(200, 80, 0));
  proc.write("7/stat", process(7, 80, 0));   // the lab, on core 1
  proc.write("8/stat", process(8, 100, 0));  // the driver, on core 0
  EXPECT_NEAR(between(before, watched.read(8)).others_s.value(), 1.0, 1e-9);
}

TEST(Surroundings, OurOwnChildrenAreOurs) {
  const Surroundings watched({});
  Child child([](const std::function<void()>& ready) {
    burn_s(0.1);
    ready();
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  const MachineCounters before = watched.read(::getpid());
  ASSERT_TRUE(before.ours_s);
  EXPECT_GE(*before.ours_s, 0.08) << "the child's";
  child.stop();
  EXPECT_GE(watched.read(::getpid()).ours_s.value(), 0.08) << "also when it has ended";
}

TEST(ProcessTree, CountsTheThreadsThatAreReadyToRun) {
  FakeTree proc;
  proc.write("7/stat", process(7, 0, 0));
  proc.write("7/task/7/stat", "7 (lab) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 10 0");
  proc.write("7/task/8/stat", "8 (a ) R b) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 10 0");
  proc.write("7/task/9/stat", "9 (lab) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 10 0");
  ProcessTree tree(proc.path(), 7);
  EXPECT_EQ(tree.runnable_threads(), 2);
}

TEST(Calibration, TakesItsTimeAndAtMostAWholeCore) {
  const Calibration one = calibrate({});
  EXPECT_GT(one.seconds, 0);
  EXPECT_GT(one.core_share, 0);
  EXPECT_LE(one.core_share, 1);
}

}  // namespace
}  // namespace tandem::lab
