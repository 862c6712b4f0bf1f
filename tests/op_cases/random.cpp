// Cases of the tensors made from nothing: constants, ranges, random numbers; and of dropout. The random ones are
// compared with a second implementation of Philox 4×32-10 written here.
#include "tandem/ops/random.h"

#include <array>
#include <cmath>

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

constexpr uint64_t kSeed = 11;  // where run_case() puts the stream

/// Word i of the stream: ten rounds of two 32×32 multiplications.
uint32_t random_word(int64_t i) {
  const uint64_t block = static_cast<uint64_t>(i) / 4;
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(kSeed), static_cast<uint32_t>(kSeed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * c[0], right = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(right >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(right),
         static_cast<uint32_t>(left >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c[static_cast<size_t>(i % 4)];
}

double uniform_word(int64_t i) { return static_cast<double>(random_word(i) >> 8) * 0x1p-24; }

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
      [](int64_t i) { return -2 + 5 * uniform_word(i); });
  flat.tolerance64 = 1e-6;  // drawn in f32 whatever the dtype
  cases.push_back(flat);
  cases.push_back(with_shapes(flat, "uniform/empty", {{0, 3}}));
  cases.push_back(with_shapes(flat, "uniform/large", {{3, 30011}}));

  OpCase bell = maker(
      "normal", [](In in) { return normal(in[0].shape(), 1, 2, in[0].dtype(), in[0].device()); },
      [](int64_t i) {
        const int64_t pair = i / 2 * 2;
        const double u = (static_cast<double>(random_word(pair) >> 8) + 1) * 0x1p-24;
        const double angle = 2 * M_PI * uniform_word(pair + 1);
        return 1 + 2 * std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
      });
  bell.tolerance = 4e-6;
  bell.tolerance64 = 4e-6;
  cases.push_back(bell);
  cases.push_back(with_shapes(bell, "normal/empty", {{0}}));
  cases.push_back(with_shapes(bell, "normal/large", {{3, 30011}}));

  OpCase coin = maker(
      "bernoulli", [](In in) { return bernoulli(in[0].shape(), 0.25, in[0].dtype(), in[0].device()); },
      [](int64_t i) { return uniform_word(i) < 0.25 ? 1. : 0.; });
  coin.tolerance = 0;
  coin.half_ulps = 0;
  cases.push_back(coin);
  cases.push_back(with_shapes(coin, "bernoulli/empty", {{0, 2}}));

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
}

}  // namespace tandem::testing
