// How types combine: against PyTorch's own answers (golden/promotion.txt), and the rules for plain numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

struct Row {
  std::string kind, a, b, result;
};

std::vector<Row> rows(const std::string& kind) {
  std::ifstream in(source_dir() / "tests" / "golden" / "promotion.txt");
  std::vector<Row> found;
  for (Row row; in >> row.kind >> row.a >> row.b >> row.result;)
    if (row.kind == kind) found.push_back(row);
  EXPECT_GT(found.size(), 30u) << kind;
  return found;
}

/// maximum() takes every type, bool too, and does nothing to the types but promote them.
DType type_of(const Operand& a, const Operand& b) { return maximum(a, b).dtype(); }

TEST(Promotion, OfTwoTypesIsPyTorchs) {
  for (const Row& row : rows("types")) {
    const DType a = parse_dtype(row.a), b = parse_dtype(row.b), want = parse_dtype(row.result);
    EXPECT_EQ(promote(a, b), want) << row.a << " and " << row.b;
    EXPECT_EQ(type_of(ones({2}, a), ones({2}, b)), want) << row.a << " and " << row.b;
  }
}

TEST(Promotion, IsSymmetricIdempotentAndDefinedForEveryPair) {
  for (int i = 0; i < kDTypeCount; ++i)
    for (int j = 0; j < kDTypeCount; ++j) {
      const DType a = static_cast<DType>(i), b = static_cast<DType>(j);
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_EQ(promote(a, a), a);
      EXPECT_GE(info(promote(a, b)).kind, std::max(info(a).kind, info(b).kind)) << a << " and " << b;
    }
}

TEST(Promotion, OfUnsignedTypesWithoutAnAnswerInPyTorchIsAsDocumented) {
  EXPECT_EQ(promote(DType::u16, DType::i16), DType::i32);
  EXPECT_EQ(promote(DType::u16, DType::i64), DType::i64);
  EXPECT_EQ(promote(DType::u32, DType::i8), DType::i64);
  EXPECT_EQ(promote(DType::u16, DType::u32), DType::u32);
  for (const DType with_sign : {DType::i8, DType::i16, DType::i32, DType::i64})
    EXPECT_EQ(promote(DType::u64, with_sign), DType::f32);
}

TEST(Promotion, OfATensorWithAxesAndOneWithoutIsPyTorchs) {
  for (const Row& row : rows("zero_d"))
    EXPECT_EQ(type_of(ones({2}, parse_dtype(row.a)), ones({}, parse_dtype(row.b))), parse_dtype(row.result))
        << row.a << " (2,) and " << row.b << " ()";
  for (const Row& row : rows("both_zero_d"))
    EXPECT_EQ(type_of(ones({}, parse_dtype(row.a)), ones({}, parse_dtype(row.b))), parse_dtype(row.result))
        << row.a << " () and " << row.b << " ()";
}

TEST(Promotion, OfATensorAndANumberIsPyTorchs) {
  for (const char* kind : {"number", "zero_d_number"}) {
    const Dims shape = std::string(kind) == "number" ? Dims{2} : Dims{};
    for (const Row& row : rows(kind)) {
      const Tensor x = ones(shape, parse_dtype(row.a));
      const DType want = parse_dtype(row.result);
      const Operand number = row.b == "bool" ? Operand(true) : row.b == "int" ? Operand(2) : Operand(2.5);
      EXPECT_EQ(type_of(x, number), want) << row.a << " " << shape << " and a number: " << row.b;
      EXPECT_EQ(type_of(number, x), want) << row.a << " " << shape << " and a number: " << row.b;
    }
  }
}

TEST(Promotion, AnOperatorGivesOneTypeWithTheNumberOnEitherSide) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Tensor x = full({2}, 1, dtype);
    const auto check = [&](auto number) {
      EXPECT_EQ((number / x).dtype(), (x / number).dtype()) << dtype;
      EXPECT_EQ((number + x).dtype(), (x + number).dtype()) << dtype;
      EXPECT_EQ((number * x).dtype(), (x * number).dtype()) << dtype;
      if (dtype == DType::boolean && std::is_same_v<decltype(number), bool>)
        return;  // bools have no difference
      EXPECT_EQ((number - x).dtype(), (x - number).dtype()) << dtype;
    };
    check(2);
    check(2u);
    check(int64_t{2});
    check(size_t{2});
    check(short{2});
    check(2.5);
    check(2.5f);
    check(true);
  }
  const Tensor i = from_vector<int64_t>({3, 9007199254740993}, {2});
  EXPECT_EQ((2 * i).to_vector<int64_t>(), (std::vector<int64_t>{6, 18014398509481986}));
  EXPECT_EQ((1 - i).to_vector<int64_t>(), (std::vector<int64_t>{-2, -9007199254740992}));
  EXPECT_EQ((1 + full({1}, 3, DType::u8)).dtype(), DType::u8);
  EXPECT_EQ((2 / i).dtype(), DType::f32);
  EXPECT_EQ((2.0 * i).dtype(), DType::f32);
  for (Tensor (*f)(const Operand&, const Operand&) : {add,
                                                      sub,
                                                      mul,
                                                      div,
                                                      pow,
                                                      remainder,
                                                      fmod,
                                                      floor_divide,
                                                      maximum,
                                                      minimum,
                                                      equal,
                                                      not_equal,
                                                      less,
                                                      less_equal,
                                                      greater,
                                                      greater_equal,
                                                      logical_and,
                                                      logical_or,
                                                      logical_xor,
                                                      bitwise_and,
                                                      bitwise_or,
                                                      bitwise_xor,
                                                      bitwise_left_shift,
                                                      bitwise_right_shift,
                                                      atan2,
                                                      hypot,
                                                      logaddexp})
    EXPECT_EQ(f(2, i).dtype(), f(i, 2).dtype());
}

TEST(Promotion, NumbersKeepTheirValueInTheTensorsType) {
  EXPECT_EQ(add(ones({1}, DType::i64), int64_t{9007199254740993}).item<int64_t>(), 9007199254740994);
  EXPECT_EQ(add(ones({1}, DType::u8), 255).item<int>(), 0);  // wraps
  EXPECT_EQ(sub(full({1}, 3, DType::u8), 5).item<int>(), 254);
  EXPECT_EQ(mul(full({1}, 3, DType::bf16), 0.5).item<float>(), 1.5f);
  EXPECT_EQ(mul(full({1}, 3, DType::i32), 0.5).item<float>(), 1.5f);
}

TEST(Promotion, DivisionAndFunctionsOfIntegersGiveF32) {
  for (const DType dtype : {DType::i8, DType::i32, DType::i64, DType::u8, DType::boolean}) {
    EXPECT_EQ(div(ones({2}, dtype), ones({2}, dtype)).dtype(), DType::f32);
    for (Tensor (*f)(const Tensor&) : {exp, log, sqrt, rsqrt, sin, cos, tanh, erf, sigmoid})
      EXPECT_EQ(f(ones({2}, dtype)).dtype(), DType::f32);
  }
  EXPECT_EQ(div(ones({2}, DType::i32), ones({2}, DType::f64)).dtype(), DType::f64);
  EXPECT_EQ(div(ones({2}, DType::i32), 2).dtype(), DType::f32);
  EXPECT_FLOAT_EQ(div(full({1}, 7, DType::i32), 2).item<float>(), 3.5f);
}

TEST(Promotion, OfOpsWithRulesOfTheirOwn) {
  const Tensor whole = ones({2}, DType::i32), wide = ones({2}, DType::i64), truth = ones({2}, DType::boolean);
  const Tensor half = ones({2}, DType::bf16);
  for (Tensor (*f)(const Operand&, const Operand&) : {atan2, hypot, logaddexp, div}) {
    EXPECT_EQ(f(whole, whole).dtype(), DType::f32);
    EXPECT_EQ(f(truth, wide).dtype(), DType::f32);
    EXPECT_EQ(f(half, wide).dtype(), DType::bf16);
  }
  for (Tensor (*f)(const Operand&, const Operand&) : {remainder, fmod, floor_divide}) {
    EXPECT_EQ(f(whole, wide).dtype(), DType::i64);
    EXPECT_EQ(f(whole, 2).dtype(), DType::i32);
    EXPECT_EQ(f(whole, 2.5).dtype(), DType::f32);
    EXPECT_EQ(f(truth, whole).dtype(), DType::i32);
    EXPECT_EQ(f(half, whole).dtype(), DType::bf16);
  }
  for (Tensor (*f)(const Operand&, const Operand&) : {bitwise_and, bitwise_or, bitwise_xor}) {
    EXPECT_EQ(f(whole, wide).dtype(), DType::i64);
    EXPECT_EQ(f(truth, truth).dtype(), DType::boolean);
    EXPECT_EQ(f(truth, whole).dtype(), DType::i32);
    EXPECT_EQ(f(ones({2}, DType::u8), 3).dtype(), DType::u8);
  }
  EXPECT_EQ(bitwise_left_shift(ones({2}, DType::u8), 3).dtype(), DType::u8);
  EXPECT_EQ(bitwise_left_shift(ones({2}, DType::u8), whole).dtype(), DType::i32);
  for (Tensor (*f)(const Tensor&) : {exp2, expm1, log2, log10, log1p, tan, asin, acos, atan, sinh, cosh,
                                     asinh, acosh, atanh, erfc, erfinv, lgamma, digamma})
    EXPECT_EQ(f(whole).dtype(), DType::f32);
  EXPECT_EQ(polygamma(2, whole).dtype(), DType::f32);
  EXPECT_EQ(reciprocal(whole).dtype(), DType::f32);
  EXPECT_EQ(square(whole).dtype(), DType::i32);
  for (Tensor (*f)(const Tensor&) : {isnan, isinf, isfinite}) EXPECT_EQ(f(half).dtype(), DType::boolean);
}

TEST(Promotion, SumsOfIntegersAndBoolAreI64) {
  for (const DType dtype : {DType::i8, DType::u8, DType::i32, DType::u64, DType::boolean}) {
    EXPECT_EQ(sum(ones({300}, dtype)).dtype(), DType::i64);
    EXPECT_EQ(sum(ones({300}, dtype)).item<int64_t>(), 300);
  }
}

TEST(Promotion, GradientsArriveInEachOperandsType) {
  Tensor x = ones({3}, DType::bf16).set_requires_grad(), y = full({3}, 2, DType::f64).set_requires_grad();
  backward(sum(x * y));
  EXPECT_EQ(x.grad().dtype(), DType::bf16);
  EXPECT_EQ(y.grad().dtype(), DType::f64);
  EXPECT_EQ(to_array(x.grad()).values, std::vector<double>({2, 2, 2}));
}

TEST(Casts, TruncateSaturateAndMapNanToZero) {
  const Tensor x = from_vector<float>({-1e9f, -3.7f, -0.5f, 0.f, 0.5f, 3.7f, 1e9f, std::nanf("")}, {8});
  EXPECT_EQ(to_array(cast(x, DType::i8)).values, std::vector<double>({-128, -3, 0, 0, 0, 3, 127, 0}));
  EXPECT_EQ(to_array(cast(x, DType::u8)).values, std::vector<double>({0, 0, 0, 0, 0, 3, 255, 0}));
  EXPECT_EQ(to_array(cast(x, DType::i64)).values, std::vector<double>({-1e9, -3, 0, 0, 0, 3, 1e9, 0}));
  EXPECT_EQ(to_array(cast(x, DType::boolean)).values, std::vector<double>({1, 1, 1, 0, 1, 1, 1, 1}));
}

TEST(Casts, EveryHalfSurvivesTheWayThroughFloat) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    const Tensor x = from_host(bits.data(), {65536}, dtype);
    EXPECT_TRUE(same_bits(cast(cast(x, DType::f32), dtype), x));
    EXPECT_TRUE(same_bits(cast(cast(x, DType::f64), dtype), x));
  }
}

TEST(Casts, ToHalvesRoundToNearestEven) {
  // 1 + 2^-8 lies half-way between two bf16 numbers, 1 + 3·2^-8 likewise; ties go to the even one.
  EXPECT_EQ(cast(full({}, 1 + 0x1p-8), DType::bf16).item<float>(), 1.f);
  EXPECT_EQ(cast(full({}, 1 + 3 * 0x1p-8), DType::bf16).item<float>(), 1 + 0x1p-6f);
  EXPECT_EQ(cast(full({}, 1 + 0x1p-11), DType::f16).item<float>(), 1.f);
  EXPECT_EQ(cast(full({}, 65519), DType::f16).item<float>(), 65504.f);
  EXPECT_TRUE(std::isinf(cast(full({}, 65520), DType::f16).item<float>()));
  EXPECT_EQ(cast(full({}, 0x1p-24), DType::f16).item<float>(), 0x1p-24f);  // the smallest subnormal
  EXPECT_EQ(cast(full({}, 0x1p-25), DType::f16).item<float>(), 0.f);
}

}  // namespace
}  // namespace tandem::testing
