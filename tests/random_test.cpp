// Do the random ops have the distributions that they claim? Fixed seeds; limits that a right one passes with odds of
// about a million to one. Their exact values are op cases (op_cases/random.cpp).
#include "tandem/ops/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

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

TEST(Distributions, UniformNeverReachesItsUpperBound) {
  manual_seed(11);
  const struct {
    double low, high;
  } ranges[] = {{0, 1}, {-1, 1}, {1000, 1001}, {-0.5, -0.25}, {0.1, 0.7}, {-3, 0}, {0, 1e-7}, {2, 2.001}};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const auto& range : ranges) {
      const auto draw = [&](const std::vector<Tensor>&) {
        return std::vector<Tensor>{uniform({200000}, range.low, range.high, dtype)};
      };
      const GeneratorState here = generator_state();
      const Tensor x = draw({})[0];
      set_generator_state(here);
      Compiled compiled = compile(draw);
      EXPECT_TRUE(same_bits(compiled({})[0], x)) << dtype;
      const std::vector<double> values = drawn(x);
      EXPECT_LT(*std::max_element(values.begin(), values.end()), range.high)
          << dtype << " below " << range.high;
      EXPECT_GE(*std::min_element(values.begin(), values.end()), range.low) << dtype << " from " << range.low;
    }
  EXPECT_EQ(drawn(uniform({3}, 2, 2)), std::vector<double>({2, 2, 2}));
}

TEST(Distributions, TheLargestWordGivesTheLastNumberBelowTheBound) {
  for (const auto& [dtype, last] : {std::pair{DType::f16, 1 - 0x1p-11},
                                    {DType::bf16, 1 - 0x1p-8},
                                    {DType::f32, 1 - 0x1p-24},
                                    {DType::f64, 1 - 0x1p-53}}) {
    const UniformDraw draw = uniform_draw(0, 1, dtype);
    EXPECT_EQ(draw.last, last) << dtype;
    EXPECT_EQ(draw.kept(1.f), static_cast<float>(last)) << dtype;
  }
  EXPECT_EQ(uniform_draw(-1, 0, DType::f32).last,
            -static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(uniform_draw(0.1, 1, DType::f16).first, 0.10003662109375);  // 0.1 itself rounds down
}

TEST(Distributions, OfF64CarryFiftyThreeBits) {
  manual_seed(12);
  int64_t finer = 0;
  for (const double u : drawn(uniform({1000}, 0, 1, DType::f64)))
    finer += std::ldexp(u, 24) != std::floor(std::ldexp(u, 24));
  EXPECT_GT(finer, 990);
  const std::vector<double> flat = drawn(uniform({kDraws}, 0, 1, DType::f64));
  check_moments(flat, 0.5, 1. / 12, 1. / 80);
  const std::vector<double> bell = drawn(normal({kDraws}, 2, 0.5, DType::f64));
  check_moments(bell, 2, 0.25, 3 * 0.0625);
  EXPECT_LT(distance(bell, [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::sqrt(2.)); }), 2.7);
  const std::vector<double> waits = drawn(exponential({kDraws}, 4, DType::f64));
  check_moments(waits, 0.25, 1 / 16., 9 / 256.);
  for (const DType dtype : {DType::f32, DType::f64})  // an exponential number is never -0
    EXPECT_FALSE(std::signbit(exponential({1}, 1, dtype).item<double>()));
}

TEST(Distributions, BernoulliFiresAsOftenAsItsProbabilitySaysHoweverSmall) {
  // In integers: of all 64-bit words the part p lies below the limit.
  for (const double p : {0.5, 0.3, 1e-3, 1e-9, 0x1p-40, 3e-17}) {
    const ChanceDraw chance(p);
    const double limit = static_cast<double>(uint64_t{chance.upper} << 32 | chance.lower);
    EXPECT_NEAR(limit * 0x1p-64 / p, 1, 0x1p-52 + 0x1p-64 / p) << p;
    EXPECT_TRUE(chance.upper == 0 || chance.fires(chance.upper - 1));
    EXPECT_FALSE(chance.fires(chance.upper, chance.lower));
    EXPECT_TRUE(chance.lower == 0 || chance.fires(chance.upper, chance.lower - 1));
    EXPECT_FALSE(chance.fires(chance.upper + 1, 0));
  }
  EXPECT_TRUE(ChanceDraw(1).fires(0xffffffffu, 0xffffffffu));
  EXPECT_FALSE(ChanceDraw(0).fires(0, 0));
  // And drawn: 2^25 words at 2^-22 (8 expected; with 24 bits, and p rounded up to them, it would be no different) and at
  // 1e-9, where 24 bits fire twice and 64 bits hardly ever.
  manual_seed(13);
  double rare = 0, rarer = 0;
  for (int i = 0; i < 8; ++i) {
    rare += sum(bernoulli({1 << 22}, 0x1p-22)).item<double>();
    rarer += sum(bernoulli({1 << 22}, 1e-9)).item<double>();
  }
  EXPECT_GE(rare, 1);
  EXPECT_LE(rare, 25);
  EXPECT_EQ(rarer, 0);
}

TEST(Streams, OfThreadsThatWereNotSeededDiffer) {
  std::vector<std::vector<float>> draws(5);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      draws[i] = uniform({8}).to_vector<float>();
      manual_seed(5);
      if (i == 3) draws[4] = uniform({8}).to_vector<float>();
    });
  for (std::thread& t : threads) t.join();
  std::set<std::vector<float>> different(draws.begin(), draws.end());
  EXPECT_EQ(different.size(), 5u);
  manual_seed(5);
  EXPECT_EQ(uniform({8}).to_vector<float>(), draws[4]);  // seeded, a thread has the numbers of any other
  manual_seed(0);
  EXPECT_EQ(different.count(uniform({8}).to_vector<float>()), 0u);
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
