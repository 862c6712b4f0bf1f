// The rules of honesty at their limits, with made-up windows: what a right driver does on a loaded machine must pass.
#include "lab/src/measure/honesty.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace tandem::lab {
namespace {

constexpr int64_t kMs = 1'000'000;

/// `n` steps of `step` ms with `gap` ms between, in a window that begins 1 ms before and ends 1 ms after them.
Timed steps(int64_t n, int64_t step, int64_t gap = 0) {
  Timed t;
  t.asked = t.count = n;
  t.sent_ns = 1000 * kMs;
  int64_t at = t.sent_ns + kMs;
  for (int64_t i = 0; i < n; ++i) {
    t.steps.emplace_back(at, at + step * kMs);
    at += (step + gap) * kMs;
  }
  t.begin_ns = t.steps.front().first;
  t.end_ns = t.steps.back().second;
  t.received_ns = at + kMs;
  t.loss = 2.3;
  t.output_sum = 1.0;
  t.updates = n;
  return t;
}

Timed region(int64_t n, int64_t step) {
  Timed t = steps(n, step);
  t.region = Region::throughput;
  t.steps.clear();
  return t;
}

std::string rule(const Objection& found) { return found ? found->rule : ""; }
std::string judged(const Timed& t, const Witness& seen, Window window = Window::timed,
                   const std::string& device = "cpu") {
  return rule(check_region(t, seen, window, "train", device, 0));
}

TEST(Honesty, AnHonestWindowPasses) {
  EXPECT_EQ(judged(steps(100, 5), {0.5, 0}), "");
  EXPECT_EQ(judged(region(100, 5), {0.5, 0}), "");
}

TEST(Honesty, TimeOutsideTheStepsIsAContradictionUnlessTheMachineKeptTheDriverWaiting) {
  EXPECT_EQ(judged(steps(100, 5, 5), {1.0, 0}), "window");
  EXPECT_EQ(judged(steps(100, 5, 5), {0.5, 0.5}), "") << "it waited for a core all that time";
  EXPECT_EQ(judged(steps(100, 5, 1), {0.6, 0}), "") << "a sixth is reading and writing";
  EXPECT_EQ(judged(steps(5, 2, 9), {0.05, 0}), "") << "too short to judge";
}

TEST(Honesty, WarmUpMayHaveTimeOutsideTheSteps) {
  EXPECT_EQ(judged(steps(100, 5, 5), {1.0, 0}, Window::warm_up), "");
  EXPECT_EQ(judged(steps(1, 500, 800), {1.3, 0}, Window::first_step), "");
  EXPECT_EQ(judged(steps(1, 100, 2000), {2.1, 0}, Window::first_step), "window")
      << "compiling must be inside the first step";
}

TEST(Honesty, StepsOnTheCpuUseIt) {
  EXPECT_EQ(judged(steps(100, 5), {0.02, 0}), "idle");
  EXPECT_EQ(judged(steps(100, 5), {0.02, 0.4}), "") << "it was ready and got no core";
  EXPECT_EQ(judged(steps(100, 5), {0.02, 0}, Window::timed, "cuda:0"), "");
  EXPECT_EQ(judged(steps(10, 5), {0, 0}), "") << "shorter than the clock of processor time can tell";
}

TEST(Honesty, StampsCountsAndUpdatesMustFit) {
  Timed t = steps(10, 5);
  t.sent_ns = t.begin_ns + kMs;
  EXPECT_EQ(judged(t, {0.05, 0}), "clock");
  t = steps(10, 5);
  t.received_ns = t.end_ns - kMs;
  EXPECT_EQ(judged(t, {0.05, 0}), "clock");
  t = steps(10, 5);
  t.steps[4].second = t.steps[4].first;
  EXPECT_EQ(judged(t, {0.05, 0}), "order");
  t = steps(10, 5);
  t.steps[4].first -= 2 * kMs;
  EXPECT_EQ(judged(t, {0.05, 0}), "order");
  t = steps(10, 5);
  t.asked = 11;
  EXPECT_EQ(judged(t, {0.05, 0}), "count");
  t = steps(10, 5);
  t.updates = 9;
  EXPECT_EQ(judged(t, {0.05, 0}), "updates");
  EXPECT_EQ(rule(check_region(steps(10, 5), {0.05, 0}, Window::timed, "infer", "cpu", 0)), "updates")
      << "inference updates nothing";
  t = steps(10, 5);
  t.loss.reset();
  EXPECT_EQ(judged(t, {0.05, 0}), "loss");
}

TEST(Honesty, TheTwoRegionsAgree) {
  const auto both = [](int64_t fast_ms, double fast_cpu, const char* device = "cpu", double delay = 0) {
    return rule(check_regions(region(100, fast_ms), {fast_cpu, delay}, steps(100, 10), {1.0, 0}, device));
  };
  EXPECT_EQ(both(10, 1.0), "");
  EXPECT_EQ(both(5, 0.7), "");
  EXPECT_EQ(both(3, 1.0), "regions");
  EXPECT_EQ(both(1, 1.0, "cuda:0"), "") << "a GPU works on while the host goes ahead";
  EXPECT_EQ(both(40, 1.0), "regions");
  EXPECT_EQ(both(40, 1.0, "cpu", 2.0), "") << "another program had the cores";
  EXPECT_EQ(both(10, 0.4), "work");
  HonestyLimits one_core;
  one_core.cores = 1;
  EXPECT_EQ(rule(check_regions(region(100, 10), {1, 0}, steps(100, 10), {2.5, 0}, "cpu", one_core)), "")
      << "a second of steps on one core used a second: the rest was used around them";
  EXPECT_EQ(both(10, 0.4, "cuda:0"), "");
}

TEST(Honesty, LossesMoveAndEqualInputsGiveEqualSums) {
  ResultsWatch train("train", 8, "f32");
  Timed t = steps(10, 5);
  EXPECT_FALSE(train.add(t));
  EXPECT_FALSE(train.add(t)) << "two equal losses may be chance";
  EXPECT_EQ(rule(train.add(t)), "loss");

  ResultsWatch infer("infer", 8, "f32");
  t = steps(16, 5);
  EXPECT_FALSE(infer.add(t));
  t.output_sum = 1.0001;
  EXPECT_FALSE(infer.add(t)) << "sums are rounded";
  t.output_sum = 3;
  EXPECT_EQ(rule(infer.add(t)), "output");
  t.asked = 15;
  EXPECT_FALSE(infer.add(t)) << "another batch came last";

  ResultsWatch known("infer", 8, "f32");
  known.expect(1, 1000);  // 1,000 numbers, each of which may be off by five times 1e-4
  t = steps(16, 5);
  t.output_sum = 1.4;
  EXPECT_FALSE(known.add(t));
  t.output_sum = 1.2;
  EXPECT_EQ(rule(known.add(t)), "output") << "nearer to the reference, and not what it was";
  t.output_sum = 1.6;
  EXPECT_EQ(rule(known.add(t)), "output") << "always the same, and never the reference's";
}

Fitted fit() {
  Fitted f;
  f.sent_ns = 0;
  for (int64_t i = 0; i < 3; ++i)
    f.epochs.push_back({i + 1,
                        i * 2000 * kMs,
                        (i * 2000 + 1500) * kMs,
                        (i + 1) * 2000 * kMs,
                        (i + 1) * 2000 * kMs,
                        0.5,
                        0.4,
                        {{"accuracy", 0.8}},
                        {{"accuracy", 0.75}}});
  f.received_ns = 6000 * kMs;
  f.confusion = {{2, 0}, {1, 1}};
  return f;
}

TEST(Honesty, AFitMustAddUp) {
  const auto judged_fit = [](const Fitted& f, int64_t tests = 4) {
    return rule(check_fit(f, {"accuracy"}, 3, 100, tests, {6, 0}));
  };
  EXPECT_EQ(judged_fit(fit()), "");
  Fitted f = fit();
  f.epochs.pop_back();
  EXPECT_EQ(judged_fit(f), "count");
  f.capped = true;
  EXPECT_EQ(judged_fit(f), "cap") << "four seconds are not the cap of a hundred";
  f = fit();
  std::swap(f.epochs[0], f.epochs[1]);
  EXPECT_EQ(judged_fit(f), "count");
  f = fit();
  f.epochs[1].begin_ns -= 100 * kMs;
  EXPECT_EQ(judged_fit(f), "order");
  f = fit();
  f.epochs[2].end_ns += 500 * kMs;
  EXPECT_EQ(judged_fit(f), "clock");
  f = fit();
  f.epochs[1].metrics["accuracy"] = 1.2;
  EXPECT_EQ(judged_fit(f), "accuracy");
  f = fit();
  f.epochs[1].test_metrics.clear();
  EXPECT_EQ(judged_fit(f), "metrics");
  f = fit();
  f.received_ns = 12000 * kMs;
  EXPECT_EQ(judged_fit(f), "window");
  EXPECT_EQ(judged_fit(fit(), 5), "confusion");
  f = fit();
  f.confusion = {{1, 1}, {1, 1}};
  EXPECT_EQ(judged_fit(f), "confusion");
}

TEST(Honesty, AFitThatSleepsIsNone) {
  EXPECT_EQ(rule(check_fit(fit(), {"accuracy"}, 3, 100, 4, {1, 0})), "idle");
  EXPECT_EQ(rule(check_fit(fit(), {"accuracy"}, 3, 100, 4, {1, 1})), "") << "it waited for a core";
  HonestyLimits on_a_gpu;
  on_a_gpu.least_cpu_share = 0;
  EXPECT_EQ(rule(check_fit(fit(), {"accuracy"}, 3, 100, 4, {0, 0}, on_a_gpu)), "");
}

TEST(Honesty, FurtherTestsAreAllThereOrNone) {
  const auto judged_fit = [](const Fitted& f) {
    return rule(check_fit(f, {"accuracy"}, 3, 100, 4, {6, 0}, {}, {"test_a", "test_b"}));
  };
  Fitted f = fit();
  EXPECT_EQ(judged_fit(f), "") << "a driver that tests no further part is no liar";
  f.tests = {{"test_a", {{"accuracy", 0.5}}}, {"test_b", {{"accuracy", 0.25}}}};
  EXPECT_EQ(judged_fit(f), "");
  f.tests.erase("test_b");
  EXPECT_EQ(judged_fit(f), "tests");
  f.tests["test_b"] = {};
  EXPECT_EQ(judged_fit(f), "tests");
  f.tests = {{"test_c", {{"accuracy", 0.5}}}};
  EXPECT_EQ(judged_fit(f), "tests");
  f.tests = {{"test_a", {{"accuracy", -0.5}}}};
  EXPECT_EQ(judged_fit(f), "accuracy");
  f = fit();
  f.epochs[0].metrics["beauty"] = 1;
  EXPECT_EQ(judged_fit(f), "metrics");
}

TEST(Honesty, TheFirstStepMustBeTheReferences) {
  Timed t = steps(1, 10);
  t.loss = 2.3;
  t.output_sum = 40;
  EXPECT_EQ(rule(check_first_step(t, 2.3005, {}, 1000, "f32")), "");
  EXPECT_EQ(rule(check_first_step(t, 2.31, {}, 1000, "f32")), "network");
  EXPECT_EQ(rule(check_first_step(t, 2.31, {}, 1000, "bf16")), "");
  EXPECT_EQ(rule(check_first_step(t, 8, {}, 1000, "bf16")), "network");
  EXPECT_EQ(rule(check_first_step(t, {}, 40.3, 1000, "f32")), "");
  EXPECT_EQ(rule(check_first_step(t, {}, 41, 1000, "f32")), "network");
  EXPECT_EQ(rule(check_first_step(t, {}, {}, 1000, "f32")), "")
      << "what the reference could not tell is not asked";
}

TEST(Honesty, TheWitnessSeesProcessorTimeOfAProcessAndItsChildren) {
  const Witness before = witness(::getpid());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // So much processor time, however long a loaded machine takes to give it.
    volatile uint64_t x = 1;
    for (timespec used{}; used.tv_sec == 0 && used.tv_nsec < 400 * kMs;) {
      for (int i = 0; i < 10000; ++i) x = x * 3 + 1;
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    }
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char letter = 0;
  EXPECT_EQ(::read(ready[0], &letter, 1), 1);
  const Witness seen = witness(::getpid()) - before;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]), ::close(ready[1]);
  EXPECT_GT(seen.cpu_s, 0.3);
  EXPECT_LT(seen.cpu_s, 2.0);
  EXPECT_EQ(witness(999999999).cpu_s, 0);
}

}  // namespace
}  // namespace tandem::lab
