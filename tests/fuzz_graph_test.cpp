// The fuzzer: random programs of views, broadcasts, reductions, pointwise ops of several types, products, casts,
// random numbers, gradients and assigns must give the same bits eagerly and compiled, over several calls.
//   TANDEM_FUZZ_GRAPHS=100000   how many programs (default 20000, 2000 under a sanitizer)
//   TANDEM_FUZZ_SEED=17         only this one, with its operations printed
// ctest: asan shards=2
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tandem/core/rng.h"
#include "tandem/graph/compile.h"
#include "tests/support/fuzz_program.h"

namespace tandem::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kPrograms = 2000;
#else
constexpr int64_t kPrograms = 20000;
#endif

CompileOptions some_stages(uint64_t seed) {
  Random random(seed + 99);
  if (random.chance(0.7)) return {};
  std::vector<std::string> stages;
  for (const std::string& stage : all_stages())
    if (random.chance(0.5)) stages.push_back(stage);
  return with_stages(stages);
}

/// Empty where all is well, else what differs.
std::string first_difference(uint64_t seed) {
  const FuzzProgram program(seed);
  const std::vector<Tensor> eager_state = program.state(), graph_state = program.state();
  Compiled compiled =
      compile([&](const std::vector<Tensor>& in) { return program.run(in, graph_state); }, some_stages(seed));
  GeneratorState eager_random{seed, 0}, graph_random{seed, 0};
  for (uint32_t call = 0; call < 3; ++call) {
    const std::vector<Tensor> eager_in = program.inputs(call), graph_in = program.inputs(call);
    set_generator_state(eager_random);
    std::string refused, graph_refused;
    std::vector<Tensor> want, got;
    try {
      want = program.run(eager_in, eager_state);
    } catch (const Error& error) {
      refused = error.what();
    }
    eager_random = generator_state();
    set_generator_state(graph_random);
    try {
      got = compiled(graph_in);
    } catch (const Error& error) {
      graph_refused = error.what();
    }
    graph_random = generator_state();
    if (!refused.empty() || !graph_refused.empty())
      return refused == graph_refused
                 ? ""
                 : cat("call ", call, ": eager: '", refused, "'; graph: '", graph_refused, "'");
    if (got.size() != want.size()) return cat("call ", call, ": ", got.size(), " outputs, not ", want.size());
    for (size_t i = 0; i < want.size(); ++i)
      if (const auto same = same_bits(got[i], want[i]); !same)
        return cat("call ", call, ", output ", i, ": ", same.message());
    for (size_t i = 0; i < eager_state.size(); ++i)
      if (const auto same = same_bits(graph_state[i], eager_state[i]); !same)
        return cat("call ", call, ", state ", i, ": ", same.message());
    for (size_t i = 0; i < eager_in.size(); ++i)
      if (const auto same = same_bits(graph_in[i], eager_in[i]); !same)
        return cat("call ", call, ", input ", i, ": ", same.message());
    if (eager_random.offset != graph_random.offset) return cat("call ", call, ": the random streams differ");
    if (call == 1) {
      program.disturb(eager_state, call);
      program.disturb(graph_state, call);
    }
  }
  return "";
}

std::string listing(uint64_t seed) {
  const FuzzProgram program(seed);
  std::string text;
  try {
    program.run(program.inputs(0), program.state(), &text);
  } catch (const std::exception& error) {
    text += cat("  refused: ", error.what(), "\n");
  }
  return text;
}

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

/// A quarter of the programs in each test, so that ctest can run them side by side.
class GraphFuzzer : public ::testing::TestWithParam<int> {};

TEST_P(GraphFuzzer, EagerAndGraphGiveTheSameBits) {
  const int64_t only = number_from_environment("TANDEM_FUZZ_SEED", -1);
  if (only >= 0) {
    if (GetParam() != 0) GTEST_SKIP() << "one program only";
    std::cout << "program " << only << "\n" << listing(static_cast<uint64_t>(only));
    EXPECT_EQ(first_difference(static_cast<uint64_t>(only)), "");
    return;
  }
  const int64_t count = number_from_environment("TANDEM_FUZZ_GRAPHS", kPrograms);
  int failures = 0;
  for (int64_t seed = GetParam(); seed < count && failures < 3; seed += 4) {
    std::string difference;
    try {
      difference = first_difference(static_cast<uint64_t>(seed));
    } catch (const std::exception& error) {
      difference = error.what();
    }
    if (difference.empty()) continue;
    ++failures;
    ADD_FAILURE() << "program " << seed << ": " << difference << "\nTo repeat: TANDEM_FUZZ_SEED=" << seed
                  << " tandem_tests --file=fuzz_graph_test.cpp\n"
                  << listing(static_cast<uint64_t>(seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Quarters, GraphFuzzer, ::testing::Range(0, 4));

TEST(FuzzPrograms, AreTheSameForTheSameSeedAndRarelyRefused) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string first = listing(seed);
    EXPECT_EQ(first, listing(seed));
    refused += first.find("refused") != std::string::npos;
  }
  EXPECT_LT(refused, 20) << "most programs must run to their end, or they test nothing";
}

}  // namespace
}  // namespace tandem::testing
