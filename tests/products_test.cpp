// Matrix products on the CPU by "panels": every element is one chain of multiply-adds per block of k, and the blocks
// are added in order. That holds however the operands lie, however the product is cut among threads, and whichever
// of its ways takes it: few rows or columns read where they lie, pieces per thread, or panels that all threads share.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/backends/cpu/backend.h"
#include "tandem/core/choices.h"
#include "tandem/core/threads.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// By the row that does everything, at a number of threads; puts both back.
class Panels {
 public:
  explicit Panels(int count) : threads_(threads()), choice_(matmul_choice()) {
    set_threads(count);
    set_matmul_choice({ChoiceMode::fixed, false});
  }
  ~Panels() {
    set_threads(threads_);
    set_matmul_choice(choice_);
  }

 private:
  int threads_;
  MatmulChoice choice_;
};

/// One step of a chain. x86-64 below AVX2 has no multiply-add of one rounding.
template <class T>
T multiply_add(T a, T b, T sum) {
#if defined(__x86_64__)
  static const bool twice = cpu::isa_level() == "baseline";
  if (twice) return a * b + sum;
#endif
  return std::fma(a, b, sum);
}

/// x (m, k) times w (n, k) transposed: what every way must give, to the bit. k is cut into equal blocks of at most 512.
template <class T>
std::vector<T> by_chains(const std::vector<T>& x, const std::vector<T>& w, int64_t m, int64_t n, int64_t k) {
  const int64_t blocks = (k + 511) / 512, depth = (k + blocks - 1) / blocks;
  std::vector<T> out;
  out.reserve(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T total = 0;
      for (int64_t k0 = 0; k0 < k; k0 += depth) {
        T sum = 0;
        for (int64_t p = k0; p < std::min(k0 + depth, k); ++p)
          sum = multiply_add(x[static_cast<size_t>(i * k + p)], w[static_cast<size_t>(j * k + p)], sum);
        total = k0 ? total + sum : sum;
      }
      out.push_back(total);
    }
  return out;
}

/// The numbers of a tensor in f32 or f64, as they are.
template <class T>
std::vector<T> numbers(const Tensor& x) {
  const Array array = to_array(x);
  return {array.values.begin(), array.values.end()};
}

/// The same values, lying the other way round.
Tensor other_way(const Tensor& x) { return transpose(contiguous(transpose(x))); }

struct Sizes {
  int64_t m, n, k;
};

template <class T>
void expect_chains(const Sizes& s, DType dtype) {
  SCOPED_TRACE(str(s.m, " x ", s.n, " x ", s.k, " in ", name(dtype)));
  const Tensor x = to_tensor(hash_array({s.m, s.k}, 1), dtype),
               w = to_tensor(hash_array({s.n, s.k}, 2), dtype), bias = to_tensor(hash_array({s.n}, 3), dtype);
  const std::vector<T> plain = by_chains<T>(numbers<T>(x), numbers<T>(w), s.m, s.n, s.k),
                       columns = numbers<T>(bias);
  std::vector<T> biased = plain;
  for (size_t i = 0; i < biased.size(); ++i) biased[i] += columns[i % columns.size()];
  for (const int count : {1, 3, 8}) {
    const Panels set(count);
    for (const bool x_turned : {false, true})
      for (const bool w_turned : {false, true}) {
        const Tensor left = x_turned ? other_way(x) : x, right = w_turned ? other_way(w) : w;
        EXPECT_EQ(numbers<T>(matmul(left, transpose(right))), plain)
            << count << " threads" << (x_turned ? ", x turned" : "") << (w_turned ? ", w turned" : "");
        EXPECT_EQ(numbers<T>(linear(left, right, bias)), biased)
            << count << " threads, with bias" << (x_turned ? ", x turned" : "")
            << (w_turned ? ", w turned" : "");
      }
  }
}

TEST(Products, AreOneChainOfMultiplyAddsPerBlockOfKHoweverTheyLieAndAreCut) {
  const Sizes all[] = {
      {1, 37, 90},      {3, 700, 100},    {8, 260, 513}, {9, 100, 520},
      {13, 129, 1100},                                                    // few rows
      {33, 16, 200},    {500, 31, 70},    {2000, 3, 40}, {100, 8, 1300},  // few columns
      {64, 64, 2100},   {40, 130, 700},   {49, 97, 512}, {200, 210, 65},
      {129, 250, 1025},                    // a piece per thread
      {1100, 1000, 20}, {200, 150, 1750},  // shared panels
  };
  for (const Sizes& sizes : all) expect_chains<float>(sizes, DType::f32);
  for (const Sizes& sizes : {all[2], all[5], all[8], all[9], all[13], all[15]})
    expect_chains<double>(sizes, DType::f64);
}

}  // namespace
}  // namespace tandem::testing
