// Rank tests: the floor of p, what few runs cannot decide, symmetry, and refusals.
#include "lab/src/stats/rank_tests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lab/src/stats/distributions.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/random.h"
#include "tandem/core/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab::stats {
namespace {

using tandem::testing::message_of;

std::vector<double> counting(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

// Paper 000 prints this number for five of its ten comparisons. It says that all 100 pairs have one sign, and no more.
TEST(Wilcoxon, Paper_000s_p_is_the_floor_of_100_pairs) {
  WilcoxonOptions options;
  options.method = Method::normal;
  const TestResult small = wilcoxon(counting(100), options);
  EXPECT_NEAR(small.p / 3.896559845095909e-18, 1, 1e-9);
  EXPECT_TRUE(small.at_floor);
  EXPECT_EQ(small.p, small.smallest_p);
  EXPECT_NEAR(wilcoxon_smallest_p(100) / 3.896559845095909e-18, 1, 1e-9);

  // A difference a thousand times as large has the same p: it measures nothing.
  std::vector<double> large = counting(100);
  for (double& difference : large) difference *= -1000;
  EXPECT_EQ(wilcoxon(large, options).p, small.p);

  // One sign turned, and the floor is left.
  std::vector<double> one_turned = counting(100);
  one_turned[0] = -1;
  const TestResult turned = wilcoxon(one_turned, options);
  EXPECT_FALSE(turned.at_floor);
  EXPECT_GT(turned.p, small.p);
}

TEST(Wilcoxon, Ties_lower_the_floor_below_paper_000s_number) {
  // Paper 000's 3.3133542e-18 is smaller than the floor without ties: rounded readings tie, and ties shrink the variance.
  WilcoxonOptions options;
  options.method = Method::normal;
  const TestResult tied = wilcoxon(std::vector<double>(100, 2.0), options);
  EXPECT_LT(tied.p, 3.896e-18);
  EXPECT_TRUE(tied.at_floor);
  EXPECT_EQ(tied.p, tied.smallest_p);
}

TEST(Wilcoxon, Five_pairs_cannot_pass_five_percent_and_six_can) {
  const TestResult five = wilcoxon(counting(5));
  EXPECT_DOUBLE_EQ(five.p, 0.0625);
  EXPECT_TRUE(five.at_floor);
  EXPECT_DOUBLE_EQ(wilcoxon(counting(6)).p, 0.03125);
  EXPECT_EQ(wilcoxon_least_pairs(0.05), 6u);
  EXPECT_EQ(wilcoxon_least_pairs(0.05 / 6), 8u);
  EXPECT_EQ(wilcoxon_least_pairs(0.0625), 6u);  // below, not at
  for (int n = 1; n <= 50; ++n)
    EXPECT_DOUBLE_EQ(wilcoxon(counting(n)).p, wilcoxon_smallest_p(static_cast<size_t>(n)));
}

TEST(Wilcoxon, Pairs_that_do_not_differ_say_nothing) {
  const TestResult none = wilcoxon(std::vector<double>{0, 0, 0});
  EXPECT_EQ(none.p, 1);
  EXPECT_EQ(none.runs, 0u);
  EXPECT_FALSE(none.at_floor);
  const TestResult some = wilcoxon(std::vector<double>{0, 1, 2, 3, 0});
  EXPECT_EQ(some.runs, 3u);
  EXPECT_DOUBLE_EQ(some.p, 0.25);
}

TEST(Wilcoxon, Exact_and_normal_agree_where_runs_are_many) {
  Random random(5);
  std::vector<double> differences;
  for (int i = 0; i < 400; ++i) differences.push_back(random.uniform() - 0.47);
  WilcoxonOptions exact, normal;
  exact.method = Method::exact;
  normal.method = Method::normal;
  EXPECT_NEAR(wilcoxon(differences, exact).p / wilcoxon(differences, normal).p, 1, 0.02);
}

TEST(Wilcoxon, Turning_the_pair_round_turns_the_sides_round) {
  const std::vector<double> a = {1.2, 3.4, 2.2, 5.1, 4.0, 2.9, 3.3}, b = {1.0, 3.9, 2.0, 6.2, 4.4, 2.5, 3.4};
  WilcoxonOptions less, greater;
  less.alternative = Alternative::less;
  greater.alternative = Alternative::greater;
  EXPECT_DOUBLE_EQ(wilcoxon(a, b, less).p, wilcoxon(b, a, greater).p);
  EXPECT_DOUBLE_EQ(wilcoxon(a, b).p, wilcoxon(b, a).p);
}

TEST(MannWhitney, Knows_its_floor) {
  const std::vector<double> low = {1, 2, 3, 4}, high = {5, 6, 7, 8};
  const TestResult result = mann_whitney(low, high);
  EXPECT_DOUBLE_EQ(result.p, 2.0 / 70);
  EXPECT_TRUE(result.at_floor);
  EXPECT_DOUBLE_EQ(mann_whitney_smallest_p(4, 4), 2.0 / 70);
  EXPECT_DOUBLE_EQ(mann_whitney_smallest_p(3, 3), 0.1);  // three runs each cannot decide
  EXPECT_FALSE(mann_whitney(std::vector<double>{1, 2, 5}, std::vector<double>{3, 4, 6}).at_floor);
}

TEST(MannWhitney, Equal_values_give_p_1) {
  const std::vector<double> same(5, 2.0), more(100, 2.0);
  EXPECT_EQ(mann_whitney(same, same).p, 1);
  EXPECT_FALSE(mann_whitney(same, same).at_floor);
  EXPECT_EQ(mann_whitney(more, more).p, 1);
}

// Under the null hypothesis an exact p is below each level with at most that chance.
TEST(RankTests, Exact_p_values_keep_their_level) {
  Random random(11);
  int below = 0;
  constexpr int kStudies = 4000;
  for (int i = 0; i < kStudies; ++i) {
    std::vector<double> differences;
    for (int j = 0; j < 8; ++j) differences.push_back(random.uniform() - 0.5);
    below += wilcoxon(differences).p < 0.05;
  }
  const Bounds bounds = clopper_pearson(below, kStudies, 0.999);
  EXPECT_LE(bounds.low, 0.05);
  EXPECT_GE(bounds.high, 10.0 / 256);  // the level that eight pairs can really keep: 10 of 256 sign patterns
}

TEST(RankTests, Bad_samples_are_refused_in_words) {
  const std::vector<double> none, nan = {1, std::nan(""), 2}, two = {1, 2}, three = {1, 2, 3};
  EXPECT_NE(message_of<Error>([&] { wilcoxon(none); }).find("at least 1 values; got 0"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { wilcoxon(nan); }).find("must be finite; got nan at place 1"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] { wilcoxon(two, three); }).find("got 2 and 3 values"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { mann_whitney(none, two); }).find("mann_whitney"), std::string::npos);
  WilcoxonOptions exact;
  exact.method = Method::exact;
  EXPECT_NE(message_of<Error>([&] { wilcoxon(counting(1001), exact); }).find("up to 1000"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::lab::stats
