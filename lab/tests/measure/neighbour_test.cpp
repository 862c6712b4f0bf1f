// ctest: timeout=900 serial
// A neighbour that burns every core while a study runs: a real process that is none of the lab's. Verdicts are asserted, not times.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/measure/runner.h"
#include "lab/tests/measure/bench_of_fakes.h"

namespace tandem::lab {
namespace {

using testing::TempFolder;

/// One process for each core, until this is gone or two minutes have passed. They are no descendants of this process: it is the
/// child's child that burns, and its parent has ended.
class Neighbour {
 public:
  Neighbour() {
    for (const int core : first_cpus(1024)) start(core);
  }
  ~Neighbour() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  void start(int core) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]), ::close(ends[1]);
        ::alarm(120);  // whose default ends the process
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(static_cast<size_t>(core), &set);
        ::sched_setaffinity(0, sizeof set, &set);
        for (volatile bool burns = true; burns;) {
        }
      }
      if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
      ::_exit(0);
    }
    ::close(ends[1]);
    pid_t pid = 0;
    if (::read(ends[0], &pid, sizeof pid) == sizeof pid && pid > 0) pids_.push_back(pid);
    ::close(ends[0]);
    ::waitpid(between, nullptr, 0);
  }

  std::vector<pid_t> pids_;
};

Plan two_systems(int64_t runs) {
  Plan plan;
  plan.name = "test";
  plan.study = {{"title", "a test"}};
  for (const char* system : {"fake:eager", "tandem:graph"}) {
    Cell cell = small_cell("infer");
    cell.system = system;
    cell.effort = {.runs = runs, .warmup_steps = 2, .timed_steps = 5, .timed_s = 0.5, .least_s = 0.2};
    plan.cells.push_back(cell);
  }
  return plan;
}

RunnerOptions options_in(const std::string& folder, const std::string& fault = "") {
  RunnerOptions options;
  options.folder = folder;
  options.seed = 5;
  options.bench = bench_of_fakes(fault);
  return options;
}

std::map<std::string, int> statuses(const Results& results) {
  std::map<std::string, int> counts;
  for (const lab::Run& run : results.runs) ++counts[to_string(run.status)];
  return counts;
}

TEST(Neighbour, EveryRunIsRepeatedThenLeftOutWithItsReasonAndNothingIsDecided) {
  TempFolder folder;
  const Neighbour neighbour;
  const StudyOutcome outcome = run_study(two_systems(1), options_in(folder.path()), *no_progress());
  const Results results = load_results(folder.path());
  EXPECT_EQ(statuses(results), (std::map<std::string, int>{{"disturbed", 6}}))
      << "two runs, three times each";
  EXPECT_EQ(outcome.left_out, 2);
  EXPECT_EQ(outcome.disturbed, 6);
  for (const lab::Run& run : results.runs) {
    EXPECT_TRUE(run.why.find("others: ") != std::string::npos ||
                run.why.find("calibration: ") != std::string::npos)
        << run.why;
    EXPECT_TRUE(run.metrics.contains("machine.core_share_before"));
  }
  const Analysis analysis = analyse(results);
  EXPECT_TRUE(analysis.comparisons.empty());
  EXPECT_EQ(analysis.disturbances.left_out, 2u);
}

TEST(Neighbour, KeptRunsHaveTimesAndDecideNothing) {
  TempFolder folder;
  const Neighbour neighbour;
  RunnerOptions options = options_in(folder.path());
  options.keep_disturbed = true;
  // What is asked is what becomes of the times, not whether they contradict each other.
  options.limits.uncovered_s = options.limits.uncovered_first_s = 1e6;
  options.limits.least_throughput = options.limits.least_work = options.limits.least_cpu_share = 0;
  options.limits.most_throughput = 1e9;
  run_study(two_systems(6), options, *no_progress());
  const Results results = load_results(folder.path());
  EXPECT_EQ(statuses(results), (std::map<std::string, int>{{"ok", 12}}));
  const Analysis analysis = analyse(results);
  const Comparison* times =
      analysis.comparison(results.runs[0].condition, "step.throughput_s", "fake:eager", "tandem:graph");
  ASSERT_NE(times, nullptr);
  EXPECT_EQ(times->disturbed, 12u);
  for (const Comparison& each : analysis.comparisons)
    EXPECT_TRUE(is_count(each.metric) || each.verdict == Verdict::undecided) << each.text;
}

TEST(Neighbour, ADriverWhoseTimesContradictEachOtherIsNotCalledDishonestAndOneThatCountsWrongIs) {
  const std::pair<const char*, Status> cases[] = {
      {"late", Status::disturbed}, {"short_window", Status::disturbed}, {"too_few", Status::dishonest}};
  const Neighbour neighbour;
  for (const auto& [fault, status] : cases) {
    TempFolder folder;
    Plan plan = two_systems(1);
    plan.cells.pop_back();
    run_study(plan, options_in(folder.path(), fault), *no_progress());
    for (const lab::Run& run : load_results(folder.path()).runs)
      EXPECT_EQ(to_string(run.status), to_string(status)) << fault << ": " << run.why;
  }
}

}  // namespace
}  // namespace tandem::lab
