// Fourier transforms of many sizes, long ones, and batches. Small ones in every mode are op cases (op_cases/fft.cpp).
#include "tandem/ops/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "tandem/core/threads.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

double largest(const Tensor& x) { return max(abs(x)).item<double>(); }

/// The root mean square of the error over that of the values.
double relative(const Tensor& got, const Tensor& want) {
  const Tensor d = got - want;
  return std::sqrt(sum(d * d).item<double>() / sum(want * want).item<double>());
}

TEST(Fft, EverySizeUpTo150MatchesTheSum) {
  for (int64_t n = 1; n <= 150; ++n) {
    const Array x = hash_array({n, 2}, 1);
    Array want({n, 2});
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) {
        const auto term = std::complex<double>(x[2 * j], x[2 * j + 1]) *
                          std::polar(1., -2 * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n));
        want[2 * k] += term.real();
        want[2 * k + 1] += term.imag();
      }
    const Tensor input = to_tensor(x, DType::f64);
    EXPECT_TRUE(near(to_array(fft(input)), want, 1e-13)) << n;
    EXPECT_LT(relative(fft(cast(input, DType::f32)), cast(to_tensor(want, DType::f64), DType::f32)), 6e-7)
        << n;
    EXPECT_LT(largest(ifft(fft(input)) - input), 1e-14) << n;
    const Tensor real_part = contiguous(real(input));
    const Tensor half = slice(fft(complex(real_part, zeros_like(real_part))), 0, 0, n / 2 + 1);
    EXPECT_LT(largest(rfft(real_part) - half), 1e-13) << n;
    EXPECT_LT(largest(irfft(rfft(real_part), {.n = n}) - real_part), 1e-14) << n;
  }
}

TEST(Fft, LongTransformsStayAccurate) {
  for (const int64_t n : {4096, 65536, 59049, 78125, 10007, 12 * 7919}) {
    const Tensor x = to_tensor(hash_array({n, 2}, 3), DType::f64);
    EXPECT_LT(relative(ifft(fft(x)), x), 1e-14) << n;
    EXPECT_LT(relative(fft(cast(x, DType::f32)), cast(fft(x), DType::f32)), 2e-6) << n;
    // One frequency: a single peak of height n, nothing beside it.
    const Tensor t = arange(n, DType::f64) * 3.0;
    const Tensor turns = (t - floor(t / static_cast<double>(n)) * static_cast<double>(n)) *
                         (2 * M_PI / static_cast<double>(n));
    const Array y = to_array(fft(complex(cos(turns), sin(turns))));
    EXPECT_NEAR(y[6], static_cast<double>(n), 1e-9 * static_cast<double>(n));
    EXPECT_NEAR(y[8], 0, 1e-9 * static_cast<double>(n));
  }
}

TEST(Fft, ARowHasTheSameBitsAloneAndInABatchAtAnyThreadCount) {
  const int before = threads();
  for (const int64_t n : {16, 60, 77, 5000}) {
    const Tensor x = to_tensor(hash_array({37, n, 2}, 4), DType::f32);
    set_threads(1);
    const Tensor all = fft(x), halves = rfft(contiguous(real(x)));
    set_threads(3);
    EXPECT_TRUE(same_bits(fft(x), all)) << n;
    for (const int64_t i : {0, 15, 16, 36}) {
      const Tensor row = contiguous(select(x, 0, i));
      EXPECT_TRUE(same_bits(contiguous(select(all, 0, i)), fft(row))) << n;
      EXPECT_TRUE(same_bits(contiguous(select(halves, 0, i)), rfft(contiguous(real(row))))) << n;
    }
  }
  set_threads(before);
}

TEST(Fft, ComplexAbsOfLargeNumbersDoesNotOverflowAndItsGradientAtZeroIsZero) {
  EXPECT_FLOAT_EQ(complex_abs(from_vector<float>({3e30f, 4e30f}, {2})).item<float>(), 5e30f);
  Tensor x = zeros({1, 2}).set_requires_grad();
  sum(complex_abs(x)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace tandem::testing
