// Cases of the tensors made from nothing: constants, ranges, random numbers; and of dropout. The random ones are
// compared with a second implementation of Philox 4×32-10 written here.
#include "tandem/ops/random.h"
#include "tandem/ops/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

constexpr uint64_t kSeed = 11;  // where run_case() puts the stream

/// Word i of the stream: ten rounds of two 32×32 multiplications.
uint32_t random_word(int64_t i, uint64_t seed = kSeed) {
  const uint64_t block = static_cast<uint64_t>(i) / 4;
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * c[0], right = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(right >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(right),
         static_cast<uint32_t>(left >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c[static_cast<size_t>(i % 4)];
}

/// 64 bits for element i: the word, and the same of a stream whose key is another one.
uint64_t wide_word(int64_t i) {
  return uint64_t{random_word(i)} << 32 | random_word(i, kSeed ^ 0x6A09E667F3BCC908);
}

double uniform_word(int64_t i) { return static_cast<double>(random_word(i) >> 8) * 0x1p-24; }
/// The same with 53 bits, as f64 draws.
double wide_uniform(int64_t i) { return static_cast<double>(wide_word(i) >> 11) * 0x1p-53; }

/// A distribution drawn in f32 and in f64, each cast to the type of the case.
template <class Draw>
CaseCall drawn_in(DType dtype, Draw draw) {
  return [=](std::span<const Tensor> in) {
    return cast(draw(in[0].shape(), dtype, in[0].device()), in[0].dtype());
  };
}

Array made(const Dims& shape, const std::function<double(int64_t)>& f) {
  Array out(shape);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = f(i);
  return out;
}

/// An op that takes shape, dtype and device from its first input and nothing else.
OpCase maker(const std::string& name, CaseCall call, std::function<double(int64_t)> element) {
  OpCase op_case;
  op_case.name = name;
  op_case.inputs = {{{5, 7}}};
  op_case.call = std::move(call);
  op_case.reference = [element](std::span<const Array> in) { return made(in[0].shape, element); };
  op_case.gradient = op_case.second_order = false;
  return op_case;
}

}  // namespace

void add_random_cases(std::vector<OpCase>& cases) {
  using In = std::span<const Tensor>;
  OpCase constant = maker(
      "full", [](In in) { return full(in[0].shape(), 3, in[0].dtype(), in[0].device()); },
      [](int64_t) { return 3.; });
  constant.dtypes = kNumbers;
  cases.push_back(constant);
  cases.push_back(with_shapes(constant, "full/empty", {{0, 3}}));
  cases.push_back(with_shapes(constant, "full/scalar", {{}}));
  constant.name = "zeros_like";
  constant.call = [](In in) { return zeros_like(in[0]); };
  constant.reference = [](std::span<const Array> in) { return Array(in[0].shape); };
  constant.dtypes = kEvery;
  cases.push_back(constant);

  OpCase range = maker(
      "arange", [](In in) { return arange(in[0].size(), in[0].dtype(), in[0].device()); },
      [](int64_t i) { return static_cast<double>(i); });
  range.inputs = {{{35}}};
  range.dtypes = kNumbers;
  cases.push_back(range);
  cases.push_back(with_shapes(range, "arange/empty", {{0}}));

  OpCase flat = maker(
      "uniform", [](In in) { return uniform(in[0].shape(), -2, 3, in[0].dtype(), in[0].device()); },
      [](int64_t i) { return -2 + 5 * wide_uniform(i); });
  cases.push_back(flat);
  cases.push_back(with_shapes(flat, "uniform/empty", {{0, 3}}));
  cases.push_back(with_shapes(flat, "uniform/large", {{3, 30011}}));

  OpCase narrow = maker(  // u = 1 - 2^-24 would round up to the upper bound in f16 and bf16
      "uniform/narrow", [](In in) { return uniform(in[0].shape(), 0.5, 1, in[0].dtype(), in[0].device()); },
      [](int64_t i) { return 0.5 + 0.5 * wide_uniform(i); });
  cases.push_back(with_shapes(narrow, "uniform/narrow", {{3, 30011}}));

  const auto bell_of = [](double u, double turn, int64_t i) {
    return 1 +
           2 * std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(2 * M_PI * turn) : std::cos(2 * M_PI * turn));
  };
  const auto draw_bell = [](const Dims& shape, DType dtype, Device device) {
    return normal(shape, 1, 2, dtype, device);
  };
  OpCase bell = maker("normal", drawn_in(DType::f32, draw_bell), [=](int64_t i) {
    const int64_t pair = i / 2 * 2;
    return bell_of((static_cast<double>(random_word(pair) >> 8) + 1) * 0x1p-24, uniform_word(pair + 1), i);
  });
  bell.tolerance = 4e-6;
  bell.tolerance64 = 4e-6;
  cases.push_back(bell);
  cases.push_back(with_shapes(bell, "normal/empty", {{0}}));
  cases.push_back(with_shapes(bell, "normal/large", {{3, 30011}}));
  OpCase wide_bell = maker("normal/f64", drawn_in(DType::f64, draw_bell), [=](int64_t i) {
    const int64_t pair = i / 2 * 2;
    return bell_of(wide_uniform(pair) + 0x1p-53, wide_uniform(pair + 1), i);
  });
  cases.push_back(wide_bell);
  cases.push_back(with_shapes(wide_bell, "normal/f64_large", {{3, 30011}}));

  // PyTorch's names for the two, and their forms that take what x is.
  OpCase unit = maker(
      "rand", [](In in) { return rand(in[0].shape(), in[0].dtype(), in[0].device()); },
      [](int64_t i) { return wide_uniform(i); });
  cases.push_back(unit);
  unit.name = "rand_like";
  unit.call = [](In in) { return rand_like(in[0]); };
  cases.push_back(unit);
  OpCase standard = maker("randn",
                          drawn_in(DType::f64, [](const Dims& shape, DType dtype,
                                                  Device device) { return randn(shape, dtype, device); }),
                          [=](int64_t i) {
                            const int64_t pair = i / 2 * 2;
                            return (bell_of(wide_uniform(pair) + 0x1p-53, wide_uniform(pair + 1), i) - 1) / 2;
                          });
  cases.push_back(standard);
  standard.name = "randn_like";
  standard.call = [](In in) { return randn_like(cast(in[0], DType::f64)); };
  cases.push_back(standard);

  OpCase coin = maker(
      "bernoulli", [](In in) { return bernoulli(in[0].shape(), 0.25, in[0].dtype(), in[0].device()); },
      [](int64_t i) { return uniform_word(i) < 0.25 ? 1. : 0.; });
  coin.tolerance = 0;
  coin.half_ulps = 0;
  cases.push_back(coin);
  cases.push_back(with_shapes(coin, "bernoulli/empty", {{0, 2}}));
  OpCase truths = coin;
  truths.name = "bernoulli/bool";
  truths.call = [](In in) {
    return cast(bernoulli(in[0].shape(), 0.25, DType::boolean, in[0].device()), in[0].dtype());
  };
  cases.push_back(truths);

  // The upper half of element 9's 64 bits is that of the limit: the lower halves decide, once so and once so.
  for (const double below : {0.5, 0.25}) {
    const double p = (0x08c22488 + below) * 0x1p-32;
    coin.call = [p](In in) { return bernoulli(in[0].shape(), p, in[0].dtype(), in[0].device()); };
    coin.reference = [p](std::span<const Array> in) {
      return made(in[0].shape,
                  [p](int64_t i) { return wide_word(i) < static_cast<uint64_t>(p * 0x1p64) ? 1. : 0.; });
    };
    cases.push_back(with_shapes(coin, below == 0.5 ? "bernoulli/undecided" : "bernoulli/decided", {{90000}}));
  }

  const auto draw_waiting = [](const Dims& shape, DType dtype, Device device) {
    return exponential(shape, 2, dtype, device);
  };
  OpCase waiting = maker("exponential", drawn_in(DType::f32, draw_waiting),
                         [](int64_t i) { return -std::log1p(-uniform_word(i)) / 2; });
  waiting.tolerance64 = 2e-6;
  cases.push_back(waiting);
  cases.push_back(maker("exponential/f64", drawn_in(DType::f64, draw_waiting),
                        [](int64_t i) { return -std::log1p(-wide_uniform(i)) / 2; }));
  cases.push_back(with_shapes(waiting, "exponential/empty", {{0, 3}}));

  OpCase dice = maker(
      "randint", [](In in) { return randint(-3, 4, in[0].shape(), in[0].dtype(), in[0].device()); },
      [](int64_t i) {
        return static_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(
                                       static_cast<unsigned __int128>(wide_word(i)) * 7 >> 64)) -
                                   3);
      });
  dice.tolerance = dice.tolerance64 = dice.half_ulps = 0;
  dice.dtypes = kSigned;
  cases.push_back(dice);
  cases.push_back(with_shapes(dice, "randint/empty", {{0, 3}}));
  cases.push_back(with_shapes(dice, "randint/large", {{40001}}));

  OpCase shuffle = maker(
      "randperm", [](In in) { return randperm(in[0].size(), in[0].device()); }, nullptr);
  shuffle.inputs = {{{37}}};
  shuffle.reference = [](std::span<const Array> in) {
    std::vector<std::pair<int64_t, double>> keys;
    for (int64_t i = 0; i < in[0].size(); ++i)
      keys.emplace_back(static_cast<int64_t>(wide_word(i)), static_cast<double>(i));
    std::sort(keys.begin(), keys.end());
    return made(in[0].shape, [&](int64_t i) { return keys[static_cast<size_t>(i)].second; });
  };
  shuffle.dtypes = {};
  cases.push_back(shuffle);
  cases.push_back(with_shapes(shuffle, "randperm/empty", {{0}}));

  OpCase choice = maker(
      "multinomial", [](In in) { return multinomial(in[0], 9, true); }, nullptr);
  choice.inputs = {{{3, 5}, 0, 1}};
  choice.reference = [](std::span<const Array> in) {
    return made({in[0].shape[0], 9}, [&](int64_t i) {
      const double* w = in[0].values.data() + i / 9 * 5;
      const double target =
          static_cast<double>(wide_word(i) >> 11) * 0x1p-53 * (w[0] + w[1] + w[2] + w[3] + w[4]);
      double upto = 0;
      int64_t found = 0;
      while (found < 4 && (upto += w[found]) <= target) ++found;
      return static_cast<double>(found);
    });
  };
  cases.push_back(choice);
  cases.push_back(with_shapes(choice, "multinomial/empty", {{0, 5}}));
  choice.name = "multinomial/without_replacement";
  choice.dtypes = {};
  choice.call = [](In in) { return multinomial(in[0], 4); };
  choice.reference = [](std::span<const Array> in) {
    std::vector<double> order;
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<std::pair<double, double>> keys;
      for (int64_t j = 0; j < 5; ++j)
        keys.emplace_back(-std::log1p(-wide_uniform(row * 5 + j)) / in[0][row * 5 + j],
                          static_cast<double>(j));
      std::sort(keys.begin(), keys.end());
      for (size_t k = 0; k < 4; ++k) order.push_back(keys[k].second);
    }
    return Array({3, 4}, order);
  };
  cases.push_back(choice);

  OpCase drop;
  drop.name = "dropout";
  drop.inputs = {{{5, 7}}};
  drop.call = [](In in) { return dropout(in[0], 0.25); };
  drop.reference = [](std::span<const Array> in) {
    Array out = in[0];
    for (int64_t i = 0; i < out.size(); ++i) out[i] = uniform_word(i) < 0.75 ? out[i] / 0.75 : 0;
    return out;
  };
  cases.push_back(drop);
  cases.push_back(with_shapes(drop, "dropout/empty", {{0, 7}}));
  for (int axes = 1; axes <= 3; ++axes) {
    Dims shape{4, 3};
    for (int i = 0; i < axes; ++i) shape.push_back(2);
    drop.name = str("dropout", axes, "d");
    drop.inputs = {{shape}};
    drop.call = [axes](In in) {
      return axes == 1 ? dropout1d(in[0], 0.25) : axes == 2 ? dropout2d(in[0], 0.25) : dropout3d(in[0], 0.25);
    };
    drop.reference = [axes](std::span<const Array> in) {
      Array out = in[0];
      for (int64_t i = 0; i < out.size(); ++i) out[i] = uniform_word(i >> axes) < 0.75 ? out[i] / 0.75 : 0;
      return out;
    };
    cases.push_back(drop);
  }
  drop.name = "alpha_dropout";
  drop.inputs = {{{5, 7}}};
  drop.call = [](In in) { return alpha_dropout(in[0], 0.25); };
  drop.reference = [](std::span<const Array> in) {
    const double low = -1.0507009873554805 * 1.6732632423543772;  // SELU's scale and alpha
    const double a = 1 / std::sqrt(0.75 * (1 + 0.25 * low * low));
    Array out = in[0];
    for (int64_t i = 0; i < out.size(); ++i)
      out[i] = a * (uniform_word(i) < 0.75 ? out[i] : low) - a * low * 0.25;
    return out;
  };
  cases.push_back(drop);
}

void add_random_errors(std::vector<ErrorCase>& errors) {
  const auto of = [](const Dims& shape) { return zeros(shape); };
  errors.push_back({"exponential/rate", [] { exponential({2}, 0); }, {"exponential: ", "got 0"}});
  errors.push_back({"exponential/type", [] { exponential({2}, 1, DType::i32); }, {"exponential: ", "i32"}});
  errors.push_back({"randint/range", [] { randint(3, 3, {2}); }, {"randint: ", "3 and 3"}});
  errors.push_back({"randint/bool", [] { randint(0, 2, {2}, DType::boolean); }, {"randint: ", "bernoulli"}});
  errors.push_back(
      {"randint/narrow", [] { randint(0, 300, {2}, DType::u8); }, {"randint: ", "0 to 299", "u8"}});
  errors.push_back(
      {"randint/halves", [] { randint(0, 2050, {2}, DType::f16); }, {"randint: ", "0 to 2049", "f16"}});
  errors.push_back({"uniform/order", [] { uniform({2}, 1, 0); }, {"uniform: ", "1 and 0"}});
  errors.push_back({"uniform/range", [] { uniform({2}, 0, 1e5, DType::f16); }, {"uniform: ", "f16"}});
  errors.push_back({"uniform/distance", [] { uniform({2}, -3e38, 3e38); }, {"uniform: ", "distance"}});
  errors.push_back(
      {"uniform/nothing", [] { uniform({2}, 1.0001, 1.0002, DType::f16); }, {"uniform: ", "f16", "1.0001"}});
  errors.push_back(
      {"rand_like/type", [] { rand_like(arange(2)); }, {"rand_like: ", "i64", "rand(x.shape())"}});
  errors.push_back({"randn_like/type", [] { randn_like(arange(2)); }, {"randn_like: ", "i64", "randn("}});
  errors.push_back({"randn/type", [] { randn({2}, DType::i32); }, {"normal: ", "i32"}});
  errors.push_back({"randint/size", [] { randint(0, 2, {-2}); }, {"-2"}});
  errors.push_back({"randperm/size", [] { randperm(-1); }, {"randperm: ", "-1"}});
  errors.push_back({"multinomial/count", [=] { multinomial(of({3}), 4); }, {"multinomial: ", "4 of 3"}});
  errors.push_back({"multinomial/rank",
                    [=] {
                      multinomial(of({2, 2, 2}), 1);
                    },
                    {"multinomial: ", "(2, 2, 2)"}});
  errors.push_back({"multinomial/zero",
                    [=] {
                      multinomial(of({2, 3}), 1, true);
                    },
                    {"multinomial: ", "row 0"}});
  errors.push_back({"multinomial/negative",
                    [] { multinomial(full({3}, -1), 1, true); },
                    {"multinomial: ", "-1", "place 0"}});
  errors.push_back(
      {"multinomial/zero_without_replacement", [=] { multinomial(of({3}), 1); }, {"multinomial: ", "row 0"}});
  errors.push_back({"multinomial/negative_without_replacement",
                    [] {
                      multinomial(from_vector<float>({1, -2, 1}, {3}), 1);
                    },
                    {"multinomial: ", "-2", "place 1"}});
  errors.push_back({"multinomial/too_few_without_replacement",
                    [] {
                      multinomial(from_vector<float>({1, 1, 1, 1, 0, 0}, {2, 3}), 2);
                    },
                    {"multinomial: ", "got 1 in row 1"}});
  errors.push_back({"dropout1d/rank", [=] { dropout1d(of({2}), 0.5); }, {"dropout1d: ", "(2,)"}});
  errors.push_back({"dropout2d/p",
                    [=] {
                      dropout2d(of({2, 2, 2, 2}), 1);
                    },
                    {"dropout2d: the probability must be at least 0 and below 1; got 1."}});
  errors.push_back({"dropout3d/rank", [=] { dropout3d(of({2, 2}), 0.5); }, {"dropout3d: ", "(2, 2)"}});
  errors.push_back({"alpha_dropout/p",
                    [=] { alpha_dropout(of({2}), -0.1); },
                    {"alpha_dropout: the probability must be at least 0 and below 1; got -0.1."}});
}

}  // namespace tandem::testing
