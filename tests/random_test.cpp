// Do the random ops have the distributions that they claim? Fixed seeds; limits that a right one passes with odds of
// about a million to one. Their exact values are op cases (op_cases/random.cpp).
#include "tandem/ops/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/graph/compile.h"
#include "tandem/nn/dropout.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr int64_t kDraws = 100000;

/// Kolmogorov and Smirnov's statistic, times sqrt(n): above 2.7 once in a million.
double distance(std::vector<double> draws, const std::function<double(double)>& distribution) {
  std::sort(draws.begin(), draws.end());
  double most = 0;
  const double n = static_cast<double>(draws.size());
  for (size_t i = 0; i < draws.size(); ++i) {
    const double f = distribution(draws[i]);
    most = std::max(
        {most, std::abs(f - static_cast<double>(i) / n), std::abs(static_cast<double>(i + 1) / n - f)});
  }
  return most * std::sqrt(n);
}

/// Chi-square over its degrees of freedom, as a number of standard deviations.
double chi_square(const std::vector<double>& found, const std::vector<double>& expected) {
  double total = 0, freedom = -1;
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(found[i], 0);
      continue;
    }
    total += (found[i] - expected[i]) * (found[i] - expected[i]) / expected[i];
    ++freedom;
  }
  return (total - freedom) / std::sqrt(2 * freedom);
}

std::vector<double> drawn(const Tensor& x) { return to_array(x).values; }

void check_moments(const std::vector<double>& x, double mean, double variance, double fourth) {
  const double n = static_cast<double>(x.size());
  double sum = 0, squares = 0;
  for (const double v : x) sum += v;
  for (const double v : x) squares += (v - sum / n) * (v - sum / n);
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 5 * std::sqrt((fourth - variance * variance) / n));
}

TEST(Distributions, UniformNormalAndExponential) {
  manual_seed(1);
  const std::vector<double> flat = drawn(uniform({kDraws}, -1, 3));
  check_moments(flat, 1, 16. / 12, 256. / 80);
  EXPECT_LT(distance(flat, [](double x) { return (x + 1) / 4; }), 2.7);
  const std::vector<double> bell = drawn(normal({kDraws}, 2, 0.5));
  check_moments(bell, 2, 0.25, 3 * 0.0625);
  EXPECT_LT(distance(bell, [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::sqrt(2.)); }), 2.7);
  const std::vector<double> waits = drawn(exponential({kDraws}, 4));
  check_moments(waits, 0.25, 1 / 16., 9 / 256.);
  EXPECT_LT(distance(waits, [](double x) { return -std::expm1(-4 * x); }), 2.7);
  EXPECT_GE(*std::min_element(waits.begin(), waits.end()), 0);
}

TEST(Distributions, RandintIsEvenAndKeepsItsBounds) {
  manual_seed(2);
  std::vector<double> counts(7), even(7, kDraws / 7.);
  for (const double v : drawn(randint(-3, 4, {kDraws}))) counts.at(static_cast<size_t>(v + 3)) += 1;
  EXPECT_LT(chi_square(counts, even), 6);
  const Tensor wide = randint(INT64_MIN, INT64_MAX, {1000});
  EXPECT_NEAR(mean(cast(wide, DType::f64)).item<double>() / 0x1p63, 0, 5 / std::sqrt(3000.));
  const std::vector<int64_t> big = randint(INT64_MAX - 2, INT64_MAX, {100}).to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(big.begin(), big.end()), (std::set<int64_t>{INT64_MAX - 2, INT64_MAX - 1}));
  EXPECT_EQ(randint(5, 6, {3}, DType::u8).to_vector<uint8_t>(), (std::vector<uint8_t>{5, 5, 5}));
}

TEST(Distributions, RandpermHoldsEveryNumberOnceAndEveryOrderComesAsOften) {
  manual_seed(3);
  std::vector<int64_t> order = randperm(20000).to_vector<int64_t>();
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 20000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  std::vector<double> counts(64);
  for (int i = 0; i < 12000; ++i) {
    const std::vector<int64_t> p = randperm(4).to_vector<int64_t>();
    counts[static_cast<size_t>(p[0] * 16 + p[1] * 4 + p[2])] += 1;
  }
  std::vector<double> expected(64);
  for (size_t i = 0; i < 64; ++i)
    if (i / 16 != i / 4 % 4 && i / 16 != i % 4 && i / 4 % 4 != i % 4) expected[i] = 500;
  EXPECT_LT(chi_square(counts, expected), 6);
}

TEST(Distributions, MultinomialFollowsTheWeights) {
  manual_seed(4);
  const Tensor weights = from_vector<float>({1, 0, 3, 4, 2, 0, 0, 5, 5, 0}, {2, 5});
  const Array with = to_array(multinomial(weights, kDraws, true));
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<double> counts(5), expected(5);
    for (int64_t i = 0; i < kDraws; ++i) counts.at(static_cast<size_t>(with[row * kDraws + i])) += 1;
    for (size_t i = 0; i < 5; ++i)
      expected[i] = kDraws / 10. * weights.to_vector<float>()[static_cast<size_t>(row) * 5 + i];
    EXPECT_LT(chi_square(counts, expected), 6) << row;
  }
  // Without replacement: the first draw by the weights, the second by those that are left.
  const Tensor many = expand(from_vector<double>({1, 2, 3}, {1, 3}), {30000, 3});
  const Array pairs = to_array(multinomial(many, 2));
  std::vector<double> counts(9), expected(9);
  for (int64_t i = 0; i < 30000; ++i)
    counts.at(static_cast<size_t>(3 * pairs[2 * i] + pairs[2 * i + 1])) += 1;
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b)
      if (a != b) expected[static_cast<size_t>(3 * a + b)] = 30000 * (a + 1) / 6. * (b + 1) / (5. - a);
  EXPECT_LT(chi_square(counts, expected), 6);
}

TEST(Distributions, AGraphTakesItsDrawsFromTheStreamAsEagerCallsDo) {
  Compiled draws = compile([](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{randperm(50), randint(0, 9, {7}), multinomial(in[0], 5, true),
                               multinomial(in[0], 3)};
  });
  const Tensor weights = from_vector<float>({1, 2, 3, 4}, {4});
  for (int call = 0; call < 3; ++call) {
    const GeneratorState state = generator_state();
    const Tensor order = randperm(50), dice = randint(0, 9, {7}), with = multinomial(weights, 5, true),
                 without = multinomial(weights, 3);
    set_generator_state(state);
    const std::vector<Tensor> got = draws({weights});
    EXPECT_TRUE(same_bits(got[0], order));
    EXPECT_TRUE(same_bits(got[1], dice));
    EXPECT_TRUE(same_bits(got[2], with));
    EXPECT_TRUE(same_bits(got[3], without));
  }
}

TEST(ChannelDropout, DropsWholeChannelsWhileTrainingOnly) {
  manual_seed(5);
  struct Net : nn::Module {
    nn::Dropout1d one{this, "one", 0.3};
    nn::Dropout2d two{this, "two", 0.3};
    nn::Dropout3d three{this, "three", 0.3};
    nn::AlphaDropout alpha{this, "alpha", 0.3};
    Tensor forward(const Tensor& x) override { return x; }
  } net;
  for (nn::Module* layer : {static_cast<nn::Module*>(&net.one), static_cast<nn::Module*>(&net.two),
                            static_cast<nn::Module*>(&net.three)}) {
    const int axes = layer == &net.one ? 1 : layer == &net.two ? 2 : 3;
    Dims shape{200, 50};
    for (int i = 0; i < axes; ++i) shape.push_back(2);
    const Tensor y = reshape(layer->forward(ones(shape)), {10000, -1});
    EXPECT_EQ(max(max(y, {1}) - min(y, {1})).item<float>(), 0);
    EXPECT_NEAR(mean(y).item<double>(), 1, 5 * std::sqrt(0.3 / 0.7 / 10000));
  }
  const Tensor x = normal({kDraws});
  check_moments(drawn(net.alpha(x)), 0, 1, 4);
  net.eval();
  EXPECT_TRUE(net.one(ones({2, 2, 2})).defined());
  const Tensor same = ones({2, 2, 2});
  EXPECT_TRUE(net.one(same).same(same));
  EXPECT_NE(error_of([&] { nn::Dropout2d(&net, "bad", 1.5); }).find("Dropout2d bad: "), std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
