// Factorisations of matrices larger than a block, of awkward matrices, and at several thread counts. Small ones in every
// mode are op cases (op_cases/linalg.cpp).
// ctest: asan
#include "tandem/ops/linalg.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/backend.h"
#include "tandem/core/threads.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

Tensor eye(int64_t n, DType dtype) {
  const Tensor i = arange(n);
  return cast(equal(unsqueeze(i, 1), i), dtype);
}
Tensor values(const Dims& shape, uint32_t salt, DType dtype) {
  return to_tensor(hash_array(shape, salt), dtype);
}
double largest(const Tensor& x) { return x.size() ? max(abs(x)).item<double>() : 0; }
double epsilon(DType dtype) { return dtype == DType::f32 ? 1.2e-7 : 2.3e-16; }

class Factorisations : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  int64_t n = std::get<0>(GetParam());
  DType dtype = std::get<1>(GetParam());
  double allowed = 60 * static_cast<double>(n + 8) * epsilon(dtype);
  Tensor x = values({n, n}, 1, dtype);
};

TEST_P(Factorisations, GiveTheMatrixBack) {
  const Tensor positive = matmul(x, transpose(x)) + eye(n, dtype) * static_cast<double>(n);
  const Tensor l = cholesky(positive);
  EXPECT_LT(largest(matmul(l, transpose(l)) - positive), allowed * static_cast<double>(n));
  const Tensor regular = x + eye(n, dtype) * std::sqrt(static_cast<double>(n));
  const Tensor b = values({n, 7}, 2, dtype);
  EXPECT_LT(largest(matmul(regular, solve(regular, b)) - b), allowed * 4);
  EXPECT_LT(largest(matmul(regular, inverse(regular)) - eye(n, dtype)), allowed * 4);
  for (const bool upper : {false, true}) {
    const Tensor r = upper ? transpose(l) : l, y = triangular_solve(r, b, {.upper = upper});
    EXPECT_LT(largest(matmul(r, y) - b), allowed);
  }
  for (const Dims& shape : {Dims{n, n}, Dims{n + 9, n}, Dims{n, n + 40}}) {
    const Tensor a = values(shape, 3, dtype);
    const int64_t k = std::min(shape[0], shape[1]);
    const Qr f = qr(a);
    EXPECT_LT(largest(matmul(f.q, f.r) - a), allowed);
    EXPECT_LT(largest(matmul(transpose(f.q), f.q) - eye(k, dtype)), allowed);
    const Svd s = svd(a);
    EXPECT_LT(largest(matmul(s.u * unsqueeze(s.s, 0), s.vh) - a), allowed);
    EXPECT_LT(largest(matmul(transpose(s.u), s.u) - eye(k, dtype)), allowed);
    EXPECT_LT(largest(matmul(s.vh, transpose(s.vh)) - eye(k, dtype)), allowed);
    if (k > 1) {
      EXPECT_GE(min(slice(s.s, 0, 0, k - 1) - slice(s.s, 0, 1, k)).item<double>(), 0);
    }
  }
  const Tensor symmetric = x + transpose(x);
  const Eigh e = eigh(symmetric);
  EXPECT_LT(largest(matmul(e.vectors * unsqueeze(e.values, 0), transpose(e.vectors)) - symmetric), allowed);
  EXPECT_LT(largest(matmul(transpose(e.vectors), e.vectors) - eye(n, dtype)), allowed);
  const SlogDet d = slogdet(regular);
  EXPECT_NEAR(d.logabsdet.item<double>(), sum(log(svd(regular).s)).item<double>(), allowed * 10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Factorisations,
                         ::testing::Combine(::testing::Values(1, 2, 33, 64, 65, 140),
                                            ::testing::Values(DType::f32, DType::f64)),
                         [](const auto& info) {
                           return str(std::get<0>(info.param),
                                      std::get<1>(info.param) == DType::f32 ? "f32" : "f64");
                         });

TEST(Linalg, TheNumberOfThreadsChangesNoBit) {
  const Tensor x = values({200, 200}, 5, DType::f32), many = values({5, 40, 40}, 6, DType::f32);
  const auto all = [&] {
    std::vector<Tensor> out;
    for (const Tensor& a : {x, many}) {
      const Tensor one = eye(a.size(-1), DType::f32) * 9.0;
      out.push_back(cholesky(matmul(a, transpose(a)) + one));
      out.push_back(inverse(a + one));
      out.push_back(solve(a + one, a));
      const Qr f = qr(a);
      out.push_back(f.q);
      out.push_back(f.r);
      const Eigh e = eigh(a + transpose(a));
      out.push_back(e.values);
      out.push_back(e.vectors);
    }
    const Svd s = svd(many);
    out.push_back(s.u);
    out.push_back(s.s);
    return out;
  };
  const int before = threads();
  set_threads(1);
  const std::vector<Tensor> want = all();
  set_threads(4);
  const std::vector<Tensor> got = all();
  set_threads(before);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

TEST(Linalg, ABatchGivesTheBitsOfItsMatrices) {
  const Tensor x = values({3, 70, 70}, 7, DType::f32);
  const Tensor q = qr(x).q, inverted = inverse(x), vectors = eigh(x).vectors;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor one = contiguous(select(x, 0, i));
    EXPECT_TRUE(same_bits(contiguous(select(q, 0, i)), qr(one).q));
    EXPECT_TRUE(same_bits(contiguous(select(inverted, 0, i)), inverse(one)));
    EXPECT_TRUE(same_bits(contiguous(select(vectors, 0, i)), eigh(one).vectors));
  }
}

TEST(Linalg, SvdOfMatricesWithoutFullRankHasOrthonormalVectors) {
  const Tensor zero = zeros({4, 3}, DType::f64),
               low = outer(values({5}, 1, DType::f64), values({4}, 2, DType::f64));
  const Tensor rows = concat({zeros({2, 3}, DType::f64), ones({1, 3}, DType::f64)});
  for (const Tensor& a : {zero, low, rows, transpose(low)}) {
    const Svd f = svd(a);
    const int64_t k = f.s.size();
    EXPECT_LT(largest(matmul(transpose(f.u), f.u) - eye(k, DType::f64)), 1e-14);
    EXPECT_LT(largest(matmul(f.vh, transpose(f.vh)) - eye(k, DType::f64)), 1e-14);
    EXPECT_LT(largest(matmul(f.u * unsqueeze(f.s, 0), f.vh) - a), 1e-14);
    const Svd single = svd(cast(a, DType::f32));
    EXPECT_LT(largest(single.s - cast(f.s, DType::f32)), 1e-6);
  }
}

TEST(Linalg, VeryLargeAndVerySmallNumbersNeitherOverflowNorVanish) {
  for (const double scale : {1e-30, 1e30}) {
    const Tensor a = values({6, 4}, 3, DType::f32), scaled = a * scale;
    const Svd f = svd(scaled);
    EXPECT_LT(largest(matmul(f.u * unsqueeze(f.s, 0), f.vh) - scaled) / scale, 1e-5);
    const Qr r = qr(scaled);
    EXPECT_LT(largest(matmul(r.q, r.r) - scaled) / scale, 1e-5);
  }
}

TEST(Linalg, SingularMatricesHaveDeterminantZero) {
  const Tensor a = from_vector<double>({1, 2, 2, 4}, {2, 2});
  EXPECT_EQ(det(a).item<double>(), 0);
  EXPECT_EQ(slogdet(a).sign.item<double>(), 0);
  EXPECT_EQ(slogdet(a).logabsdet.item<double>(), -INFINITY);
  EXPECT_EQ(det(zeros({0, 0})).item<float>(), 1);
  EXPECT_TRUE(std::isinf(triangular_solve(zeros({1, 1}), ones({1})).item<float>()));
}

// cuSOLVER's Jacobi iteration never ended over a NaN.
TEST(Linalg, SvdAndEighRefuseValuesThatAreNotFiniteOnEveryDevice) {
  std::vector<Device> devices = {Device{}};
  if (find_backend(DeviceKind::cuda)) devices.push_back({DeviceKind::cuda, 0});
  for (const Device device : devices)
    for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}})
      for (const DType dtype : {DType::f32, DType::f64})
        for (int64_t at = 0; at < 9; ++at) {
          std::vector<double> values = {4, 1, 2, 1, 5, 3, 2, 3, 6};
          values[static_cast<size_t>(at)] = bad;
          const Tensor a = cast(from_vector(values, {3, 3}, device), dtype);
          const Tensor batch = stack({tandem::eye(3, {}, dtype, device), a}, 0);
          EXPECT_HAS(refusal([&] { svd(a); }), "svd: the values must be finite; got NaN or infinite");
          EXPECT_HAS(refusal([&] { svd(batch); }), "in the matrix of element 1 of the batch");
          if (at % 3 > at / 3)
            EXPECT_TRUE(isfinite(sum(eigh(a).values)).item<bool>());  // the upper triangle is not read
          else
            EXPECT_HAS(refusal([&] { eigh(batch); }), "eigh: the values must be finite; got NaN or");
        }
}

TEST(Linalg, PinvOfALowRankMatrixCutsTheSmallValuesOff) {
  const Tensor a = outer(from_vector<double>({1, 2}, {2}), from_vector<double>({3, 4}, {2}));
  const Tensor p = pinv(a);
  EXPECT_LT(largest(matmul(matmul(a, p), a) - a), 1e-13);
  EXPECT_LT(largest(p - transpose(a) / 125.0),
            1e-14);  // of an outer product: its transpose over both squared norms
  EXPECT_EQ(pinv(zeros({0, 3})).shape(), (Dims{3, 0}));
}

}  // namespace
}  // namespace tandem::testing
