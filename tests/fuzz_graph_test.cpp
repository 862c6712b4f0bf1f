// The fuzzer: random programs drawn from the op table - every op, views, aliases, changes in place, captured state,
// random numbers, gradients of gradients - and what a caller may change between two calls must give the same bits and
// the same refusals eagerly and compiled. See support/fuzz_program.h.
//   TANDEM_FUZZ_GRAPHS=100000   how many programs (default 20000, 2000 under a sanitizer)
//   TANDEM_FUZZ_FIRST=20000     from this one on
//   TANDEM_FUZZ_SEED=17         only this one, printed, and shrunk where it fails
//   TANDEM_FUZZ_FAILURES=50     go on after failures (default 3 in each test)
// ctest: asan shards=2
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/fuzz_run.h"

namespace tandem::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kPrograms = 2000;
#else
constexpr int64_t kPrograms = 20000;
#endif

/// A quarter of the programs in each test, so that ctest can run them side by side.
class GraphFuzzer : public ::testing::TestWithParam<int> {};

TEST_P(GraphFuzzer, EagerAndGraphGiveTheSameBitsAndTheSameRefusals) {
  fuzz_graphs(GetParam(), 4, number_from_environment("TANDEM_FUZZ_GRAPHS", kPrograms));
}

INSTANTIATE_TEST_SUITE_P(Quarters, GraphFuzzer, ::testing::Range(0, 4));

/// Ops that no program can hold, and why.
const std::map<std::string, std::string> kNeverDrawn = {
    {"to", "a compiled callable runs on one device; cuda programs move captured tensors between calls"}};

TEST(FuzzPrograms, DrawEveryOpOfTheTable) {
  std::map<std::string, int> drawn;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const FuzzProgram program = draw_program(seed);
    FuzzSide side(program);
    FuzzNotes notes;
    RecordingTracer tracer;
    std::string refused;
    try {
      const TraceScope scope(&tracer);
      run_program(program, side.inputs(program, 0), side, notes);
    } catch (const Error& error) {
      refused = data_dependent_op(error.what());
    }
    std::set<std::string> names;
    for (const AppliedOp& applied : tracer.applied) names.insert(applied.op->name);
    if (!refused.empty()) names.insert(refused);
    for (const std::string& name : names) ++drawn[name];
  }
  for (const OpDef* op : all_ops()) {
    if (kNeverDrawn.count(op->name)) continue;
    EXPECT_GE(drawn[op->name], 5) << "op '" << op->name
                                  << "': the fuzzer cannot draw it, or hardly does. Give it a small case in "
                                     "tests/op_cases, which is its recipe.";
  }
}

TEST(FuzzPrograms, DrawEveryOpThatWritesInPlaceOnMemoryThatOthersShare) {
  for (const OpDef* op : all_ops()) {
    if (!writes_in_place(*op)) continue;
    const auto& recipes = fuzz_recipes();
    EXPECT_TRUE(std::any_of(recipes.begin(), recipes.end(), [&](const FuzzRecipe& recipe) {
      return recipe.name == str(op->name, " in place");
    })) << op->name;
  }
}

TEST(FuzzPrograms, ShrinkToTheStepsAndEventsThatAFailureNeeds) {
  const FuzzCheck check = [](const FuzzProgram& program) -> std::string {
    const std::string text = listing(program);
    const bool fails = text.find("matmul(") != std::string::npos &&
                       text.find("  assign(") != std::string::npos &&
                       text.find("rebind w") != std::string::npos;
    return fails ? "call 0: all three: found" : "";
  };
  int found = 0;
  for (uint64_t seed = 0; found < 3; ++seed) {
    ASSERT_LT(seed, 5000u);
    const FuzzProgram program = draw_program(seed);
    if (check(program).empty()) continue;
    ++found;
    const FuzzProgram small = shrink(program, check);
    EXPECT_EQ(small.steps.size(), 2u) << listing(small);
    EXPECT_EQ(small.events.size(), 1u) << listing(small);
    EXPECT_EQ(small.passes.size(), 0u) << listing(small);
    EXPECT_EQ(small.outputs.size(), 0u) << listing(small);
  }
}

TEST(FuzzPrograms, AreTheSameForTheSameSeedAndRarelyRefused) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string first = listing(draw_program(seed));
    EXPECT_EQ(first, listing(draw_program(seed)));
    refused += first.find(" is refused: ") != std::string::npos;
  }
  RecordProperty("refused", refused);
  EXPECT_LT(refused, 40) << "most programs must run to their end, or they test nothing";
}

}  // namespace
}  // namespace tandem::testing
