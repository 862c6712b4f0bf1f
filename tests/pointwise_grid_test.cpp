// Pointwise ops over grids: pairs of shapes and of types against PyTorch's answers (golden/grid.txt, written by
// golden/make_grid.py), and special values through every floating type, eager and compiled.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "tandem/graph/compile.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

std::vector<std::istringstream> grid_rows(const std::string& kind) {
  std::ifstream in(source_dir() / "tests" / "golden" / "grid.txt");
  std::vector<std::istringstream> rows;
  for (std::string line; std::getline(in, line);)
    if (line.rfind(kind + " ", 0) == 0) rows.emplace_back(line.substr(kind.size() + 1));
  EXPECT_GT(rows.size(), 20u) << kind;
  return rows;
}

Dims parse_shape(const std::string& text) {
  Dims shape;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string part; std::getline(in, part, ',');) shape.push_back(std::stoll(part));
  return shape;
}

std::vector<double> rest_of(std::istringstream& in) {
  std::vector<double> values;
  for (std::string word; in >> word;) values.push_back(std::stod(word));
  return values;
}

Tensor counted(const Dims& shape, int64_t step) {
  std::vector<int64_t> values(static_cast<size_t>(size_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) * step;
  return from_vector(values, shape);
}

TEST(PointwiseGrid, BroadcastingOfEveryPairOfShapesIsPyTorchs) {
  for (std::istringstream& row : grid_rows("shapes")) {
    std::string a, b, result;
    row >> a >> b >> result;
    SCOPED_TRACE(a + " and " + b);
    const Tensor sum = counted(parse_shape(a), 1) + counted(parse_shape(b), 1000);
    EXPECT_EQ(sum.shape(), parse_shape(result));
    EXPECT_EQ(to_array(sum).values, rest_of(row));
  }
}

TEST(PointwiseGrid, ShapesThatPyTorchRefusesAreRefused) {
  for (std::istringstream& row : grid_rows("refused")) {
    std::string a, b;
    row >> a >> b;
    const std::string message = error_of([&] { counted(parse_shape(a), 1) + counted(parse_shape(b), 1000); });
    EXPECT_NE(message.find("add: "), std::string::npos) << a << " and " << b << ": " << message;
  }
}

/// The values of make_grid.py.
Tensor grid_values(DType dtype, bool second) {
  const bool with_sign = dtype >= DType::i8 && dtype <= DType::i64;
  std::vector<double> v;
  if (dtype == DType::boolean)
    v = second ? std::vector<double>{1, 1, 1, 1} : std::vector<double>{1, 0, 1, 1};
  else if (is_floating(dtype))
    v = second ? std::vector<double>{2, -0.5, 3, 1.5} : std::vector<double>{1.5, -2, 3, 5};
  else
    v = second ? std::vector<double>{2, 3, 3, 5} : std::vector<double>{7, with_sign ? -7. : 6., 3, 100};
  return to_tensor(Array({4}, v), dtype);
}

TEST(PointwiseGrid, ValuesOfEveryPairOfTypesArePyTorchs) {
  const std::map<std::string, Tensor (*)(const Operand&, const Operand&)> ops = {
      {"add", add},
      {"mul", mul},
      {"div", div},
      {"pow", pow},
      {"remainder", remainder},
      {"floor_divide", floor_divide},
      {"less", less},
      {"equal", equal},
      {"where", [](const Operand& a, const Operand& b) {
         return where(to_tensor(Array({4}, {1, 0, 1, 0}), DType::boolean), a, b);
       }}};
  const std::map<DType, double> precision = {
      {DType::f64, 0x1p-51}, {DType::f32, 0x1p-22}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-10}};
  int compared = 0;
  for (std::istringstream& row : grid_rows("values")) {
    std::string op, a, b, result;
    row >> op >> a >> b >> result;
    SCOPED_TRACE(op + " of " + a + " and " + b);
    const bool arithmetic = op == "pow" || op == "remainder" || op == "floor_divide";
    const Tensor x = grid_values(parse_dtype(a), false), y = grid_values(parse_dtype(b), true);
    if (arithmetic && x.dtype() == DType::boolean && y.dtype() == DType::boolean) {
      // Numbers only: PyTorch has a power of bools.
      EXPECT_NE(error_of([&] { ops.at(op)(x, y); }).find("bool"), std::string::npos);
      continue;
    }
    const Tensor z = ops.at(op)(x, y);
    EXPECT_EQ(z.dtype(), parse_dtype(result));
    const std::vector<double> want = rest_of(row), got = to_array(z).values;
    ASSERT_EQ(want.size(), 4u);
    for (size_t i = 0; i < want.size(); ++i) {
      const double allowed = is_floating(z.dtype()) ? precision.at(z.dtype()) * std::abs(want[i]) : 0;
      if (std::isnan(want[i]) || std::isinf(want[i]))
        EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << got[i];
      else
        EXPECT_NEAR(got[i], want[i], allowed) << "element " << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 900);
}

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> values_of(const Tensor& x) { return to_array(x).values; }

/// The same numbers, signs of zeros included; any NaN equals any.
void expect_values(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> values = values_of(got);
  ASSERT_EQ(values.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(std::isnan(want[i])
                    ? std::isnan(values[i])
                    : values[i] == want[i] && std::signbit(values[i]) == std::signbit(want[i]))
        << what << ", element " << i << ": " << values[i] << ", expected " << want[i];
}

TEST(PointwiseGrid, SpecialValuesGoThroughEveryFloatingType) {
  const std::vector<double> special = {kNan, kInf, -kInf, 0., -0., 1., -1., 2.5, -2.5};
  const struct {
    const char* name;
    Tensor (*call)(const Tensor&);
    std::vector<double> want;
  } rows[] = {
      {"isnan", isnan, {1, 0, 0, 0, 0, 0, 0, 0, 0}},
      {"isinf", isinf, {0, 1, 1, 0, 0, 0, 0, 0, 0}},
      {"isfinite", isfinite, {0, 0, 0, 1, 1, 1, 1, 1, 1}},
      {"floor", floor, {kNan, kInf, -kInf, 0., -0., 1, -1, 2, -3}},
      {"ceil", ceil, {kNan, kInf, -kInf, 0., -0., 1, -1, 3, -2}},
      {"round", round, {kNan, kInf, -kInf, 0., -0., 1, -1, 2, -2}},
      {"trunc", trunc, {kNan, kInf, -kInf, 0., -0., 1, -1, 2, -2}},
      {"relu", relu, {kNan, kInf, 0., 0., 0., 1, 0., 2.5, 0.}},
      {"relu6", relu6, {kNan, 6, 0., 0., 0., 1, 0., 2.5, 0.}},
      {"reciprocal", reciprocal, {kNan, 0., -0., kInf, -kInf, 1, -1, 0.4, -0.4}},
      {"clamp", [](const Tensor& x) { return clamp(x, -2, 2); }, {kNan, 2, -2, 0., -0., 1, -1, 2, -2}},
      {"leaky_relu",
       [](const Tensor& x) { return leaky_relu(x, 0.5); },
       {kNan, kInf, -kInf, 0., -0., 1, -0.5, 2.5, -1.25}},
      {"threshold", [](const Tensor& x) { return threshold(x, 1, 7); }, {kNan, kInf, 7, 7, 7, 7, 7, 2.5, 7}},
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = to_tensor(Array({9}, special), dtype);
    for (const auto& row : rows) {
      std::vector<double> want = row.want;
      for (double& v : want) v = values_of(to_tensor(Array({1}, {v}), dtype))[0];  // 0.4 in this type
      const std::string what = std::string(row.name) + " in " + name(dtype);
      expect_values(row.call(x), want, what);
      Compiled compiled =
          compile([&](const std::vector<Tensor>& in) { return std::vector{row.call(in[0])}; });
      expect_values(compiled({x})[0], want, what + ", compiled");
    }
    // Smooth functions at their ends
    const auto at = [&](const Tensor& y, size_t i) { return values_of(y)[i]; };
    EXPECT_EQ(at(sigmoid(x), 1), 1);
    EXPECT_EQ(at(sigmoid(x), 2), 0);
    EXPECT_EQ(at(softplus(x), 1), kInf);
    EXPECT_EQ(at(softplus(x), 2), 0);
    EXPECT_EQ(at(logsigmoid(x), 2), -kInf);
    EXPECT_EQ(at(elu(x), 2), -1);
    EXPECT_EQ(at(elu(x), 1), kInf);
    EXPECT_EQ(at(gelu(x), 1), kInf);
    EXPECT_EQ(at(silu(x), 1), kInf);
    EXPECT_EQ(at(atan2(x, x), 3), 0);
    EXPECT_EQ(at(hypot(x, 1), 2), kInf);
    for (Tensor (*f)(const Tensor&) :
         {gelu, silu, mish, gelu_tanh, softsign, logsigmoid, exp2, log1p, tan, erfc})
      EXPECT_TRUE(std::isnan(at(f(x), 0)));
  }
}

TEST(PointwiseGrid, RemaindersOfSpecialValuesArePyTorchs) {
  const auto one = [](double v) { return full({1}, v, DType::f64); };
  const auto check = [&](double a, double b, double remainder_wanted, double quotient_wanted) {
    expect_values(remainder(one(a), one(b)), {remainder_wanted}, str("remainder of ", a, " and ", b));
    expect_values(floor_divide(one(a), one(b)), {quotient_wanted}, str("floor_divide of ", a, " and ", b));
  };
  check(5, 0, kNan, kInf);
  check(-5, 0, kNan, -kInf);
  check(kInf, 2, kNan, kNan);
  check(5, kInf, 5, 0);
  check(-5, kInf, kInf, -1);
  check(0, 3, 0, 0);
  EXPECT_EQ(floor_divide(one(1), one(0.1)).item<double>(), 9);  // 0.1 is a little more than a tenth
  EXPECT_NEAR(remainder(one(1), one(0.1)).item<double>(), 0.1, 1e-15);
}

TEST(PointwiseGrid, IntegerDivisionByZeroIsDefinedInEveryType) {
  for (const DType dtype :
       {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64}) {
    const Tensor a = to_tensor(Array({3}, {0, 7, 100}), dtype), zero = zeros({3}, dtype);
    EXPECT_EQ(values_of(remainder(a, zero)), values_of(a)) << dtype;
    EXPECT_EQ(values_of(fmod(a, zero)), values_of(a)) << dtype;
    EXPECT_EQ(values_of(floor_divide(a, zero)), values_of(zero)) << dtype;
  }
  const Tensor lowest = full({1}, 1, DType::i64) * std::numeric_limits<int64_t>::min();
  EXPECT_EQ(floor_divide(lowest, -1).item<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(remainder(lowest, -1).item<int64_t>(), 0);
}

TEST(PointwiseGrid, ShiftsBeyondTheWidthShiftEverythingOut) {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    const int width = static_cast<int>(8 * bytes_of(dtype));
    const Tensor x = to_tensor(Array({3}, {1, -1, 5}), dtype);
    EXPECT_EQ(values_of(bitwise_left_shift(x, width)), std::vector<double>({0, 0, 0})) << dtype;
    EXPECT_EQ(values_of(bitwise_right_shift(x, width)), std::vector<double>({0, -1, 0})) << dtype;
    EXPECT_EQ(values_of(bitwise_left_shift(x, -1)), std::vector<double>({0, 0, 0})) << dtype;
    EXPECT_EQ(values_of(bitwise_right_shift(x, -1)), std::vector<double>({0, -1, 0})) << dtype;
    EXPECT_EQ(values_of(bitwise_right_shift(x, 1)), std::vector<double>({0, -1, 2})) << dtype;
  }
  EXPECT_EQ(values_of(bitwise_not(to_tensor(Array({2}, {1, 0}), DType::boolean))),
            std::vector<double>({0, 1}));
  EXPECT_EQ(values_of(bitwise_not(to_tensor(Array({2}, {1, 0}), DType::u8))),
            std::vector<double>({254, 255}));
}

TEST(PointwiseGrid, RoundingOfIntegersIsTheIdentity) {
  const Tensor x = to_tensor(Array({3}, {1, -2, 3}), DType::i32);
  for (Tensor (*f)(const Tensor&) : {floor, ceil, round, trunc}) {
    EXPECT_EQ(f(x).dtype(), DType::i32);
    EXPECT_EQ(values_of(f(x)), values_of(x));
  }
  EXPECT_EQ(values_of(isfinite(x)), std::vector<double>({1, 1, 1}));
  EXPECT_EQ(values_of(isnan(x)), std::vector<double>({0, 0, 0}));
  EXPECT_EQ(values_of(isinf(x)), std::vector<double>({0, 0, 0}));
}

TEST(PointwiseGrid, OperatorsOfBitsAreThoseOfCppForIntegersAndBool) {
  const Tensor i = to_tensor(Array({3}, {6, -1, 5}), DType::i32),
               j = to_tensor(Array({3}, {3, 8, 5}), DType::i32);
  EXPECT_EQ(values_of(i & j), std::vector<double>({2, 8, 5}));
  EXPECT_EQ(values_of(i | 1), std::vector<double>({7, -1, 5}));
  EXPECT_EQ(values_of(3 ^ i), std::vector<double>({5, -4, 6}));
  EXPECT_EQ(values_of(~i), std::vector<double>({-7, 0, -6}));
  EXPECT_EQ(values_of(!(i - 6)), std::vector<double>({1, 0, 0}));
  const Tensor p = to_tensor(Array({4}, {0, 0, 1, 1}), DType::boolean),
               q = to_tensor(Array({4}, {0, 1, 0, 1}), DType::boolean);
  for (const Tensor& t : {p & q, p | q, p ^ q, ~p, !p, p + q, p * q, p + true, true * p, p & true})
    EXPECT_EQ(t.dtype(), DType::boolean);
  EXPECT_EQ(values_of(p & q), std::vector<double>({0, 0, 0, 1}));
  EXPECT_EQ(values_of(p | q), std::vector<double>({0, 1, 1, 1}));
  EXPECT_EQ(values_of(p ^ q), std::vector<double>({0, 1, 1, 0}));
  EXPECT_EQ(values_of(~p), std::vector<double>({1, 1, 0, 0}));
  EXPECT_EQ(values_of(!p), std::vector<double>({1, 1, 0, 0}));
  EXPECT_EQ(values_of(p + q), std::vector<double>({0, 1, 1, 1}));
  EXPECT_EQ(values_of(p * q), std::vector<double>({0, 0, 0, 1}));
  EXPECT_EQ((p + 1).dtype(), DType::i64);
  EXPECT_NE(error_of([&] { p - q; }).find("sub: "), std::string::npos);
  EXPECT_NE(error_of([&] { ones({2}) & 1; }).find("bitwise_and: "), std::string::npos);
}

TEST(PointwiseGrid, ClosenessIsPyTorchsForInfinitiesNanAndIntegers) {
  const Tensor a = to_tensor(Array({6}, {kInf, -kInf, kInf, kNan, 1, 100}), DType::f32),
               b = to_tensor(Array({6}, {kInf, kInf, 1, kNan, 1.000001, 100.1}), DType::f32);
  EXPECT_EQ(values_of(isclose(a, b)), std::vector<double>({1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values_of(isclose(a, b, 1e-5, 1e-8, true)), std::vector<double>({1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(values_of(isclose(a, b, kInf, kInf)), std::vector<double>({1, 0, 0, 0, 1, 1}));
  EXPECT_FALSE(allclose(a, b));
  EXPECT_TRUE(allclose(a, a, 0, 0, true));
  EXPECT_TRUE(allclose(ones({0}), ones({0})));
  const Tensor i = from_vector<uint8_t>({3, 250, 0}, {3}), j = from_vector<uint8_t>({5, 249, 255}, {3});
  EXPECT_EQ(values_of(isclose(i, j, 0, 2)), std::vector<double>({1, 1, 0}));
  const Tensor low = full({1}, INT64_MIN, DType::i64), high = full({1}, INT64_MAX, DType::i64);
  EXPECT_FALSE(allclose(low, high));
  EXPECT_TRUE(allclose(ones({2}, DType::f32), ones({2, 2}, DType::i64)));
}

TEST(PointwiseGrid, NumbersTakeThePlaceOfNanAndInfinitiesInEveryType) {
  for (const auto& [dtype, most] :
       {std::pair{DType::f64, 1.7976931348623157e308}, std::pair{DType::f32, 3.4028234663852886e38},
        std::pair{DType::bf16, 3.3895313892515355e38}, std::pair{DType::f16, 65504.}}) {
    const Tensor x = to_tensor(Array({4}, {kNan, kInf, -kInf, 1.5}), dtype);
    EXPECT_EQ(values_of(nan_to_num(x)), std::vector<double>({0, most, -most, 1.5})) << dtype;
    EXPECT_EQ(nan_to_num(x).dtype(), dtype);
    EXPECT_EQ(values_of(nan_to_num(x, 2, 3)), std::vector<double>({2, 3, -most, 1.5})) << dtype;
  }
  EXPECT_EQ(values_of(nan_to_num(to_tensor(Array({2}, {4, 5}), DType::i32))), std::vector<double>({4, 5}));
}

TEST(PointwiseGrid, ClampTakesEitherBoundAndMixedTypes) {
  const Tensor x = to_tensor(Array({4}, {-3, 0, 2, 9}), DType::i32);
  EXPECT_EQ(clamp(x, -1, 5).dtype(), DType::i32);
  EXPECT_EQ(values_of(clamp(x, -1, 5)), std::vector<double>({-1, 0, 2, 5}));
  EXPECT_EQ(clamp(x, -1.5, 5).dtype(), DType::f32);
  EXPECT_EQ(values_of(clamp(x, -1.5, 5)), std::vector<double>({-1.5, 0, 2, 5}));
  EXPECT_EQ(values_of(clamp(x, {}, 1)), std::vector<double>({-3, 0, 1, 1}));
  EXPECT_EQ(values_of(clamp(x, 1, {})), std::vector<double>({1, 1, 2, 9}));
  EXPECT_EQ(values_of(clamp(x, 5, 1)), std::vector<double>({1, 1, 1, 1}));  // the upper bound wins
}

}  // namespace
}  // namespace tandem::testing
