// The programs of fuzz_graph_test.cpp on cuda:0.
//   TANDEM_FUZZ_GRAPHS=100000   how many programs (default 500)
// ctest: cuda shards=2 timeout=900
#include <gtest/gtest.h>

#include "tandem/core/backend.h"
#include "tests/support/fuzz_program.h"

namespace tandem::testing {
namespace {

class GraphFuzzerOnCuda : public ::testing::TestWithParam<int> {};

TEST_P(GraphFuzzerOnCuda, EagerAndGraphGiveTheSameBitsAndTheSameRefusals) {
  if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  fuzz_graphs(GetParam(), 2, number_from_environment("TANDEM_FUZZ_GRAPHS", 500), {DeviceKind::cuda, 0});
}

INSTANTIATE_TEST_SUITE_P(Halves, GraphFuzzerOnCuda, ::testing::Range(0, 2));

}  // namespace
}  // namespace tandem::testing
