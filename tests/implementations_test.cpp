// Lists of implementations: the chooser, and every list of the library over the op cases.
#include "tandem/core/implementations.h"

#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <set>

#include "tandem/core/backend.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/support/op_case.h"

namespace tandem::testing {
namespace {

// ---- the chooser --------------------------------------------------------------------------------------------------

/// The problem is a number; a call is the number, and who ran.
struct NumberCall {
  int problem;
  std::string* ran;
};
class Even final : public Implementation<int, NumberCall> {
 public:
  std::string name() const override { return "even"; }
  const char* can(const int& n) const override { return n % 2 ? "it takes even numbers only." : nullptr; }
  bool pays(const int& n) const override { return n >= 10; }
  size_t workspace(const int& n) const override { return static_cast<size_t>(n) * 8; }
  void run(const NumberCall& call) const override { *call.ran += "even "; }
};
class Positive final : public Implementation<int, NumberCall> {
 public:
  std::string name() const override { return "positive"; }
  const char* can(const int& n) const override { return n > 0 ? nullptr : "it takes positive numbers only."; }
  bool is_fixed() const override { return true; }
  void run(const NumberCall& call) const override { *call.ran += "positive "; }
};
const Even kEven;
const Positive kPositive;
const Implementation<int, NumberCall>* const kRows[] = {&kEven, &kPositive};

TEST(Implementations, TheHeuristicTakesTheFirstThatCanAndPaysAndFixedTheOneThatDoesEverything) {
  const Implementations<int, NumberCall> list(kRows);
  EXPECT_EQ(list.by_rule(ChoiceMode::heuristic, 12).name(), "even");
  EXPECT_EQ(list.by_rule(ChoiceMode::heuristic, 8).name(), "positive");   // it can, but does not pay
  EXPECT_EQ(list.by_rule(ChoiceMode::heuristic, 13).name(), "positive");  // it would pay, but cannot
  EXPECT_EQ(list.by_rule(ChoiceMode::fixed, 12).name(), "positive");
  EXPECT_THROW(list.by_rule(ChoiceMode::fixed, -2), Error);
}

TEST(Implementations, AReportHoldsEveryCandidateWithItsReasonAndWorkspace) {
  Chooser<int, NumberCall> chooser(kRows);
  const Candidates odd = chooser.report(ChoiceMode::heuristic, 3),
                   even = chooser.report(ChoiceMode::fixed, 4);
  ASSERT_EQ(odd.all.size(), 2u);
  EXPECT_EQ(odd.chosen, "positive");
  EXPECT_EQ(odd.all[0].why_not, "it takes even numbers only.");
  EXPECT_EQ(odd.all[0].workspace, 0u);
  EXPECT_EQ(odd.all[1].why_not, "");
  EXPECT_EQ(even.chosen, "positive");
  EXPECT_EQ(even.all[0].workspace, 32u);
  EXPECT_EQ(chooser.report(ChoiceMode::profile, 4).chosen, "not timed yet");
}

TEST(Implementations, ProfileRunsOnlyThoseThatCanAndRemembersTheFastest) {
  Chooser<int, NumberCall> chooser(kRows);
  std::string ran;
  const auto choose = [&](int n) {
    return chooser
        .choose(ChoiceMode::profile, n,
                [&](const auto& list) -> const Implementation<int, NumberCall>& {
                  return list.by_time(n, str("number ", n), false, [&](const auto& row) {
                    row.run({n, &ran});
                    return row.name() == "even" ? 1. : 2.;
                  });
                })
        .name();
  };
  EXPECT_EQ(choose(3), "positive");
  EXPECT_EQ(ran, "");  // there is nothing to choose
  EXPECT_EQ(choose(4), "even");
  EXPECT_NE(ran.find("positive "), std::string::npos);
  EXPECT_EQ(chooser.report(ChoiceMode::profile, 4).chosen, "even");
  ran.clear();
  EXPECT_EQ(choose(4), "even");
  EXPECT_EQ(ran, "");
  {
    const ForcedImplementation forced("positive");
    EXPECT_EQ(choose(4), "positive");
    EXPECT_EQ(ran, "");
  }
  EXPECT_EQ(choose(4), "even");
}

// ---- the lists of the library ---------------------------------------------------------------------------------------

/// A mode for every heavy op while it lives.
struct EveryChoice {
  explicit EveryChoice(ChoiceMode mode) {
    set_convolution_choice({.mode = mode, .keep = false});
    set_matmul_choice({.mode = mode, .keep = false});
  }
  ~EveryChoice() {
    set_convolution_choice({});
    set_matmul_choice({});
  }
};

/// The cases that call an op with several implementations.
std::vector<const OpCase*> heavy_cases() {
  std::vector<const OpCase*> cases;
  for (const OpCase& op_case : all_cases()) {
    bool heavy = false;
    if (!op_case.data_dependent)
      for (const std::string& op : ops_called(op_case))
        heavy = heavy || find_op(op)->candidates[static_cast<int>(DeviceKind::cpu)];
    if (heavy) cases.push_back(&op_case);
  }
  return cases;
}
std::vector<DType> dtypes_of(const OpCase& op_case) {
  std::vector<DType> all = op_case.dtypes;
  if (op_case.floating) all.insert(all.begin(), {DType::f32, DType::f64});
  return all;
}
/// The heavy nodes of a case's graph, after a call.
std::vector<GraphView::Node> heavy_nodes(const OpCase& op_case, DType dtype, Device device) {
  Compiled compiled =
      compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{op_case.call(in)}; });
  const NoGrad off;
  compiled(case_tensors(op_case, dtype, 0, false, device));
  std::vector<GraphView::Node> nodes;
  std::vector<GraphReport> reports = compiled.reports();
  for (GraphView::Node& node : reports.at(0).graph.nodes)
    if (!node.candidates.empty()) nodes.push_back(std::move(node));
  return nodes;
}
std::set<std::string> able(const GraphView::Node& node) {
  std::set<std::string> names;
  for (const Candidate& candidate : node.candidates)
    if (candidate.why_not.empty()) names.insert(candidate.name);
  return names;
}

void expect_sound_lists(ChoiceMode mode, Device device) {
  const EveryChoice by(mode);
  std::set<std::string> ops;
  for (const OpCase* op_case : heavy_cases())
    for (const DType dtype : dtypes_of(*op_case))
      for (const GraphView::Node& node : heavy_nodes(*op_case, dtype, device)) {
        SCOPED_TRACE(str(op_case->name, " in ", name(dtype), ", ", node.op, " by ", name(mode)));
        ops.insert(node.op);
        std::set<std::string> names;
        for (const Candidate& candidate : node.candidates) {
          EXPECT_TRUE(names.insert(candidate.name).second) << candidate.name << " twice";
          if (candidate.why_not.empty()) continue;
          EXPECT_TRUE(candidate.why_not.starts_with("it ") && candidate.why_not.ends_with("."))
              << candidate.name << ": " << candidate.why_not;
        }
        // A call with nothing to compute is never timed.
        if (node.algorithm != "not timed yet") {
          EXPECT_TRUE(able(node).contains(node.algorithm)) << node.algorithm;
        }
      }
  for (const char* op : {"conv", "conv_input_gradient", "conv_weight_gradient", "matmul", "linear"})
    EXPECT_TRUE(ops.contains(op)) << op;
}

/// Each implementation that can, in the place of the chosen one, in at most `most` cases an op. check() runs a case in every
/// type.
void expect_right_results(Device device, int most, void (*check)(const OpCase&)) {
  std::set<std::string> forced;
  std::map<std::string, int> times;
  for (const OpCase* op_case : heavy_cases()) {
    const EveryChoice by(ChoiceMode::profile);
    std::set<std::string> names;
    for (const DType dtype : dtypes_of(*op_case))
      for (const GraphView::Node& node : heavy_nodes(*op_case, dtype, device))
        for (const std::string& wanted : able(node))
          if (!names.contains(wanted) && times[str(node.op, " ", wanted)]++ < most) names.insert(wanted);
    for (const std::string& wanted : names) {
      SCOPED_TRACE(str(op_case->name, " by ", wanted));
      const ForcedImplementation force(wanted);
      check(*op_case);
      for (const GraphView::Node& node : heavy_nodes(*op_case, dtypes_of(*op_case)[0], device))
        if (node.algorithm == wanted) forced.insert(str(node.op, " ", wanted));
    }
  }
  EXPECT_GT(forced.size(), 5u);
}

TEST(ImplementationLists, NamesAreUniqueReasonsAreSentencesAndTheChosenOneCan) {
  for (const ChoiceMode mode : kChoiceModes) expect_sound_lists(mode, {});
}

TEST(ImplementationLists, EveryImplementationThatCanGivesTheResultsOfTheCases) {
  expect_right_results({}, INT_MAX, [](const OpCase& op_case) {
    check_forward(op_case);
    check_noncontiguous(op_case);
  });
}

constexpr Device kGpu{DeviceKind::cuda, 0};
class ImplementationListsOnCuda : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TANDEM_TF32", "0", 1); }  // the tolerances are not those of tf32
  void SetUp() override {
    if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  }
};
TEST_F(ImplementationListsOnCuda, NamesAreUniqueReasonsAreSentencesAndTheChosenOneCan) {
  for (const ChoiceMode mode : kChoiceModes) expect_sound_lists(mode, kGpu);
}
TEST_F(ImplementationListsOnCuda, EveryImplementationGivesTheResultsOfTwoCasesThatItCan) {
  // cuDNN has dozens, and each plan takes tens of milliseconds to build.
  expect_right_results(kGpu, 2, [](const OpCase& op_case) { check_device(op_case, kGpu); });
}

TEST(ImplementationLists, ModesOfProductsChooseAndHoldForStridesAndBatches) {
  manual_seed(2);
  const Tensor a = uniform({3, 300}, -1, 1), b = uniform({300, 200}, -1, 1);
  const Tensor transposed = contiguous(transpose(b));
  std::vector<Tensor> results;
  for (const ChoiceMode mode : {ChoiceMode::heuristic, ChoiceMode::fixed}) {
    const EveryChoice by(mode);
    results.push_back(matmul(a, b));
    EXPECT_TRUE(same_bits(results.back(), matmul(a, transpose(transposed)))) << name(mode);
    EXPECT_TRUE(same_bits(results.back(), linear(a, transposed))) << name(mode);
    const Tensor batch = matmul(expand(a, {4, 3, 300}), expand(b, {4, 300, 200}));
    EXPECT_TRUE(same_bits(results.back(), select(batch, 0, 2))) << name(mode);
  }
  EXPECT_FALSE(same_bits(results[0], results[1]));  // "thin" and "panels" round differently
}

}  // namespace
}  // namespace tandem::testing
