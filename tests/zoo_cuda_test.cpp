// One training step of every model of the zoo on CUDA: the same bits with either engine, and the CPU's numbers. In full f32,
// so that the two devices can be compared. On a machine without a GPU every test here is skipped, by name.
// ctest: cuda timeout=600
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tandem/core/backend.h"
#include "tests/support/values.h"
#include "tests/support/zoo_models.h"

namespace tandem::testing {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

class ZooOnCuda : public ::testing::TestWithParam<std::string> {
 protected:
  /// Read when the backend is first used.
  static void SetUpTestSuite() { setenv("TANDEM_TF32", "0", 1); }
  void SetUp() override {
    if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  }
  const zoo::ModelInfo& info() const { return zoo::model_info(GetParam()); }
};

double norm_of(const Array& a) {
  double sum = 0;
  for (const double v : a.values) sum += v * v;
  return std::sqrt(sum);
}
Array difference(Array a, const Array& b) {
  for (int64_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

TEST_P(ZooOnCuda, OneTrainingStepGivesTheSameBitsWithEitherEngine) {
  const nn::NamedTensors want = train_once(info(), Engine::eager, kGpu).after,
                         got = train_once(info(), Engine::graph, kGpu).after;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(same_bits(got[i].second, want[i].second)) << want[i].first;
}

TEST_P(ZooOnCuda, OneTrainingStepChangesEveryWeightAsOnTheCpu) {
  const TrainedModel here = train_once(info(), Engine::eager),
                     there = train_once(info(), Engine::eager, kGpu);
  EXPECT_TRUE(near(to_array(there.after[0].second), to_array(here.after[0].second), 1e-4)) << "loss";
  for (size_t i = 0; i < here.before.size(); ++i) {
    const auto& [name, before] = here.before[i];
    ASSERT_EQ(there.after[i + 1].first, name);
    const Array start = to_array(before), want = to_array(here.after[i + 1].second),
                got = to_array(there.after[i + 1].second);
    ASSERT_EQ(got.shape, want.shape) << name;
    // A hundredth of what the step changed, beside the rounding of the weights themselves.
    const double rounding = 1e-6 * (norm_of(want) + std::sqrt(static_cast<double>(want.size())));
    EXPECT_LE(norm_of(difference(got, want)), 0.01 * norm_of(difference(want, start)) + rounding) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooOnCuda, ::testing::ValuesIn(model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::testing
