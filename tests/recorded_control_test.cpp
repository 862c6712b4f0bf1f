// Branches and loops within a recording, on a CPU that records: what the graph engine hands to a backend is the same for a
// GPU, whose own part cuda_test.cpp runs.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/core/choices.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/cond.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tests/support/control_flow_forms.h"
#include "tests/support/recording_cpu.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using Way = ControlForm::Way;

TEST(RecordedControl, BranchesAndLoopsAreRecordedOnceAndHaveTheBitsOfTheEagerEngine) {
  for (bool recompute : {false, true})
    for (const ControlForm& form : ControlForm::all(recompute)) {
      const std::string what = str(form.name, recompute ? ", recomputed" : "");
      const ControlForm::Seen eager = form.run({}, Way::eager);
      {
        const RecordingCpu cpu;
        const ControlForm::Seen whole = form.run({}, Way::whole);
        expect_same_bits(whole, eager, what + ", whole");
        EXPECT_EQ(whole.executor, "cpu: recorded, replayed as one") << what;
        EXPECT_EQ(whole.traces, 1u) << what;
        EXPECT_EQ(cpu.recorded(), 1) << what;
        EXPECT_EQ(cpu.replayed(), ControlForm::kCalls - 1) << what;
      }
      const RecordingCpu cpu;
      const ControlForm::Seen inner = form.run({}, Way::inner);
      expect_same_bits(inner, eager, what + ", inner");
      EXPECT_EQ(inner.executor, "cpu: recorded, replayed as one") << what;
      EXPECT_EQ(cpu.recorded(), form.has_gradient ? 2 : 1) << what << ": its backward pass, too";
    }
}

TEST(RecordedControl, WithoutItTheHostWaitsAndTheReportSaysWhy) {
  for (const ControlForm& form : ControlForm::all(false)) {
    const ControlForm::Seen eager = form.run({}, Way::eager);
    const RecordingCpu cpu(false);
    const ControlForm::Seen whole = form.run({}, Way::whole);
    expect_same_bits(whole, eager, form.name);
    EXPECT_NE(whole.executor.find("; not recorded: the host waits for the condition of "), std::string::npos)
        << form.name << ": " << whole.executor;
    EXPECT_EQ(cpu.recorded(), 0) << form.name;
    EXPECT_GT(cpu.waited(), 0) << form.name;
  }
}

TEST(RecordedControl, WhatADriverRefusesToRecordRunsInOrderAndTheReportSaysWhy) {
  const ControlForm form = ControlForm::all(false).front();
  const ControlForm::Seen eager = form.run({}, Way::eager);
  RecordingCpu cpu;
  cpu.refuse("cuda: no such kernel in a branch.");
  const ControlForm::Seen whole = form.run({}, Way::whole);
  expect_same_bits(whole, eager, form.name);
  EXPECT_NE(whole.executor.find("; not recorded: cuda: no such kernel in a branch."), std::string::npos)
      << whole.executor;
  Compiled plain = compile([](const Tensor& x) { return exp(x); });  // it has no other way
  EXPECT_EQ(host_bytes(plain(ones({2}))), host_bytes(exp(ones({2}))));
  EXPECT_THROW(plain(ones({2})), Error);
}

TEST(RecordedControl, NothingIsRecordedBeforeEachBranchWasTimedWhereImplementationsAreChosenByTime) {
  struct ByTime {
    ByTime() { set_matmul_choice({.mode = ChoiceMode::profile, .keep = false}); }
    ~ByTime() { set_matmul_choice({}); }
  } const by_time;
  const RecordingCpu cpu;
  const Tensor w = to_tensor(hash_array({5, 5}, 1), DType::f32);
  Compiled f = compile([&](const Tensor& x, const Tensor& holds) {
    return cond(
        holds, [&] { return matmul(x, w); }, [&] { return x * 2.0; });
  });
  const Tensor x = to_tensor(hash_array({3, 5}, 2), DType::f32);
  const auto call = [&](bool holds) { return f(x, full({}, holds, DType::boolean)); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host_bytes(call(false)), host_bytes(x * 2.0));
  EXPECT_EQ(cpu.recorded(), 0);
  const Tensor want = matmul(x, w);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host_bytes(call(true)), host_bytes(want));
  EXPECT_EQ(cpu.recorded(), 1);
  EXPECT_EQ(host_bytes(call(false)), host_bytes(x * 2.0));
}

}  // namespace
}  // namespace tandem::testing
