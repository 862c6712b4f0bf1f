// Distributions: densities, entropies and divergences of torch.distributions (golden/make_distributions.py); samples by their
// moments, by Kolmogorov and Smirnov's distance and by chi-square, with fixed seeds; both engines; refusals.
// ctest: asan
#include "tandem/nn/distributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

using namespace distributions;
using List = std::vector<Tensor>;

Tensor values(const Dims& shape, uint32_t salt, double low, double high, DType dtype) {
  return to_tensor(hash_array(shape, salt, low, high), dtype);
}
Tensor number(double value, DType dtype = DType::f64) { return full({}, value, dtype); }

/// Every part of one case, by the names of the script.
std::map<std::string, Tensor> parts_of(const auto& p, const auto& other, const Tensor& value,
                                       const List& parameters) {
  std::map<std::string, Tensor> out;
  out["log_prob"] = p.log_prob(value);
  const List gradients = grad(sum(out["log_prob"]), parameters);
  for (size_t i = 0; i < gradients.size(); ++i) out[str("gradient", i)] = gradients[i];
  if constexpr (requires { p.entropy(); }) out["entropy"] = p.entropy();
  out["kl"] = kl(p, other);
  if constexpr (requires { p.variance(); }) {
    out["mean"] = p.mean();
    out["variance"] = p.variance();
  }
  for (auto& [name, tensor] : out) tensor = tensor.detach();
  return out;
}

/// The cases of the script.
std::map<std::string, std::map<std::string, Tensor>> all_cases(DType dtype) {
  const auto leaf = [&](const Dims& shape, uint32_t salt, double low, double high) {
    return values(shape, salt, low, high, dtype).set_requires_grad();
  };
  const auto share = [&](uint32_t salt) { return values({3}, salt, 0.05, 0.95, dtype); };
  const Tensor x = values({4, 3}, 1, -1, 1, dtype);
  const Tensor counts = floor(values({4, 3}, 1, 0, 2, dtype)), classes = values({4, 3}, 1, 0, 5, DType::i64);
  std::map<std::string, std::map<std::string, Tensor>> out;
  {
    const Tensor a = leaf({3}, 2, -1, 1), b = leaf({4, 1}, 3, 0.5, 2);
    out["normal"] = parts_of(Normal(a, b), Normal(share(5), share(6) + 0.5), x, {a, b});
  }
  {
    const Tensor a = leaf({3}, 2, -1.5, -0.5), b = leaf({4, 1}, 3, 0, 0.4);
    out["uniform"] = parts_of(Uniform(a, b), Uniform(share(5) - 2.0, share(6)), clamp(x, -0.4, -0.1), {a, b});
  }
  {
    const Tensor a = leaf({3}, 2, 0.5, 2);
    out["exponential"] = parts_of(Exponential(a), Exponential(share(5) + 1.0), abs(x), {a});
  }
  {
    const Tensor a = leaf({3}, 2, 0.1, 0.9);
    out["bernoulli"] = parts_of(Bernoulli(a), Bernoulli(share(5)), counts, {a});
  }
  {
    const Tensor a = leaf({3}, 2, -3, 3);
    out["bernoulli_logits"] =
        parts_of(Bernoulli::from_logits(a), Bernoulli::from_logits(share(5) * 4.0), counts, {a});
  }
  {
    const Tensor a = leaf({3, 5}, 2, 0.1, 2);
    out["categorical"] =
        parts_of(Categorical(a), Categorical(values({3, 5}, 5, 0.1, 1, dtype)), classes, {a});
  }
  {
    const Tensor a = leaf({3, 5}, 2, -2, 2);
    out["categorical_logits"] = parts_of(
        Categorical::from_logits(a), Categorical::from_logits(values({3, 5}, 5, -2, 2, dtype)), classes, {a});
  }
  {
    const Tensor a = leaf({3}, 2, 0.3, 4), b = leaf({4, 1}, 3, 0.5, 2);
    out["gamma"] = parts_of(Gamma(a, b), Gamma(share(5) * 3, share(6) + 1), abs(x) * 3, {a, b});
  }
  {
    const Tensor a = leaf({3}, 2, 0.3, 4), b = leaf({4, 1}, 3, 0.5, 2);
    out["beta"] = parts_of(Beta(a, b), Beta(share(5) * 3, share(6) + 1), abs(x) * 0.9 + 0.05, {a, b});
  }
  {
    const Tensor a = leaf({3}, 2, 0.3, 9);
    out["poisson"] = parts_of(Poisson(a), Poisson(share(5) * 5), floor(values({4, 3}, 1, 0, 12, dtype)), {a});
  }
  return out;
}

TEST(ProbabilityDistributions, DensitiesEntropiesAndDivergencesMatchPyTorch) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    auto got = all_cases(dtype);
    size_t rows = 0;
    for (const std::string& line : golden_lines("distributions.txt")) {
      std::istringstream in(line);
      std::string name, part;
      in >> name >> part;
      ASSERT_TRUE(got[name].contains(part)) << name << ' ' << part;
      EXPECT_TRUE(near(to_array(got[name][part]), read_array(in), dtype == DType::f64 ? 1e-9 : 1e-5))
          << name << ' ' << part << ' ' << dtype;
      ++rows;
    }
    size_t parts = 0;
    for (const auto& [name, list] : got) parts += list.size();
    EXPECT_EQ(rows, parts);
  }
}

TEST(ProbabilityDistributions, GiveTheSameBitsInBothEnginesSamplesToo) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const auto all = [dtype](const List& in) {
      const Tensor a = in[0], b = in[1], positive = exp(a) + 0.25, inside = sigmoid(a);
      const Normal normal(a, positive);
      const Uniform uniform(a, a + positive);
      const Exponential exponential(positive);
      const Bernoulli bernoulli(inside), by_logits = Bernoulli::from_logits(a);
      const Categorical categorical(positive), logits = Categorical::from_logits(b);
      const List samples = {normal.sample({5}),
                            normal.rsample(),
                            uniform.sample({2}),
                            exponential.sample({2}),
                            bernoulli.sample({2}),
                            by_logits.sample({4}),
                            categorical.sample({4}),
                            logits.sample({2, 2}),
                            Gamma(positive, positive).sample({3}),
                            Beta(positive, positive).sample({3}),
                            Poisson(positive, {.max_rate = 8}).sample({3})};
      List out = samples;
      const Tensor moving = a.detach().set_requires_grad(), above = exp(moving) + 0.25;
      out.push_back(
          grad(sum(Gamma(above, above).rsample({2})) + sum(Beta(above, above).rsample({2})), {moving})[0]);
      out.insert(out.end(), {normal.log_prob(samples[0]),
                             uniform.log_prob(samples[2]),
                             exponential.log_prob(samples[3]),
                             bernoulli.log_prob(samples[4]),
                             by_logits.log_prob(samples[5]),
                             categorical.log_prob(samples[6]),
                             logits.log_prob(samples[7]),
                             normal.entropy(),
                             categorical.entropy(),
                             by_logits.entropy(),
                             kl(normal, Normal(b, positive)),
                             kl(bernoulli, by_logits),
                             kl(categorical, logits),
                             kl(uniform, Uniform(a - 1.0, a + positive)),
                             Gamma(positive, inside).log_prob(samples[8]),
                             Beta(positive, inside).log_prob(samples[9]),
                             Poisson(positive, {.max_rate = 8}).log_prob(samples[10]),
                             Gamma(positive, inside).entropy(),
                             Beta(positive, inside).entropy(),
                             kl(Beta(positive, inside), Beta(inside, positive))});
      return out;
    };
    Compiled compiled = compile(all);
    const List in = {values({2, 3}, 1, -1, 1, dtype), values({2, 3}, 2, -1, 1, dtype)};
    for (int call = 0; call < 2; ++call) {
      manual_seed(static_cast<uint64_t>(3 + call));
      const List eager = all(in);
      manual_seed(static_cast<uint64_t>(3 + call));
      const List graph = compiled(in);
      ASSERT_EQ(eager.size(), graph.size());
      for (size_t i = 0; i < eager.size(); ++i)
        EXPECT_TRUE(same_bits(eager[i], graph[i])) << i << ' ' << dtype;
    }
    EXPECT_EQ(compiled.reports().size(), 1u);
  }
}

TEST(ProbabilityDistributions, HaveDensitiesAtTheEndsOfTheirRangeAndNoneBeyond) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto at = [](const Tensor& density) { return density.item<double>(); };
  const Tensor one = number(1), two = number(2), zero = number(0), below = number(-0.5);
  EXPECT_EQ(at(Gamma(one, two).log_prob(zero)), std::log(2.));
  EXPECT_EQ(at(Gamma(two, two).log_prob(zero)), -inf);
  EXPECT_EQ(at(Gamma(two, two).log_prob(below)), -inf);
  EXPECT_EQ(at(Beta(one, one).log_prob(zero)), 0);
  EXPECT_EQ(at(Beta(one, two).log_prob(one)), -inf);
  EXPECT_EQ(at(Beta(two, two).log_prob(number(1.5))), -inf);
  EXPECT_EQ(at(Poisson(zero).log_prob(zero)), 0);
  EXPECT_EQ(at(Poisson(two).log_prob(number(0.5))), -inf);
  EXPECT_EQ(at(Poisson(two).log_prob(number(-1))), -inf);
  EXPECT_EQ(at(kl(Poisson(zero), Poisson(two))), 2);
  EXPECT_EQ(at(kl(Poisson(two), Poisson(zero))), inf);
}

TEST(ProbabilityDistributions, DrawAsManyNumbersWhateverTheParametersAre) {
  const auto place_after = [](double parameter) {
    manual_seed(5);
    const Tensor p = full({7}, parameter);
    Gamma(p, p).sample({3});
    Beta(p, p).sample({3});
    Poisson(p).sample({3});
    return generator_state().offset;
  };
  EXPECT_EQ(place_after(0.01), place_after(50));
  EXPECT_EQ(place_after(1), place_after(50));
}

// --- samples

constexpr int64_t kDraws = 40000;

/// The mean is within five of its deviations; so is the variance, of which a kurtosis is given.
void expect_moments(const Tensor& samples, double mean, double variance, double excess_kurtosis) {
  const std::vector<double> x = to_array(samples).values;
  const auto n = static_cast<double>(x.size());
  double sum = 0, squares = 0;
  for (const double v : x) sum += v;
  for (const double v : x) squares += (v - mean) * (v - mean);
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 5 * variance * std::sqrt((excess_kurtosis + 2) / n));
}

/// The largest distance between the samples' distribution function and the right one: above 1.95 / √n once in a thousand
/// seeds.
void expect_distribution(const Tensor& samples, const std::function<double(double)>& below) {
  std::vector<double> x = to_array(samples).values;
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double distance = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double f = below(x[i]);
    distance = std::max({distance, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(n));
}

/// Chi-square of counts against probabilities, of which those that expect fewer than 5 are put together. Five deviations above
/// its mean is rare.
void expect_counts(const Tensor& samples, const std::function<double(int64_t)>& chance) {
  std::map<int64_t, double> seen;
  for (const double v : to_array(samples).values) {
    EXPECT_EQ(v, std::floor(v));
    ++seen[static_cast<int64_t>(v)];
  }
  const auto n = static_cast<double>(samples.size());
  double chi = 0, rest_seen = n, rest_chance = 1;
  int cells = 0;
  for (int64_t k = 0; k < 1000; ++k) {
    const double expected = n * chance(k);
    if (expected < 5) continue;
    const double difference = seen[k] - expected;
    chi += difference * difference / expected;
    rest_seen -= seen[k];
    rest_chance -= chance(k);
    ++cells;
  }
  if (n * rest_chance >= 1) {
    chi += (rest_seen - n * rest_chance) * (rest_seen - n * rest_chance) / (n * rest_chance);
    ++cells;
  } else {
    EXPECT_LE(rest_seen, 8);
  }
  const double freedom = cells - 1;
  EXPECT_LT(chi, freedom + 5 * std::sqrt(2 * freedom) + 5);
}

/// The regularised incomplete gamma function by its series.
double gamma_below(double a, double x) {
  if (x <= 0) return 0;
  double term = 1 / a, sum = term;
  for (int i = 1; i < 2000 && term > sum * 1e-17; ++i) sum += term *= x / (a + i);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

TEST(ProbabilityDistributions, SamplesOfNormalUniformAndExponentialHaveTheirDistribution) {
  manual_seed(11);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor n = Normal(number(2, dtype), number(3, dtype)).sample({kDraws});
    expect_moments(n, 2, 9, 0);
    expect_distribution(n, [](double x) { return 0.5 * std::erfc(-(x - 2) / (3 * std::sqrt(2.0))); });
    const Tensor u = Uniform(number(-1, dtype), number(3, dtype)).sample({kDraws});
    expect_moments(u, 1, 16.0 / 12, -1.2);
    expect_distribution(u, [](double x) { return (x + 1) / 4; });
    const Tensor e = Exponential(number(4, dtype)).sample({kDraws});
    expect_moments(e, 0.25, 0.0625, 6);
    expect_distribution(e, [](double x) { return 1 - std::exp(-4 * x); });
  }
}

TEST(ProbabilityDistributions, SamplesOfGammaAndBetaHaveTheirDistribution) {
  manual_seed(12);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double a : {0.3, 0.9, 1.0, 1.7, 5.0, 60.0}) {
      SCOPED_TRACE(str(a, " in ", dtype));
      const Gamma gamma(number(a, dtype), number(2, dtype));
      const Tensor g = gamma.sample({kDraws});
      expect_moments(g, a / 2, a / 4, 6 / a);
      expect_distribution(g, [&](double x) { return gamma_below(a, 2 * x); });
      EXPECT_NEAR(gamma.mean().item<double>(), a / 2, 1e-5);
      EXPECT_NEAR(gamma.variance().item<double>(), a / 4, 1e-5);
    }
  // I_x(2, 3) and I_x(1/2, 1/2) have closed forms.
  expect_distribution(Beta(number(2), number(3)).sample({kDraws}),
                      [](double x) { return x * x * (6 - 8 * x + 3 * x * x); });
  expect_distribution(Beta(number(0.5), number(0.5)).sample({kDraws}),
                      [](double x) { return 2 / M_PI * std::asin(std::sqrt(x)); });
  const Beta beta(number(2), number(3));
  expect_moments(beta.sample({kDraws}), 0.4, 0.04, -0.64);
  EXPECT_NEAR(beta.mean().item<double>(), 0.4, 1e-12);
  EXPECT_NEAR(beta.variance().item<double>(), 0.04, 1e-12);
}

TEST(ProbabilityDistributions, SamplesOfCountsAndClassesHaveTheirProbabilities) {
  manual_seed(13);
  for (const double rate : {0.0, 0.2, 3.5, 20.0, 64.0}) {
    SCOPED_TRACE(rate);
    const Tensor counts = Poisson(number(rate, DType::f32)).sample({kDraws});
    EXPECT_EQ(counts.dtype(), DType::f32);
    if (rate > 0) expect_moments(counts, rate, rate, 1 / rate);
    expect_counts(counts, [&](int64_t k) {
      return rate == 0 ? static_cast<double>(k == 0)
                       : std::exp(static_cast<double>(k) * std::log(rate) - rate -
                                  std::lgamma(static_cast<double>(k) + 1));
    });
  }
  expect_moments(Poisson(number(650), {.max_rate = 700}).sample({4000}), 650, 650, 1.0 / 650);
  for (const double p : {0.0, 0.03, 0.5, 1.0}) {
    const Tensor drawn = Bernoulli(number(p)).sample({kDraws});
    expect_counts(drawn, [&](int64_t k) { return k == 0 ? 1 - p : k == 1 ? p : 0; });
  }
  const std::vector<double> shares = {0.1, 0.0, 0.6, 0.3};
  const Tensor drawn =
      Categorical(from_vector<double>(shares, {4}) * 7.0).sample({kDraws});  // need not add up to 1
  EXPECT_EQ(drawn.dtype(), DType::i64);
  expect_counts(drawn, [&](int64_t k) { return k < 4 ? shares[static_cast<size_t>(k)] : 0; });
}

TEST(ProbabilityDistributions, SamplesHaveTheShapeAskedForBeforeThatOfTheParameters) {
  manual_seed(14);
  const Tensor a = ones({2, 1}), b = ones({3});
  EXPECT_EQ(Normal(a, b).sample().shape(), (Dims{2, 3}));
  EXPECT_EQ(Normal(a, b).sample({4}).shape(), (Dims{4, 2, 3}));
  EXPECT_EQ(Gamma(a, b).sample({4}).shape(), (Dims{4, 2, 3}));
  EXPECT_EQ(Categorical(ones({2, 3, 5})).sample({4, 6}).shape(), (Dims{4, 6, 2, 3}));
  EXPECT_EQ(Categorical(ones({5})).sample().shape(), (Dims{}));
  EXPECT_EQ(Categorical(ones({2, 5})).sample({0}).shape(), (Dims{0, 2}));
  // Each row of parameters has its own draws.
  const Tensor rows = Categorical(from_vector<float>({1, 0, 0, 1}, {2, 2})).sample({3});
  EXPECT_TRUE(same_bits(rows, from_vector<int64_t>({0, 1, 0, 1, 0, 1}, {3, 2})));
}

TEST(ProbabilityDistributions, GradientsReachTheParametersThroughRsampleAlone) {
  Tensor mean = full({2}, 1).set_requires_grad(), deviation = full({2}, 3).set_requires_grad();
  const Normal normal(mean, deviation);
  EXPECT_FALSE(normal.sample({5}).requires_grad());
  manual_seed(1);
  const Tensor z = normal.rsample({5});
  const List gradients = grad(sum(z), List{mean, deviation});
  EXPECT_TRUE(same_bits(gradients[0], full({2}, 5)));
  EXPECT_TRUE(near(to_array(gradients[1]), to_array(sum((z.detach() - 1.0) / 3.0, {0})), 1e-5));
  Tensor rate = full({}, 2, DType::f64).set_requires_grad();
  const Tensor e = Exponential(rate).rsample({100});
  EXPECT_NEAR(grad(sum(e), List{rate})[0].item<double>(), -sum(e).item<double>() / 2, 1e-9);
  Tensor low = full({}, 0, DType::f64).set_requires_grad();
  EXPECT_TRUE(Uniform(low, number(1)).rsample().requires_grad());
}

TEST(ProbabilityDistributions, BetaOfSmallConcentrationsLiesAtTheEndsAndHasADensityThere) {
  manual_seed(7);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Beta beta(number(0.01, dtype), number(0.01, dtype));
    const Tensor x = beta.sample({20000}), wide = cast(x, DType::f64);
    EXPECT_LT(mean(cast(equal(x, 0.5), DType::f64)).item<double>(), 0.002) << name(dtype);
    EXPECT_NEAR(mean(square(wide - 0.5)).item<double>(), 0.25 / 1.02, 0.003) << name(dtype);
    EXPECT_TRUE(all(isfinite(beta.log_prob(x))).item<bool>()) << name(dtype);
  }
}

// The mean of a sample's derivative is the derivative of the mean: d/da E[x] = 1, d/da E[x²] = 2a + 1 for rate 1.
TEST(ProbabilityDistributions, GradientsOfGammaAndBetaSamplesAreThoseOfTheirMoments) {
  manual_seed(3);
  constexpr int64_t kSamples = 200000;
  for (const double at : {0.3, 1., 4.5, 20000.}) {
    SCOPED_TRACE(at);
    const Tensor a = number(at).set_requires_grad(), rate = number(2).set_requires_grad();
    const Tensor x = Gamma(a, number(1)).rsample({kSamples});
    EXPECT_NEAR(grad(mean(x), {a})[0].item<double>(), 1, 0.02);
    EXPECT_NEAR(grad(mean(x * x), {a})[0].item<double>() / (2 * at + 1), 1, 0.03);
    const Tensor y = Gamma(a, rate).rsample({kSamples});
    EXPECT_NEAR(grad(mean(y), {rate})[0].item<double>() / (-at / 4), 1, 0.03);
  }
  const Tensor a = number(2).set_requires_grad(), b = number(3).set_requires_grad();
  const List of_mean = grad(mean(Beta(a, b).rsample({kSamples})), {a, b});  // a / (a + b)
  EXPECT_NEAR(of_mean[0].item<double>(), 3. / 25, 0.002);
  EXPECT_NEAR(of_mean[1].item<double>(), -2. / 25, 0.002);
  EXPECT_FALSE(Gamma(a, b).sample().requires_grad());
  EXPECT_THROW(grad(mean(Gamma(a, b).rsample({3})), {a}, {}, {.create_graph = true}), Error);
}

TEST(ProbabilityDistributions, WhatLiesOutsideHasNoDensityAndDivergesWithoutEnd) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Uniform(number(0), number(1)).log_prob(number(1)).item<double>(), -infinity);
  EXPECT_EQ(Uniform(number(0), number(1)).log_prob(number(0)).item<double>(), 0);
  EXPECT_EQ(Exponential(number(1)).log_prob(number(-0.5)).item<double>(), -infinity);
  EXPECT_EQ(kl(Uniform(number(0), number(2)), Uniform(number(0), number(1))).item<double>(), infinity);
  EXPECT_EQ(kl(Bernoulli(number(0.5)), Bernoulli(number(0))).item<double>(), infinity);
  EXPECT_EQ(kl(Bernoulli(number(0.5)), Bernoulli(number(1))).item<double>(), infinity);
  EXPECT_NEAR(kl(Bernoulli(number(0)), Bernoulli(number(0.5))).item<double>(), std::log(2), 1e-12);
  const Tensor first = from_vector<double>({1, 0}, {2}), even = from_vector<double>({0.5, 0.5}, {2});
  EXPECT_EQ(kl(Categorical(even), Categorical(first)).item<double>(), infinity);
  EXPECT_NEAR(kl(Categorical(first), Categorical(even)).item<double>(), std::log(2), 1e-12);
  EXPECT_NEAR(Categorical(first).entropy().item<double>(), 0, 1e-12);
  EXPECT_EQ(Categorical::from_logits(from_vector<double>({0, -infinity}, {2})).entropy().item<double>(), 0);
}

TEST(ProbabilityDistributions, WrongParametersAndValuesAreRefusedByName) {
  const Tensor one = ones({2});
  EXPECT_EQ(error_of([&] { Normal(one, zeros({2})); }),
            "Normal: deviation must be above 0; got values from 0 to 0.");
  EXPECT_EQ(
      error_of([&] { Normal(one, ones({2}, DType::f64)); }),
      "Normal: mean and deviation must have one type and device; got f32 (2,) on cpu and f64 (2,) on cpu.");
  EXPECT_EQ(
      error_of([&] { Normal(ones({2}, DType::i64), one); }),
      "Normal: mean must be a floating tensor; got i64 (2,) on cpu. full({}, 0.5) makes one of a number.");
  EXPECT_NE(error_of([&] { Normal(ones({3}), one); }).find("Normal"), std::string::npos);
  EXPECT_EQ(error_of([&] { Uniform(one, one); }),
            "Uniform: high - low must be above 0; got values from 0 to 0.");
  EXPECT_EQ(error_of([&] { Exponential{Tensor()}; }),
            "Exponential: rate must be a floating tensor; got an undefined tensor. full({}, 0.5) makes one "
            "of a number.");
  EXPECT_EQ(error_of([&] { Bernoulli(one * 1.5); }),
            "Bernoulli: probabilities must be from 0 to 1; got values from 1.5 to 1.5.");
  EXPECT_EQ(error_of([&] { Categorical(one - 2.0); }),
            "Categorical: probabilities must be at least 0 and finite; got values from -1 to -1.");
  EXPECT_EQ(error_of([&] { Categorical(zeros({2})); }),
            "Categorical: the sum of the probabilities must be above 0; got values from 0 to 0.");
  EXPECT_EQ(
      error_of([&] { Categorical(full({}, 1)); }),
      "Categorical: probabilities must have the classes on the last axis, at least one; got f32 () on cpu.");
  EXPECT_EQ(error_of([&] { Categorical(one).log_prob(one); }),
            "Categorical log_prob: the value must be i64 or i32; got f32 (2,) on cpu.");
  EXPECT_EQ(error_of([&] { kl(Categorical(one), Categorical(ones({3}))); }),
            "kl: both must have the same number of classes; got 2 and 3.");
  EXPECT_EQ(error_of([&] { Gamma(-one, one); }),
            "Gamma: concentration must be above 0; got values from -1 to -1.");
  EXPECT_EQ(error_of([&] { Beta(one, zeros({2})); }), "Beta: b must be above 0; got values from 0 to 0.");
  EXPECT_EQ(error_of([&] { Poisson(one * 65.0); }),
            "Poisson: rate must be from 0 to the max_rate of 64; got values from 65 to 65.");
  EXPECT_EQ(error_of([&] { Poisson(one, {.max_rate = 1000}); }),
            "Poisson: max_rate must be above 0 and at most 700; got 1000. Add samples of smaller rates for a "
            "larger "
            "one.");
  EXPECT_EQ(error_of([&] {
              Normal(ones({1, 1, 1, 1, 1}), one).sample({1, 1, 1, 1});
            }),
            "Normal sample: samples must have at most 8 axes; got the shape (1, 1, 1, 1) of samples of (1, "
            "1, 1, 1, 2).");
  EXPECT_EQ(error_of([&] { Normal(one, one).log_prob(Tensor()); }),
            "Normal log_prob: the value must be a tensor on the device of the parameters, cpu; got an "
            "undefined tensor.");
}

}  // namespace
}  // namespace tandem::testing
