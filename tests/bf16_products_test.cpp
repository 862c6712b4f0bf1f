// Products of bf16 matrices by the processor's bf16 instructions and by emulations of those that it lacks. The tolerance
// of a sum of k products follows from the arithmetic: no term goes through more than k + 3 additions (of products, of
// blocks of k, of a bias), each with an error of at most 2^-23 of its result (one unit, as round-to-odd has; to
// nearest it is half of that), and the result is rounded to 8 bits.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tandem/core/threads.h"
#include "tests/support/bf16_emulation.h"

namespace tandem::testing {
namespace {

using cpu::Bf16Destination;
using cpu::Bf16Kernel;
using cpu::Bf16Matrix;

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t word() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 24;
  }
  BFloat16 uniform() { return BFloat16(static_cast<float>(word() % 2001) / 1000.0f - 1.0f); }

 private:
  uint64_t state_;
};

/// A matrix of random elements in memory that holds more than it: NaNs that nobody may read.
struct Operand {
  enum Layout { rows, columns, strided };
  std::vector<BFloat16> memory;
  Bf16Matrix matrix;

  Operand(int64_t m, int64_t n, Layout layout, uint64_t seed) {
    const int64_t row = layout == rows ? n + 3 : layout == columns ? 1 : 2 * n + 5;
    const int64_t column = layout == rows ? 1 : layout == columns ? m + 3 : 2;
    BFloat16 nan;
    nan.bits = 0x7fc1;
    memory.assign(static_cast<size_t>(m * row + n * column + 1), nan);
    matrix = {memory.data(), row, column};
    Numbers numbers(seed);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) memory[static_cast<size_t>(i * row + j * column)] = numbers.uniform();
  }
  BFloat16& at(int64_t i, int64_t j) {
    return memory[static_cast<size_t>(i * matrix.row + j * matrix.column)];
  }
};

struct Problem {
  int64_t m, n, k;
  Operand a, b;
  std::vector<BFloat16> row_bias, column_bias;

  Problem(int64_t m, int64_t n, int64_t k, Operand::Layout la = Operand::rows,
          Operand::Layout lb = Operand::rows)
      : m(m), n(n), k(k), a(m, k, la, 1), b(k, n, lb, 2) {
    Numbers numbers(3);
    for (int64_t i = 0; i < m; ++i) row_bias.push_back(numbers.uniform());
    for (int64_t j = 0; j < n; ++j) column_bias.push_back(numbers.uniform());
  }

  /// C, rounded. Between its rows lie elements that must stay as they are.
  std::vector<BFloat16> rounded(const Bf16Kernel& kernel, bool row = false, bool column = false) const {
    const int64_t leading = n + 1;
    BFloat16 untouched;
    untouched.bits = 0x1234;
    std::vector<BFloat16> c(static_cast<size_t>(m * leading), untouched), dense;
    gemm_bf16(kernel, m, n, k, a.matrix, b.matrix,
              {c.data(), nullptr, leading, false, row ? row_bias.data() : nullptr,
               column ? column_bias.data() : nullptr});
    for (int64_t i = 0; i < m; ++i) {
      EXPECT_EQ(c[static_cast<size_t>(i * leading + n)].bits, untouched.bits);
      dense.insert(dense.end(), c.begin() + i * leading, c.begin() + i * leading + n);
    }
    return dense;
  }

  /// Calls f(index, exact, allowed error of the sum) for every element.
  template <class F>
  void each(bool row, bool column, F&& f) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double exact = 0, magnitude = 0;
        const auto add = [&](double term) { exact += term, magnitude += std::abs(term); };
        for (int64_t q = 0; q < k; ++q)
          add(static_cast<double>(a.at(i, q)) * static_cast<double>(b.at(q, j)));
        if (row) add(row_bias[static_cast<size_t>(i)]);
        if (column) add(column_bias[static_cast<size_t>(j)]);
        const double steps = static_cast<double>(k + 3) * 0x1p-23;
        f(static_cast<size_t>(i * n + j), exact, steps / (1 - steps) * magnitude);
      }
  }

  void expect_right(const Bf16Kernel& kernel, bool row = false, bool column = false) {
    const std::vector<BFloat16> c = rounded(kernel, row, column);
    int wrong = 0;
    each(row, column, [&](size_t at, double exact, double allowed) {
      const double got = static_cast<float>(c[at]);
      if (std::abs(got - exact) <= allowed + 0x1p-8 * (std::abs(exact) + allowed)) return;
      if (++wrong == 1)
        ADD_FAILURE() << kernel.name << ", " << m << " x " << k << " x " << n << ": element " << at << " is "
                      << got << ", expected " << exact;
    });
  }
};

bool same_bits(const std::vector<BFloat16>& a, const std::vector<BFloat16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(BFloat16)) == 0;
}

bool is_emulated(const Bf16Kernel& kernel) { return &kernel == &emulation_of(kernel); }

class WithThreads {
 public:
  explicit WithThreads(int count) : before_(threads()) { set_threads(count); }
  ~WithThreads() { set_threads(before_); }

 private:
  int before_;
};

TEST(Bf16Products, AreRightAtEveryEdge) {
  for (const Bf16Kernel* kernel : bf16_kernels())
    for (const int64_t m : {1, 7, 8, 9, 32, 33})
      for (const int64_t n : {1, 4, 12, 13, 48, 50})
        for (const int64_t k : {0, 1, 2, 3, 4, 5, 32, 33, 67})
          Problem(m, n, k).expect_right(*kernel, m % 2 == 0, n % 2 == 0);
}

TEST(Bf16Products, AreRightForLongSumsInBlocks) {
  for (const Bf16Kernel* kernel : bf16_kernels())
    for (const int64_t k : {1023, 1025, 2049}) Problem(9, 14, k).expect_right(*kernel, true, true);
}

TEST(Bf16Products, AreRightWhereBlocksAreMany) {
  for (const Bf16Kernel* kernel : bf16_kernels()) Problem(150, 190, 40).expect_right(*kernel);
}

TEST(Bf16Products, HaveTheSameBitsForAnyStrides) {
  constexpr Operand::Layout kLayouts[] = {Operand::rows, Operand::columns, Operand::strided};
  for (const Bf16Kernel* kernel : bf16_kernels())
    for (const int64_t k :
         is_emulated(*kernel) ? std::vector<int64_t>{1, 6, 39} : std::vector<int64_t>{1, 6, 39, 1027}) {
      const std::vector<BFloat16> plain = Problem(33, 26, k).rounded(*kernel);
      for (const Operand::Layout a : kLayouts)
        for (const Operand::Layout b : kLayouts)
          EXPECT_TRUE(same_bits(Problem(33, 26, k, a, b).rounded(*kernel), plain))
              << kernel->name << " " << k;
    }
}

TEST(Bf16Products, HaveTheSameBitsForAnyNumberOfThreads) {
  for (const Bf16Kernel* kernel : bf16_kernels()) {
    const Problem problem(40, 60, 1030);
    std::vector<BFloat16> first;
    for (const int count : is_emulated(*kernel) ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 1, 2}) {
      const WithThreads with(count);
      std::vector<BFloat16> c = problem.rounded(*kernel);
      if (first.empty()) first = c;
      EXPECT_TRUE(same_bits(c, first)) << kernel->name << ", " << count << " threads";
    }
  }
}

TEST(Bf16Products, AddToSumsThatAreNotRounded) {
  for (const Bf16Kernel* kernel : bf16_kernels()) {
    Problem problem(11, 19, 1050);
    std::vector<float> sums(static_cast<size_t>(problem.m * problem.n), 0.5f);
    const Bf16Destination to{nullptr, sums.data(), problem.n, true};
    gemm_bf16(*kernel, problem.m, problem.n, problem.k, problem.a.matrix, problem.b.matrix, to);
    problem.each(false, false, [&](size_t at, double exact, double allowed) {
      EXPECT_NEAR(sums[at], exact + 0.5, allowed + 1053 * 0x1p-23) << kernel->name;
    });
    Bf16Destination fresh = to;
    fresh.add = false;
    gemm_bf16(*kernel, problem.m, problem.n, problem.k, problem.a.matrix, problem.b.matrix, fresh);
    problem.each(false, false,
                 [&](size_t at, double exact, double allowed) { EXPECT_NEAR(sums[at], exact, allowed); });
  }
}

/// Elements of every kind: zeros, subnormals, infinities, NaNs, numbers of any size and of about one size.
BFloat16 any_element(Numbers& numbers) {
  BFloat16 x = numbers.uniform();
  const uint64_t kind = numbers.word() % 40;
  if (kind < 10) x.bits = static_cast<unsigned short>(numbers.word());
  if (kind == 10) x.bits = static_cast<unsigned short>(numbers.word() % 2 * 0x8000);
  if (kind == 11) x.bits = static_cast<unsigned short>(numbers.word() % 128 + numbers.word() % 2 * 0x8000);
  if (kind == 12) x.bits = static_cast<unsigned short>(0x7f80 + numbers.word() % 2 * 0x8000);
  return x;
}

TEST(Bf16Products, OfTheProcessorHaveTheBitsOfTheirEmulation) {
  for (const Bf16Kernel* kernel : bf16_kernels()) {
    if (is_emulated(*kernel)) continue;
    const Bf16Kernel& emulated = emulation_of(*kernel);
    ASSERT_EQ(kernel->rows, emulated.rows);
    ASSERT_EQ(kernel->columns, emulated.columns);
    Numbers numbers(7);
    for (int round = 0; round < 300; ++round) {
      const bool plain = round % 2 == 0;
      const int64_t k = kernel->k_step * (1 + round % 5);
      alignas(64) BFloat16 a[32 * 160], b[48 * 160];
      alignas(64) float sums[cpu::kBf16TileSize], expected[cpu::kBf16TileSize];
      for (BFloat16& x : a) x = plain ? numbers.uniform() : any_element(numbers);
      for (BFloat16& x : b) x = plain ? numbers.uniform() : any_element(numbers);
      if (kernel->enter) kernel->enter();
      kernel->multiply(a, b, k, sums);
      if (kernel->leave) kernel->leave();
      if (emulated.enter) emulated.enter();
      emulated.multiply(a, b, k, expected);
      if (emulated.leave) emulated.leave();
      for (int i = 0; i < kernel->rows * kernel->columns; ++i) {
        if (std::isnan(expected[i]) && std::isnan(sums[i])) continue;
        ASSERT_EQ(float_bits(sums[i]), float_bits(expected[i]))
            << kernel->name << ": " << sums[i] << " and " << expected[i] << ", round " << round;
      }
    }
  }
}

/// x · 1 + y · 1, and zeros up to k.
BFloat16 sum_of(const Bf16Kernel& kernel, BFloat16 x, BFloat16 y, BFloat16 times = BFloat16(1.0f)) {
  constexpr int64_t k = 8;
  BFloat16 a[k] = {x, y}, b[k] = {times, times}, c;
  gemm_bf16(kernel, 1, 1, k, {a, k, 1}, {b, 1, 1}, {&c, nullptr, 1});
  return c;
}

TEST(Bf16Products, SpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BFloat16 subnormal, largest;
  subnormal.bits = 0x007f;
  largest.bits = 0x7f7f;
  const BFloat16 zero(0.0f), one(1.0f), infinity(kInfinity), smallest(0x1p-126f);
  for (const Bf16Kernel* kernel : bf16_kernels()) {
    SCOPED_TRACE(kernel->name);
    EXPECT_EQ(sum_of(*kernel, infinity, one), kInfinity);
    EXPECT_EQ(sum_of(*kernel, BFloat16(-kInfinity), one), -kInfinity);
    EXPECT_TRUE(std::isnan(sum_of(*kernel, infinity, BFloat16(-kInfinity))));
    EXPECT_TRUE(std::isnan(sum_of(*kernel, infinity, one, zero)));
    EXPECT_TRUE(std::isnan(sum_of(*kernel, BFloat16(std::nanf("")), one)));
    EXPECT_EQ(sum_of(*kernel, largest, largest), kInfinity);
    EXPECT_EQ(sum_of(*kernel, BFloat16(-0.0f), BFloat16(-0.0f)).bits, 0) << "a sum begins with +0";
    EXPECT_EQ(sum_of(*kernel, one, BFloat16(-1.0f)).bits, 0);
    EXPECT_EQ(sum_of(*kernel, subnormal, zero, BFloat16(0x1p100f)).bits, 0)
        << "subnormal elements count as zero";
    EXPECT_EQ(sum_of(*kernel, smallest, zero, BFloat16(0.5f)).bits, 0) << "subnormal products become zero";
    EXPECT_EQ(sum_of(*kernel, smallest, zero).bits, smallest.bits);
  }
}

}  // namespace
}  // namespace tandem::testing
