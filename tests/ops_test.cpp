// Every op case in every mode. See support/op_case.h for how to add one.
// ctest: shards=2
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tandem/core/backend.h"
#include "tandem/core/op.h"
#include "tests/support/op_case.h"

namespace tandem::testing {
namespace {

class OpCases : public ::testing::TestWithParam<const OpCase*> {
 protected:
  const OpCase& op_case() const { return *GetParam(); }
};

std::vector<const OpCase*> pointers() {
  std::vector<const OpCase*> list;
  for (const OpCase& op_case : all_cases()) list.push_back(&op_case);
  return list;
}

std::string test_name(const ::testing::TestParamInfo<const OpCase*>& info) {
  std::string name = info.param->name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

TEST_P(OpCases, ForwardMatchesTheReferenceInEveryDtype) { check_forward(op_case()); }

TEST_P(OpCases, GradientMatchesDifferences) {
  if (op_case().gradient) check_gradient(op_case());
}

TEST_P(OpCases, SecondOrderMatchesDifferencesOfTheGradient) {
  if (op_case().second_order || op_case().refuses_second_order) check_second_order(op_case());
}

TEST_P(OpCases, GradientsOfBothOrdersMatchDifferencesAtZeros) {
  if (op_case().gradient && op_case().floating) check_zeros(op_case());
}

TEST_P(OpCases, IntegersBeyond2To53StayExact) { check_large_integers(op_case(), {}); }

TEST_P(OpCases, EagerAndGraphGiveTheSameBits) { check_graph(op_case()); }

TEST_P(OpCases, ComposedFormsAgreeWithKernels) { check_composed(op_case()); }

TEST_P(OpCases, StridedInputsGiveTheBitsOfContiguousOnes) { check_noncontiguous(op_case()); }

INSTANTIATE_TEST_SUITE_P(All, OpCases, ::testing::ValuesIn(pointers()), test_name);

class OpCasesOnCuda : public OpCases {
 public:
  /// Full f32: the tolerances are not those of tf32. Read when the backend is first used.
  static void SetUpTestSuite() { setenv("TANDEM_TF32", "0", 1); }
};

TEST_P(OpCasesOnCuda, AgreeWithTheCpu) {
  if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  check_device(op_case(), {DeviceKind::cuda, 0});
}

TEST_P(OpCasesOnCuda, IntegersBeyond2To53StayExact) {
  if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  check_large_integers(op_case(), {DeviceKind::cuda, 0});
}

INSTANTIATE_TEST_SUITE_P(All, OpCasesOnCuda, ::testing::ValuesIn(pointers()), test_name);

/// Op name -> the cases whose call passes it to apply().
const std::map<std::string, std::vector<const OpCase*>>& cases_by_op() {
  static const auto table = [] {
    std::map<std::string, std::vector<const OpCase*>> by_op;
    for (const OpCase& op_case : all_cases())
      for (const std::string& name : ops_called(op_case)) by_op[name].push_back(&op_case);
    return by_op;
  }();
  return table;
}

TEST(OpCaseList, EveryOpHasACase) {
  ASSERT_GT(all_ops().size(), 30u);
  for (const OpDef* op : all_ops()) {
    if (std::string(op->name) == "to") continue;  // between devices: AgreeWithTheCpu runs it with every case
    EXPECT_TRUE(cases_by_op().count(op->name)) << "op '" << op->name << "' has no case in tests/op_cases";
  }
}

TEST(OpCaseList, EveryOpHasAnEmptyCase) {
  for (const auto& [name, cases] : cases_by_op()) {
    const bool has_empty = std::any_of(cases.begin(), cases.end(), [](const OpCase* c) {
      return std::any_of(c->inputs.begin(), c->inputs.end(),
                         [](const CaseInput& input) { return size_of(input.shape) == 0; });
    });
    EXPECT_TRUE(has_empty) << "op '" << name << "' has no case with an empty input";
  }
}

TEST(OpCaseList, EveryDifferentiableOpHasAGradientCase) {
  for (const OpDef* op : all_ops()) {
    if (!op->gradient || !cases_by_op().count(op->name)) continue;
    const auto& cases = cases_by_op().at(op->name);
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(),
                            [](const OpCase* c) { return c->second_order || c->refuses_second_order; }))
        << "op '" << op->name << "' has a gradient rule that no case checks";
  }
}

TEST(OpCaseList, EveryOpSaysHowItIsDifferentiatedOrWhyNot) {
  for (const OpDef* op : all_ops())
    EXPECT_NE(op->gradient != nullptr, op->not_differentiable != nullptr) << op->name;
}

TEST(OpCaseList, OneOpAtLeastHasAComposedForm) {
  const std::vector<OpDef*> ops = all_ops();
  EXPECT_TRUE(std::any_of(ops.begin(), ops.end(), [](const OpDef* op) { return op->composed; }));
}

TEST(OpCaseList, EveryOpSaysWhatItComputesAndNamesWhatItTakesAndGives) {
  for (const OpDef* op : all_ops()) {
    ASSERT_TRUE(op->about) << op->name;
    EXPECT_FALSE(std::string(op->about).empty()) << op->name;
    EXPECT_EQ(op->inputs.names[0] != nullptr, op->inputs.most > 0) << op->name;
    const std::string name = op->name;  // the outputs of two depend on their attributes
    EXPECT_NE(op->outputs[0] != nullptr, name == "recurrent_gradient" || name == "recurrent_layer_gradient")
        << name;
  }
}

TEST(OpCaseList, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& op_case : all_cases()) EXPECT_TRUE(names.insert(op_case.name).second) << op_case.name;
}

}  // namespace
}  // namespace tandem::testing
