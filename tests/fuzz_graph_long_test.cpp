// The fuzzer's long run, once per issue: a million programs of fuzz_graph_test.cpp, and 100,000 on cuda:0.
//   TANDEM_FUZZ_GRAPHS=10000   fewer of both
// ctest: long shards=16 timeout=14400
#include <gtest/gtest.h>

#include "tandem/core/backend.h"
#include "tests/support/fuzz_program.h"

namespace tandem::testing {
namespace {

class LongGraphFuzzer : public ::testing::TestWithParam<int> {};

TEST_P(LongGraphFuzzer, EagerAndGraphGiveTheSameBitsAndTheSameRefusals) {
  fuzz_graphs(GetParam(), 4, number_from_environment("TANDEM_FUZZ_GRAPHS", 1000000));
}

INSTANTIATE_TEST_SUITE_P(Quarters, LongGraphFuzzer, ::testing::Range(0, 4));

class LongGraphFuzzerOnCuda : public ::testing::TestWithParam<int> {};

TEST_P(LongGraphFuzzerOnCuda, EagerAndGraphGiveTheSameBitsAndTheSameRefusals) {
  if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  fuzz_graphs(GetParam(), 12, number_from_environment("TANDEM_FUZZ_GRAPHS", 100000), {DeviceKind::cuda, 0});
}

INSTANTIATE_TEST_SUITE_P(Twelfths, LongGraphFuzzerOnCuda, ::testing::Range(0, 12));

}  // namespace
}  // namespace tandem::testing
