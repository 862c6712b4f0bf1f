// How often the whole analysis errs: studies of equal systems, and of systems that differ by a known share.
#include <gtest/gtest.h>

#include <cstdio>

#include "lab/src/analysis/analysis.h"
#include "lab/tests/analysis/simulated.h"

namespace tandem::lab {
namespace {

AnalysisOptions quick_options() {
  AnalysisOptions options;
  options.resamples = 1000;
  return options;
}

struct Rates {
  int small_p = 0, decided = 0, equivalent = 0, wrong_way = 0;
};

Rates rates(double ratio, int studies, int blocks, double noise, uint64_t seed) {
  stats::Random random(seed);
  Rates result;
  for (int i = 0; i < studies; ++i) {
    const Analysis analysis =
        analyse(simulated_study({0.01, 0.01 * ratio}, blocks, noise, random), quick_options());
    const Comparison& comparison = analysis.comparisons.at(0);
    result.small_p += comparison.p_holm < 0.05;
    result.decided += comparison.verdict == Verdict::first || comparison.verdict == Verdict::second;
    result.wrong_way += comparison.verdict == Verdict::second;
    result.equivalent += comparison.verdict == Verdict::equivalent;
  }
  return result;
}

TEST(ErrorRates, Fifty_studies_of_equal_samples_err_within_the_binomial_bounds_of_five_percent) {
  constexpr int kStudies = 50;
  const Rates equal = rates(1, kStudies, 20, 0.02, 4);
  const stats::Bounds bounds = stats::clopper_pearson(equal.small_p, kStudies);
  std::printf(
      "A/A: %d of %d studies have p < 0.05 (95 %% bounds of the rate %.3f to %.3f); %d verdicts, %d equal\n",
      equal.small_p, kStudies, bounds.low, bounds.high, equal.decided, equal.equivalent);
  EXPECT_LE(bounds.low, 0.05);
  EXPECT_GE(bounds.high, 0.05);
  // The noise floor can only make verdicts rarer than small p.
  EXPECT_LE(equal.decided, equal.small_p);
}

TEST(ErrorRates, A_thousand_studies_of_equal_samples_keep_the_level_with_few_runs_too) {
  constexpr int kStudies = 1000;
  const Rates equal = rates(1, kStudies, 8, 0.01, 5);
  // Eight pairs allow 10 of 256 sign patterns below 5 %: 3.9 %.
  const stats::Bounds bounds = stats::clopper_pearson(equal.small_p, kStudies, 0.999);
  std::printf("A/A: %d of %d studies of 8 runs have p < 0.05; %d verdicts\n", equal.small_p, kStudies,
              equal.decided);
  EXPECT_LE(bounds.low, 10.0 / 256);
  EXPECT_GE(bounds.high, 10.0 / 256);
  EXPECT_LT(equal.decided, 0.02 * kStudies);
}

TEST(ErrorRates, A_shift_of_five_percent_is_found) {
  constexpr int kStudies = 50;
  for (const double noise : {0.01, 0.02}) {
    const Rates shifted = rates(1.05, kStudies, 10, noise, 6);
    const stats::Bounds power = stats::clopper_pearson(shifted.decided, kStudies);
    std::printf(
        "power: a shift of 5 %% with noise of %.0f %% and 10 runs is decided in %d of %d studies (%.2f to "
        "%.2f)\n",
        100 * noise, shifted.decided, kStudies, power.low, power.high);
    EXPECT_EQ(shifted.wrong_way, 0);
    EXPECT_EQ(shifted.equivalent, 0);
    if (noise < 0.015) {
      EXPECT_GT(power.low, 0.9);
    } else {
      EXPECT_GT(power.low, 0.2);
    }
  }
}

TEST(ErrorRates, Equal_and_steady_systems_are_called_equal) {
  const Rates equal = rates(1, 50, 10, 0.005, 7);
  EXPECT_GE(equal.equivalent, 45);
}

// With twelve systems there are 66 comparisons; without Holm, three in a study would be wrong.
TEST(ErrorRates, Many_equal_systems_do_not_breed_findings) {
  stats::Random random(8);
  int with_small_p = 0, with_small_raw_p = 0;
  constexpr int kStudies = 60;
  AnalysisOptions options = quick_options();
  options.resamples = 100;
  for (int i = 0; i < kStudies; ++i) {
    const Analysis analysis =
        analyse(simulated_study(std::vector<double>(12, 0.01), 14, 0.02, random, false), options);
    ASSERT_EQ(analysis.comparisons.size(), 66u);
    bool raw = false, corrected = false;
    for (const Comparison& comparison : analysis.comparisons) {
      EXPECT_TRUE(comparison.can_decide);
      raw = raw || comparison.p < 0.05;
      corrected = corrected || comparison.p_holm < 0.05;
    }
    with_small_p += corrected;
    with_small_raw_p += raw;
  }
  EXPECT_LE(stats::clopper_pearson(with_small_p, kStudies).low, 0.05);
  EXPECT_GT(with_small_raw_p, kStudies / 2);
}

}  // namespace
}  // namespace tandem::lab
