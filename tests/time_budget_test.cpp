// The time budget: what it counts, by a clock that the test sets.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tandem/train/callbacks.h"
#include "tandem/train/closing_time.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

/// A run as the callback sees it.
class Clocked final : public Training {
 public:
  double now = 0, closing = 0;
  std::string stopped;
  RunState run;

  const RunState& state() const override { return run; }
  int64_t steps_per_epoch() const override { return 10; }
  int64_t planned_steps() const override { return 1000; }
  const std::string& folder() const override { return none_; }
  const std::vector<MetricInfo>& metrics() const override { return infos_; }
  const char* measured_part() const override { return "test"; }
  double loss() override { return 0; }
  double seconds() const override { return now; }
  double closing_seconds() const override { return closing; }
  nn::NamedTensors weights() override { return {}; }
  nn::NamedTensors gradients() override { return {}; }
  void stop(const std::string& why) override { stopped = why; }
  void replace_weights(const nn::NamedTensors&) override {}
  // What no time budget asks for.
  nn::Module& model() override { throw std::logic_error("model"); }
  optim::Optimizer& optimizer() override { throw std::logic_error("optimizer"); }
  const data::Dataset& train_set() const override { throw std::logic_error("train_set"); }

  /// The step after which the budget ends the run, where each takes `step` seconds from `begin` on.
  int64_t last_step(double budget, double begin, double step) {
    const CallbackPtr callback = time_budget(budget);
    for (now = begin; stopped.empty(); callback->on_step(*this)) {
      now += step;
      ++run.step;
    }
    return run.step;
  }

 private:
  std::string none_;
  std::vector<MetricInfo> infos_;
};

TEST(TimeBudget, TheTestsAndTheCheckpointAtTheEndBelongToIt) {
  EXPECT_EQ(Clocked().last_step(45, 0, 1), 45);
  EXPECT_EQ(Clocked().last_step(45, 5, 1), 40) << "opening the data";
  Clocked run;
  run.closing = 12;
  EXPECT_EQ(run.last_step(45, 0, 1), 33);
  EXPECT_EQ(run.stopped, "stopped to end within 45 s, the time budget, at step 33.");
  Clocked slow;
  slow.closing = 1000;
  EXPECT_EQ(slow.last_step(45, 0.5, 1), 22) << "half of it is for training";
}

TEST(TimeBudget, AnEpochThatHasJustBeenMeasuredIsAGoodEnd) {
  Clocked run;
  run.closing = 10;
  run.now = 36;
  run.run.step = 10;
  const CallbackPtr budget = time_budget(45);
  budget->on_epoch(run);
  EXPECT_EQ(run.stopped, "stopped to end within 45 s, the time budget, at step 10.");
  Clocked early;
  early.closing = 10;
  early.now = 34;
  budget->on_epoch(early);
  EXPECT_EQ(early.stopped, "");
  Clocked over;  // all steps are done: it ends by itself
  over.now = 99;
  over.run.step = over.planned_steps();
  budget->on_step(over);
  EXPECT_EQ(over.stopped, "");
}

TEST(ClosingTime, GoesByTheLatestTestAndCheckpointAndBeforeThemByTraining) {
  ClosingTime time(300, 100);
  EXPECT_DOUBLE_EQ(time.seconds(2, 0.01), 2 + 400 * 0.005) << "half of what training takes";
  time.measured(300, 6);
  EXPECT_DOUBLE_EQ(time.seconds(2, 0.01), 2 + 400 * 0.02);
  time.saved(1.5);
  EXPECT_DOUBLE_EQ(time.seconds(2, 0.01), 2 + 400 * 0.02 + 1.5);
  time.measured(100, 1);
  EXPECT_DOUBLE_EQ(time.seconds(0, 0), 400 * 0.01 + 1.5);
  EXPECT_EQ(ClosingTime(0, 0).seconds(0.5, 1), 0.5) << "a run that measures nothing";
}

}  // namespace
}  // namespace tandem::testing
