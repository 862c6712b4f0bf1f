// Effect sizes and the tests that the stored cases do not reach: coverage, degenerate samples, refusals.
#include "lab/src/stats/effect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/src/stats/correction.h"
#include "lab/src/stats/correlation.h"
#include "lab/src/stats/distributions.h"
#include "lab/src/stats/equivalence.h"
#include "lab/src/stats/normality.h"
#include "lab/src/stats/random.h"
#include "lab/src/stats/sample.h"
#include "lab/src/stats/spread.h"
#include "lab/src/stats/trend.h"
#include "tandem/core/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab::stats {
namespace {

using tandem::testing::message_of;

double normal_draw(Random& random) { return normal_quantile(random.uniform() + 0x1p-54); }

std::vector<double> draws(Random& random, size_t n, double centre, double spread) {
  std::vector<double> values;
  for (size_t i = 0; i < n; ++i) values.push_back(centre + spread * normal_draw(random));
  return values;
}

TEST(Bootstrap, The_same_seed_gives_the_same_interval_and_another_seed_another) {
  Random random(3);
  const auto values = draws(random, 12, 10, 1);
  BootstrapOptions one, two;
  two.seed = 2;
  const Interval a = median_interval(values, one), b = median_interval(values, one),
                 c = median_interval(values, two);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_NEAR(a.low, c.low, 0.5);
  EXPECT_LE(a.low, a.value);
  EXPECT_LE(a.value, a.high);
}

// Of 400 intervals of 95 %, so many must hold the truth that 90 % is not excluded: with ten runs a percentile interval
// of a median is known to be a little short.
TEST(Bootstrap, Intervals_cover_the_true_ratio) {
  Random random(17);
  int paired = 0, unpaired = 0, shift = 0;
  constexpr int kStudies = 400;
  BootstrapOptions options;
  options.resamples = 600;
  for (int i = 0; i < kStudies; ++i) {
    std::vector<double> first, second;
    for (int j = 0; j < 10; ++j) {
      const double block = 1 + 0.02 * normal_draw(random);
      first.push_back(block + 0.01 * normal_draw(random));
      second.push_back(1.3 * (block + 0.01 * normal_draw(random)));
    }
    options.seed = random.next();
    const Interval a = median_ratio_paired(first, second, options), b = median_ratio(first, second, options);
    paired += a.low <= 1.3 && 1.3 <= a.high;
    unpaired += b.low <= 1.3 && 1.3 <= b.high;
    const Interval h = hodges_lehmann_paired(first, second);
    shift += h.low <= 0.3 && 0.3 <= h.high;
    EXPECT_GE(h.coverage, 0.95);
  }
  EXPECT_GE(clopper_pearson(paired, kStudies).high, 0.90) << paired;
  EXPECT_GE(clopper_pearson(unpaired, kStudies).high, 0.90) << unpaired;
  EXPECT_GE(clopper_pearson(shift, kStudies).high, 0.95) << shift;
}

TEST(Bootstrap, Pairing_takes_out_what_both_share) {
  Random random(23);
  std::vector<double> first, second;
  for (int j = 0; j < 30; ++j) {
    const double block = std::exp(0.3 * normal_draw(random));
    first.push_back(block);
    second.push_back(1.1 * block);
  }
  const Interval paired = median_ratio_paired(first, second), loose = median_ratio(first, second);
  EXPECT_NEAR(paired.low, 1.1, 1e-12);
  EXPECT_NEAR(paired.high, 1.1, 1e-12);
  EXPECT_GT(loose.high - loose.low, 0.1);
}

// Of times and of the throughputs that belong to them the same is said, also where the middle lies between two runs.
TEST(Bootstrap, The_ratio_of_reciprocals_is_the_reciprocal_of_the_ratio) {
  Random random(29);
  for (const size_t n : {2, 7, 8, 12}) {
    const auto first = draws(random, n, 10, 2), second = draws(random, n, 13, 2);
    std::vector<double> first_rates, second_rates;
    for (const double value : first) first_rates.push_back(100 / value);
    for (const double value : second) second_rates.push_back(100 / value);
    for (const auto kind : {BootstrapOptions::Kind::percentile, BootstrapOptions::Kind::bca}) {
      BootstrapOptions options;
      options.kind = kind;
      for (const auto of : {median_ratio_paired, median_ratio}) {
        const Interval times = of(first, second, options), rates = of(first_rates, second_rates, options);
        EXPECT_NEAR(rates.value, 1 / times.value, 1e-12) << n;
        EXPECT_NEAR(rates.low, 1 / times.high, 1e-12) << n;
        EXPECT_NEAR(rates.high, 1 / times.low, 1e-12) << n;
      }
    }
  }
}

TEST(Bootstrap, A_ratio_to_zero_is_no_number) {
  const std::vector<double> zeros(5, 0.0), ones(5, 1.0), mixed = {0, 0, 1, 1, 1};
  EXPECT_TRUE(std::isnan(median_ratio(zeros, ones).value));
  EXPECT_EQ(median_ratio(ones, zeros).value, 0);
  const Interval partly = median_ratio_paired(mixed, ones);
  EXPECT_EQ(partly.value, 1);
  EXPECT_TRUE(std::isnan(partly.low));
}

TEST(Bootstrap, One_run_is_its_own_interval) {
  const std::vector<double> one = {3.5};
  const Interval interval = median_interval(one);
  EXPECT_EQ(interval.low, 3.5);
  EXPECT_EQ(interval.high, 3.5);
  BootstrapOptions options;
  options.kind = BootstrapOptions::Kind::bca;
  EXPECT_EQ(median_ratio(one, one, options).value, 1);
  options.resamples = 3;
  EXPECT_NE(message_of<Error>([&] { median_interval(one, options); }).find("resamples must lie"),
            std::string::npos);
}

TEST(HodgesLehmann, Says_how_much_it_covers_where_runs_are_few) {
  const std::vector<double> first = {1, 2, 3, 4, 5}, second = {2.1, 3.2, 4.3, 5.4, 6.5};
  const Interval interval = hodges_lehmann_paired(first, second);
  EXPECT_NEAR(interval.coverage, 0.9375, 1e-12);
  EXPECT_DOUBLE_EQ(interval.low, 2.1 - 1);
  EXPECT_DOUBLE_EQ(interval.high, 6.5 - 5);
  EXPECT_NEAR(interval.value, 1.3, 1e-12);
}

TEST(HodgesLehmann, Many_runs_need_no_list_of_differences) {
  Random random(29);
  const auto first = draws(random, 20000, 0, 1), second = draws(random, 20000, 0.25, 1);
  const Interval unpaired = hodges_lehmann(first, second), paired = hodges_lehmann_paired(first, second);
  EXPECT_NEAR(unpaired.value, 0.25, 0.05);
  EXPECT_NEAR(paired.value, 0.25, 0.06);
  EXPECT_LT(paired.low, paired.value);
  EXPECT_GT(paired.high, paired.value);
}

TEST(CliffsDelta, Runs_from_minus_one_to_one) {
  const std::vector<double> low = {1, 2}, high = {3, 4, 5};
  EXPECT_EQ(cliffs_delta(low, high), 1);
  EXPECT_EQ(cliffs_delta(high, low), -1);
  EXPECT_EQ(cliffs_delta(low, low), 0);
}

TEST(Tost, Tells_equality_from_ignorance) {
  Random random(31);
  const auto steady = draws(random, 12, 10, 0.02), same = draws(random, 12, 10, 0.02);
  const auto wild = draws(random, 12, 10, 3), wilder = draws(random, 12, 10, 3);
  EXPECT_LT(tost_ratio(steady, same, 0.02, true).test.p, 0.001);
  EXPECT_GT(tost_ratio(wild, wilder, 0.02, false).test.p, 0.05);
  const std::vector<double> ones(4, 1.0), twos(4, 2.0);
  EXPECT_EQ(tost_ratio(ones, ones, 0.02, true).test.p, 0);
  EXPECT_EQ(tost_ratio(ones, twos, 0.02, true).test.p, 1);
  EXPECT_NE(message_of<Error>([&] { tost_paired(ones, twos, 1, -1); }).find("low < high"), std::string::npos);
  const std::vector<double> zeros(4, 0.0);
  EXPECT_NE(message_of<Error>([&] { tost_ratio(ones, zeros, 0.1, true); }).find("positive"),
            std::string::npos);
}

TEST(Tost, Its_interval_lies_within_the_margins_exactly_where_p_is_below_the_level) {
  Random random(37);
  for (int i = 0; i < 200; ++i) {
    const auto a = draws(random, 8, 10, 0.3), b = draws(random, 8, 10, 0.3);
    const Equivalence result = tost_welch(a, b, -0.3, 0.3);
    EXPECT_EQ(result.test.p < 0.05, -0.3 < result.low && result.high < 0.3);
  }
}

TEST(Trend, Page_finds_a_slope_that_Friedman_sees_only_as_difference) {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 6; ++i) rows.push_back({1.0 + i, 2.0 + i, 3.0 + i, 4.0 + i});
  const TestResult rising = page(rows);
  EXPECT_TRUE(rising.at_floor);
  EXPECT_NEAR(rising.p / std::pow(24.0, -6), 1, 1e-9);
  EXPECT_NEAR(rising.smallest_p / rising.p, 1, 1e-9);
  EXPECT_TRUE(friedman(rows).at_floor);
  for (auto& row : rows) std::swap(row[0], row[3]), std::swap(row[1], row[2]);
  EXPECT_NEAR(page(rows).p, 1, 1e-12);
  EXPECT_LT(friedman(rows).p, 0.01);
  const std::vector<std::vector<double>> flat(4, {2, 2, 2});
  EXPECT_EQ(friedman(flat).p, 1);
  rows[1].pop_back();
  EXPECT_NE(message_of<Error>([&] { friedman(rows); }).find("blocks of 4 and 3"), std::string::npos);
}

TEST(Spread, Equal_samples_spread_equally) {
  const std::vector<std::vector<double>> same = {{1, 2, 3, 4}, {1, 2, 3, 4}};
  EXPECT_EQ(levene(same).p, 1);
  EXPECT_NEAR(fligner(same).p, 1, 1e-12);
  const std::vector<std::vector<double>> constant = {{1, 1, 1}, {2, 2, 2}};
  EXPECT_EQ(levene(constant).p, 1);
  EXPECT_EQ(fligner(constant).p, 1);
}

TEST(Normality, Constant_or_short_samples_are_refused_in_words) {
  EXPECT_NE(message_of<Error>([] { lilliefors(std::vector<double>(6, 1.0)); }).find("not all be equal"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([] {
              lilliefors(std::vector<double>{1, 2, 3});
            }).find("at least 5"),
            std::string::npos);
}

// Paper 000 tested seconds and degrees against a standard normal: any temperature fails that, a perfectly normal one too.
TEST(Normality, Paper_000s_test_refuses_every_temperature_and_Lilliefors_does_not) {
  std::vector<double> degrees;
  for (int i = 1; i <= 100; ++i) degrees.push_back(60 + 2 * normal_quantile((i - 0.5) / 100));
  EXPECT_LT(kolmogorov_smirnov_normal(degrees).p, 1e-10);
  EXPECT_GT(lilliefors(degrees).p, 0.5);
  Random random(41);
  std::vector<double> skewed;
  for (int i = 0; i < 100; ++i) skewed.push_back(-std::log(1 - random.uniform()));
  EXPECT_LT(lilliefors(skewed).p, 0.001);
}

TEST(Correlation, A_constant_correlates_with_nothing) {
  const std::vector<double> x = {1, 2, 3}, constant = {2, 2, 2};
  EXPECT_NE(message_of<Error>([&] { pearson(x, constant); }).find("must vary"), std::string::npos);
  EXPECT_EQ(spearman(x, x).statistic, 1);
  EXPECT_EQ(spearman(x, x).p, 0);
}

TEST(Holm, Corrects_in_order_and_never_above_one) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.9};
  const std::vector<double> expected = {0.04, 0.09, 0.09, 0.9};
  const auto adjusted = holm(p);
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15);
  EXPECT_TRUE(holm(std::vector<double>{}).empty());
  EXPECT_EQ(holm(std::vector<double>{0.9, 0.8})[0], 1);
  EXPECT_NE(message_of<Error>([] { holm(std::vector<double>{2.0}); }).find("between 0 and 1; got 2"),
            std::string::npos);
}

TEST(Distributions, Quantiles_undo_their_distributions) {
  for (const double p : {1e-200, 1e-20, 1e-5, 0.01, 0.3, 0.5}) {
    EXPECT_NEAR(normal_cdf(normal_quantile(p)) / p, 1, 1e-12);
    for (const double df : {1.0, 3.5, 60.0}) {
      if (p > 1e-100) {
        EXPECT_NEAR(t_sf(t_upper_quantile(p, df), df) / p, 1, 1e-12);
      }
    }
  }
  EXPECT_EQ(normal_quantile(0), -std::numeric_limits<double>::infinity());
  EXPECT_NE(message_of<Error>([] { normal_quantile(1.5); }).find("got 1.5"), std::string::npos);
  EXPECT_NE(message_of<Error>([] { t_sf(1, 0); }).find("degrees of freedom"), std::string::npos);
}

}  // namespace
}  // namespace tandem::lab::stats
