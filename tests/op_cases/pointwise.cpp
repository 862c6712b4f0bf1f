// Cases of the pointwise ops: every row of TD_POINTWISE_OPS, and cast.
#include "tandem/ops/pointwise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Binary {
  const char* name;
  Tensor (*call)(const Operand&, const Operand&);
  double (*reference)(double, double);
};

struct Unary {
  const char* name;
  Tensor (*call)(const Tensor&);
  double (*reference)(double);
  double low = -2, high = 2;
};

// Whole numbers by 0: the quotient is 0, the remainder what was divided.
double floor_divide_of(double a, double b) { return b == 0 ? 0 : std::floor(a / b); }
double remainder_of(double a, double b) { return b == 0 ? a : a - b * std::floor(a / b); }
double fmod_of(double a, double b) { return b == 0 ? a : std::fmod(a, b); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf_of(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.)); }
double softplus_of(double x) { return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0.); }
double gelu_tanh_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double elu_of(double x, double alpha) { return x > 0 ? x : alpha * (std::exp(x) - 1); }
double within(double x, double low, double high) { return std::min(std::max(x, low), high); }

/// The n-th derivative of digamma for x > 0, by a hundred terms of its series and the integral of the others, which two
/// corrections make exact.
double polygamma_of(int n, double x) {
  const double sign = n % 2 ? 1 : -1, factor = std::tgamma(n + 1.), end = x + 100;
  double total = 0;
  for (int k = 0; k < 100; ++k) total += n ? factor * std::pow(x + k, -n - 1.) : 1 / (x + k);
  const double p = std::pow(end, -n - 1.);
  const double rest =
      n ? factor * p *
              (end / n + 0.5 + (n + 1) / end / 12 - (n + 1.) * (n + 2.) * (n + 3.) / std::pow(end, 3) / 720)
        : -std::log(end) + 0.5 / end + 1 / (12 * end * end) - 1 / (120 * std::pow(end, 4));
  return sign * (total + rest);
}
double erfinv_of(double x) {  // Newton's steps from 0: erf bends away from its tangents
  double y = 0;
  for (int i = 0; i < 60; ++i) y += (x - std::erf(y)) * std::sqrt(std::numbers::pi) / 2 * std::exp(y * y);
  return y;
}
/// -(dP/da) / (dP/dx) of the gamma distribution, by integrating the derivative of its density over t = x u, u = 0 … 1, with
/// points that crowd at both ends (tanh-sinh).
double gamma_slope_of(double a, double x) {
  constexpr double kStep = 1. / 32;
  const double psi = polygamma_of(0, a);
  double total = 0;
  for (int k = -128; k <= 128; ++k) {
    const double v = std::numbers::pi / 2 * std::sinh(k * kStep), u = 1 / (1 + std::exp(-2 * v));
    const double left = 1 / (1 + std::exp(2 * v));  // 1 - u
    const double weight = kStep * std::numbers::pi * std::cosh(k * kStep) * u * left;
    const double density = std::exp((a - 1) * std::log(u) + x * left);  // over that at x
    total += weight * density * (std::log(x * u) - psi);
  }
  return -x * total;
}
double logaddexp_of(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

CaseReference reference_of(double (*f)(double, double)) {
  return [f](std::span<const Array> in) {
    Array out(stretched(in[0].shape, in[1].shape));
    each_index(out.shape,
               [&](const Dims& i) { out.at(i) = f(stretched_at(in[0], i), stretched_at(in[1], i)); });
    return out;
  };
}

CaseReference reference_of(double (*f)(double, double, double)) {
  return [f](std::span<const Array> in) {
    Array out(stretched(in[0].shape, stretched(in[1].shape, in[2].shape)));
    each_index(out.shape, [&](const Dims& i) {
      out.at(i) = f(stretched_at(in[0], i), stretched_at(in[1], i), stretched_at(in[2], i));
    });
    return out;
  };
}

CaseReference reference_of(double (*f)(double)) {
  return [f](std::span<const Array> in) {
    Array out(in[0].shape);
    for (int64_t i = 0; i < out.size(); ++i) out[i] = f(in[0][i]);
    return out;
  };
}

/// The case itself (broadcast), a 0-d second operand, and an empty one.
void add_binary(std::vector<OpCase>& cases, OpCase op_case) {
  cases.push_back(op_case);
  cases.push_back(with_shapes(op_case, op_case.name + "/same_shape", {{3, 5}, {3, 5}}));
  cases.push_back(with_shapes(op_case, op_case.name + "/scalar", {{2, 3}, {}}));
  cases.push_back(with_shapes(op_case, op_case.name + "/empty", {{0, 3}, {3}}));
}

OpCase binary_case(const Binary& row, double low_a, double high_a, double low_b, double high_b) {
  OpCase op_case;
  op_case.name = row.name;
  op_case.inputs = {{{3, 4, 5}, low_a, high_a}, {{4, 1}, low_b, high_b}};
  op_case.call = [call = row.call](std::span<const Tensor> in) { return call(in[0], in[1]); };
  op_case.reference = reference_of(row.reference);
  return op_case;
}

void add_arithmetic(std::vector<OpCase>& cases) {
  OpCase add_case = binary_case({"add", add, [](double a, double b) { return a + b; }}, -2, 2, -2, 2);
  add_case.dtypes = kNumbers;
  add_binary(cases, add_case);
  OpCase large = with_shapes(add_case, "add/large", {{3, 40009}, {40009}});
  large.dtypes = kHalves;
  cases.push_back(large);
  OpCase sub_case = binary_case({"sub", sub, [](double a, double b) { return a - b; }}, -2, 2, -2, 2);
  sub_case.dtypes = kSigned;
  add_binary(cases, sub_case);
  OpCase mul_case = binary_case({"mul", mul, [](double a, double b) { return a * b; }}, -2, 2, -2, 2);
  mul_case.dtypes = kNumbers;
  add_binary(cases, mul_case);
  OpCase div_case = binary_case({"div", div, [](double a, double b) { return a / b; }}, -2, 2, 0.5, 2);
  div_case.dtypes = kNumbers;
  div_case.int_low = 1;
  add_binary(cases, div_case);
  OpCase pow_case =
      binary_case({"pow", pow, [](double a, double b) { return std::pow(a, b); }}, 0.25, 2, -2, 2);
  pow_case.dtypes = kNumbers;
  pow_case.int_high = 4;
  add_binary(cases, pow_case);
  OpCase square = pow_case;  // a negative base with a whole power written as a number
  square.name = "pow/square";
  square.inputs = {{{4, 5}, -2, 2}};
  square.call = [](std::span<const Tensor> in) { return pow(in[0], 2); };
  square.reference = reference_of([](double x) { return x * x; });
  cases.push_back(square);
  OpCase cube = square;
  cube.name = "pow/cube";
  cube.call = [](std::span<const Tensor> in) { return pow(in[0], 3); };
  cube.reference = reference_of([](double x) { return x * x * x; });
  cases.push_back(cube);
  for (const Binary& row : {Binary{"remainder", remainder, remainder_of}, Binary{"fmod", fmod, fmod_of},
                            Binary{"floor_divide", floor_divide, floor_divide_of}}) {
    OpCase op_case = binary_case(row, -4, 4, 0.5, 2);
    op_case.dtypes = kNumbers;
    op_case.half_ulps = 8;  // a remainder is as exact as its operands, not as itself
    op_case.gradient = op_case.second_order = row.call != floor_divide;
    add_binary(cases, op_case);
    OpCase with_sign = with_shapes(op_case, op_case.name + "/negative", {{40}, {40}});
    with_sign.dtypes = kSigned;
    with_sign.inputs[1].low = -2;
    with_sign.inputs[1].high = -0.5;
    with_sign.int_low = -4;
    cases.push_back(with_sign);
  }
  add_binary(cases, binary_case({"atan2", atan2, [](double a, double b) { return std::atan2(a, b); }}, -2, 2,
                                -2, -0.25));
  add_binary(cases, binary_case({"hypot", hypot, [](double a, double b) { return std::hypot(a, b); }}, -2, 2,
                                0.25, 2));
  // Among them the origin, where neither has a slope.
  cases.push_back(with_shapes(
      binary_case({"atan2", atan2, [](double a, double b) { return std::atan2(a, b); }}, -2, 2, -2, 2),
      "atan2/origin", {{3, 5}, {3, 5}}));
  cases.push_back(with_shapes(
      binary_case({"hypot", hypot, [](double a, double b) { return std::hypot(a, b); }}, -2, 2, -2, 2),
      "hypot/origin", {{3, 5}, {3, 5}}));
  // x^0, whose slope by x still depends on the exponent.
  cases.push_back(
      with_shapes(binary_case({"pow", pow, [](double a, double b) { return std::pow(a, b); }}, 0.5, 2, -1, 1),
                  "pow/exponents_around_zero", {{3, 5}, {3, 5}}));
  OpCase sum_of_powers = binary_case({"logaddexp", logaddexp, logaddexp_of}, -3, 3, -3, 3);
  add_binary(cases, sum_of_powers);
  OpCase slope = binary_case({"gamma_slope", gamma_slope, gamma_slope_of}, 0.5, 6, 0.1, 3);
  slope.gradient = slope.second_order = false;
  add_binary(cases, slope);
  OpCase largest =
      binary_case({"maximum", maximum, [](double a, double b) { return a > b ? a : b; }}, -2, 2, -1, 1);
  largest.dtypes = kEvery;
  add_binary(cases, largest);
  OpCase smallest =
      binary_case({"minimum", minimum, [](double a, double b) { return a < b ? a : b; }}, -2, 2, -1, 1);
  smallest.dtypes = kEvery;
  add_binary(cases, smallest);
}

void add_comparisons(std::vector<OpCase>& cases) {
  const Binary rows[] = {
      {"equal", equal, [](double a, double b) { return a == b ? 1. : 0.; }},
      {"not_equal", not_equal, [](double a, double b) { return a != b ? 1. : 0.; }},
      {"less", less, [](double a, double b) { return a < b ? 1. : 0.; }},
      {"less_equal", less_equal, [](double a, double b) { return a <= b ? 1. : 0.; }},
      {"greater", greater, [](double a, double b) { return a > b ? 1. : 0.; }},
      {"greater_equal", greater_equal, [](double a, double b) { return a >= b ? 1. : 0.; }},
      {"logical_and", logical_and, [](double a, double b) { return a != 0 && b != 0 ? 1. : 0.; }},
      {"logical_or", logical_or, [](double a, double b) { return a != 0 || b != 0 ? 1. : 0.; }},
      {"logical_xor", logical_xor, [](double a, double b) { return (a != 0) != (b != 0) ? 1. : 0.; }},
  };
  for (const Binary& row : rows) {
    OpCase op_case = binary_case(row, -2, 2, -2, 2);
    op_case.dtypes = kEvery;
    op_case.int_high = 3;  // so that equal values and zeros occur
    op_case.gradient = op_case.second_order = false;
    add_binary(cases, op_case);
  }
}

/// Integers: every type, and i64 once more under a name of its own, for PyTorch's values.
void add_bits(std::vector<OpCase>& cases) {
  const Binary rows[] = {
      {"bitwise_and", bitwise_and,
       [](double a, double b) { return double(static_cast<int64_t>(a) & static_cast<int64_t>(b)); }},
      {"bitwise_or", bitwise_or,
       [](double a, double b) { return double(static_cast<int64_t>(a) | static_cast<int64_t>(b)); }},
      {"bitwise_xor", bitwise_xor,
       [](double a, double b) { return double(static_cast<int64_t>(a) ^ static_cast<int64_t>(b)); }},
      {"bitwise_left_shift", bitwise_left_shift, [](double a, double b) { return a * std::exp2(b); }},
      {"bitwise_right_shift", bitwise_right_shift,
       [](double a, double b) { return std::floor(a * std::exp2(-b)); }},
  };
  for (const Binary& row : rows) {
    OpCase op_case = binary_case(row, 0, 6, 0, 6);
    const bool shifts = std::string(row.name).find("shift") != std::string::npos;
    op_case.dtypes = {DType::i8, DType::i16, DType::i32, DType::i64,
                      DType::u8, DType::u16, DType::u32, DType::u64};
    if (!shifts) op_case.dtypes.push_back(DType::boolean);
    op_case.floating = op_case.gradient = op_case.second_order = false;
    op_case.int_high = 5;
    add_binary(cases, op_case);
    OpCase with_sign = op_case;
    with_sign.name += "/i64";
    with_sign.dtypes = {};
    with_sign.floating = true;  // f32 and f64 stand for nothing here: the inputs have a type of their own
    with_sign.inputs[0] = {
        {3, 4, 5}, shifts && row.call == bitwise_left_shift ? 0. : -20., 20, CaseInput::index64};
    with_sign.inputs[1] = {{4, 1}, shifts ? 0. : -20., 20, CaseInput::index64};
    cases.push_back(with_sign);
  }
  OpCase invert;
  invert.name = "bitwise_not";
  invert.inputs = {{{4, 9}}};
  invert.call = [](std::span<const Tensor> in) { return bitwise_not(in[0]); };
  invert.reference = reference_of([](double x) { return -x - 1; });
  invert.dtypes = {DType::i8, DType::i16, DType::i32, DType::i64};
  invert.int_low = -5;
  invert.floating = invert.gradient = invert.second_order = false;
  cases.push_back(invert);
  cases.push_back(with_shapes(invert, "bitwise_not/empty", {{0}}));
}

void add_functions(std::vector<OpCase>& cases) {
  const Unary rows[] = {
      {"neg", neg, [](double x) { return -x; }},
      {"abs", abs, [](double x) { return std::abs(x); }},
      {"exp", exp, [](double x) { return std::exp(x); }},
      {"log", log, [](double x) { return std::log(x); }, 0.1, 4},
      {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.1, 4},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.2, 4},
      {"sin", sin, [](double x) { return std::sin(x); }, -6, 6},
      {"cos", cos, [](double x) { return std::cos(x); }, -6, 6},
      {"tanh", tanh, [](double x) { return std::tanh(x); }, -3, 3},
      {"erf", erf, [](double x) { return std::erf(x); }, -3, 3},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -4, 4},
      {"relu", relu, [](double x) { return x > 0 ? x : 0.; }},
      {"gelu", gelu, [](double x) { return x * normal_cdf_of(x); }, -4, 4},
      {"square", square, [](double x) { return x * x; }},
      {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.3, 3},
      {"frac", frac, [](double x) { return x - std::trunc(x); }, -4, 4},
      {"exp2", exp2, [](double x) { return std::exp2(x); }, -3, 3},
      {"expm1", expm1, [](double x) { return std::expm1(x); }},
      {"log2", log2, [](double x) { return std::log2(x); }, 0.1, 4},
      {"log10", log10, [](double x) { return std::log10(x); }, 0.1, 4},
      {"log1p", log1p, [](double x) { return std::log1p(x); }, -0.5, 4},
      {"tan", tan, [](double x) { return std::tan(x); }, -1.2, 1.2},
      {"asin", asin, [](double x) { return std::asin(x); }, -0.9, 0.9},
      {"acos", acos, [](double x) { return std::acos(x); }, -0.9, 0.9},
      {"atan", atan, [](double x) { return std::atan(x); }, -4, 4},
      {"sinh", sinh, [](double x) { return std::sinh(x); }, -3, 3},
      {"cosh", cosh, [](double x) { return std::cosh(x); }, -3, 3},
      {"asinh", asinh, [](double x) { return std::asinh(x); }, -4, 4},
      {"acosh", acosh, [](double x) { return std::acosh(x); }, 1.2, 5},
      {"atanh", atanh, [](double x) { return std::atanh(x); }, -0.9, 0.9},
      {"erfc", erfc, [](double x) { return std::erfc(x); }, -3, 3},
      {"erfinv", erfinv, erfinv_of, -0.9, 0.9},
      {"lgamma", lgamma, [](double x) { return std::lgamma(x); }, 0.2, 9},
      {"lgamma/negative", lgamma, [](double x) { return std::lgamma(x); }, -2.8, -2.2},
      {"digamma", digamma, [](double x) { return polygamma_of(0, x); }, 0.3, 12},
      {"digamma/negative", digamma,
       [](double x) { return polygamma_of(0, 1 - x) - std::numbers::pi / std::tan(std::numbers::pi * x); },
       -1.8, -1.2},
      {"polygamma", [](const Tensor& x) { return polygamma(1, x); },
       [](double x) { return polygamma_of(1, x); }, 0.5, 12},
      {"polygamma/4", [](const Tensor& x) { return polygamma(4, x); },
       [](double x) { return polygamma_of(4, x); }, 1, 12},
      {"gelu_tanh", gelu_tanh, gelu_tanh_of, -4, 4},
      {"silu", silu, [](double x) { return x * logistic(x); }, -4, 4},
      {"mish", mish, [](double x) { return x * std::tanh(softplus_of(x)); }, -4, 4},
      {"softplus", [](const Tensor& x) { return softplus(x); }, softplus_of, -4, 4},
      {"softplus/beta", [](const Tensor& x) { return softplus(x, 2.5, 8); },
       [](double x) { return x * 2.5 > 8 ? x : softplus_of(x * 2.5) / 2.5; }, -4, 4},
      {"softsign", softsign, [](double x) { return x / (1 + std::abs(x)); }},
      {"logsigmoid", logsigmoid, [](double x) { return -softplus_of(-x); }, -4, 4},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.1); },
       [](double x) { return x > 0 ? x : 0.1 * x; }},
      {"elu", [](const Tensor& x) { return elu(x, 1.5); }, [](double x) { return elu_of(x, 1.5); }},
      {"celu", [](const Tensor& x) { return celu(x, 1.5); },
       [](double x) { return 1.5 * elu_of(x / 1.5, 1); }},
      {"selu", selu, [](double x) { return 1.0507009873554805 * elu_of(x, 1.6732632423543773); }},
      {"relu6", relu6, [](double x) { return within(x, 0, 6); }, -3, 9},
      {"hardtanh", [](const Tensor& x) { return hardtanh(x, -0.5, 1.5); },
       [](double x) { return within(x, -0.5, 1.5); }},
      {"hardsigmoid", hardsigmoid, [](double x) { return within(x + 3, 0, 6) / 6; }, -5, 5},
      {"hardswish", hardswish, [](double x) { return x * within(x + 3, 0, 6) / 6; }, -5, 5},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.25, -3); },
       [](double x) { return x > 0.25 ? x : -3.; }},
      {"clamp/numbers", [](const Tensor& x) { return clamp(x, -0.5, 0.75); },
       [](double x) { return within(x, -0.5, 0.75); }},
      {"clamp/low", [](const Tensor& x) { return clamp(x, 0.25, {}); },
       [](double x) { return std::max(x, 0.25); }},
      {"clamp/high", [](const Tensor& x) { return clamp(x, {}, 0.25); },
       [](double x) { return std::min(x, 0.25); }},
  };
  for (const Unary& row : rows) {
    OpCase op_case;
    op_case.name = row.name;
    op_case.inputs = {{{4, 9}, row.low, row.high}};
    op_case.call = [call = row.call](std::span<const Tensor> in) { return call(in[0]); };
    op_case.reference = reference_of(row.reference);
    const std::string name = row.name;
    if (name == "neg" || name == "abs" || name == "relu" || name == "square") {
      op_case.dtypes = kSigned;
      op_case.int_low = -4;
    }
    cases.push_back(op_case);
    cases.push_back(with_shapes(op_case, name + "/empty", {{2, 0}}));
    OpCase large = with_shapes(op_case, name + "/large", {{7, 5003}});
    large.gradient = large.second_order = false;
    cases.push_back(large);
  }
  // The ends of the range: values where a careless implementation over- or underflows, or loses digits.
  const Unary extremes[] = {
      {"exp/extreme", exp, [](double x) { return std::exp(x); }, -87, 20},
      {"log/extreme", log, [](double x) { return std::log(x); }, 1e-30, 1e-3},
      {"sin/extreme", sin, [](double x) { return std::sin(x); }, -3000, 3000},
      {"sin/far", sin, [](double x) { return std::sin(x); }, -6e4, 6e4},
      {"sin/farther", [](const Tensor& x) { return cast(sin(cast(x, DType::f64) * 0x1p40), x.dtype()); },
       [](double x) { return std::sin(x * 0x1p40); }, -1, 1},
      {"cos/farther", [](const Tensor& x) { return cast(cos(cast(x, DType::f64) * 0x1p900), x.dtype()); },
       [](double x) { return std::cos(x * 0x1p900); }, -1, 1},
      {"gelu/far", gelu, [](double x) { return x * std::erfc(-x / std::sqrt(2.)) / 2; }, -3e4, 3e4},
      {"tanh/extreme", tanh, [](double x) { return std::tanh(x); }, -100, 100},
      {"tanh/tiny", tanh, [](double x) { return std::tanh(x); }, -1e-3, 1e-3},
      {"erf/tiny", erf, [](double x) { return std::erf(x); }, -1e-3, 1e-3},
      {"sigmoid/extreme", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -100, 100},
      {"exp2/extreme", exp2, [](double x) { return std::exp2(x); }, -140, 20},
      {"expm1/extreme", expm1, [](double x) { return std::expm1(x); }, -90, 20},
      {"log1p/tiny", log1p, [](double x) { return std::log1p(x); }, -1e-6, 1e-6},
      {"sinh/tiny", sinh, [](double x) { return std::sinh(x); }, -1e-4, 1e-4},
      {"asinh/extreme", asinh, [](double x) { return std::asinh(x); }, -1e15, 1e15},
      {"erfc/extreme", erfc, [](double x) { return std::erfc(x); }, -10, 10},
      {"silu/extreme", silu, [](double x) { return x * logistic(x); }, -80, 80},
      {"gelu_tanh/extreme", gelu_tanh, gelu_tanh_of, -30, 30},
      {"softplus/extreme", [](const Tensor& x) { return softplus(x); },
       [](double x) { return x > 20 ? x : softplus_of(x); }, -100, 100},
      {"logsigmoid/extreme", logsigmoid, [](double x) { return -softplus_of(-x); }, -100, 100},
      {"gelu/extreme", gelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.)); }, -30, 30},
  };
  for (const Unary& row : extremes) {
    OpCase op_case;
    op_case.name = row.name;
    op_case.inputs = {{{300}, row.low, row.high}};
    op_case.call = [call = row.call](std::span<const Tensor> in) { return call(in[0]); };
    op_case.reference = reference_of(row.reference);
    op_case.dtypes = {};
    op_case.gradient = op_case.second_order = false;
    cases.push_back(op_case);
  }
  // Steps: flat but for their jumps.
  const Unary steps[] = {
      {"sign", sign, [](double x) { return x > 0 ? 1. : (x < 0 ? -1. : 0.); }},
      {"floor", floor, [](double x) { return std::floor(x); }, -4, 4},
      {"ceil", ceil, [](double x) { return std::ceil(x); }, -4, 4},
      {"round", round, [](double x) { return std::nearbyint(x); }, -4, 4},
      {"trunc", trunc, [](double x) { return std::trunc(x); }, -4, 4},
  };
  for (const Unary& row : steps) {
    OpCase op_case;
    op_case.name = row.name;
    op_case.inputs = {{{4, 9}, row.low, row.high}};
    op_case.call = [call = row.call](std::span<const Tensor> in) { return call(in[0]); };
    op_case.reference = reference_of(row.reference);
    if (op_case.name == "sign") {
      op_case.dtypes = kSigned;
      op_case.int_low = -2;
    }
    cases.push_back(op_case);
    cases.push_back(with_shapes(op_case, op_case.name + "/empty", {{2, 0}}));
  }
  OpCase invert;
  invert.name = "logical_not";
  invert.inputs = {{{4, 9}}};
  invert.call = [](std::span<const Tensor> in) { return logical_not(in[0]); };
  invert.reference = reference_of([](double x) { return x == 0 ? 1. : 0.; });
  invert.dtypes = kEvery;
  invert.int_high = 2;
  invert.gradient = invert.second_order = false;
  cases.push_back(invert);
  cases.push_back(with_shapes(invert, "logical_not/empty", {{0}}));
}

void add_tolerant(std::vector<OpCase>& cases) {
  OpCase close = binary_case(
      {"isclose", nullptr,
       [](double a, double b) { return std::abs(a - b) <= 0.25 + 0.125 * std::abs(b) ? 1. : 0.; }},
      -1, 1, -1, 1);
  close.call = [](std::span<const Tensor> in) { return isclose(in[0], in[1], 0.125, 0.25); };
  close.dtypes = {DType::i8, DType::i64, DType::u8, DType::u64, DType::boolean};
  close.gradient = close.second_order = false;
  add_binary(cases, close);

  OpCase finite;
  finite.name = "nan_to_num";
  finite.inputs = {{{5, 9}, -2, 2}};
  finite.call = [](std::span<const Tensor> in) {
    const Tensor& x = in[0];
    const Tensor odd = where(greater(x, 1), HUGE_VAL, where(less(x, -1), -HUGE_VAL, x));
    return nan_to_num(where(less(abs(x), 0.25), std::nan(""), odd), 0.5, 3, -4);
  };
  finite.reference = reference_of([](double x) {
    return x > 1 ? 3. : x < -1 ? -4. : std::abs(x) < 0.25 ? 0.5 : x;
  });
  cases.push_back(finite);
  cases.push_back(with_shapes(finite, "nan_to_num/empty", {{0, 2}}));
}

void add_selections(std::vector<OpCase>& cases) {
  OpCase choose;
  choose.name = "where";
  choose.inputs = {{{3, 1, 5}, 0, 2, CaseInput::boolean}, {{4, 5}}, {{3, 4, 1}}};
  choose.call = [](std::span<const Tensor> in) { return where(in[0], in[1], in[2]); };
  choose.reference = [](std::span<const Array> in) {
    Array out(stretched(in[0].shape, stretched(in[1].shape, in[2].shape)));
    each_index(out.shape, [&](const Dims& i) {
      out.at(i) = stretched_at(in[0], i) != 0 ? stretched_at(in[1], i) : stretched_at(in[2], i);
    });
    return out;
  };
  choose.dtypes = kEvery;
  cases.push_back(choose);
  cases.push_back(with_shapes(choose, "where/empty", {{0, 2}, {2}, {1, 1}}));
  OpCase masked = choose;
  masked.name = "where/number";
  masked.inputs = {{{3, 5}, 0, 2, CaseInput::boolean}, {{3, 5}}};
  masked.call = [](std::span<const Tensor> in) { return where(in[0], in[1], 0); };
  masked.reference = [](std::span<const Array> in) {
    Array out = in[1];
    for (int64_t i = 0; i < out.size(); ++i) out[i] = in[0][i] != 0 ? out[i] : 0;
    return out;
  };
  cases.push_back(masked);

  OpCase clamped;
  clamped.name = "clamp";
  clamped.inputs = {{{3, 4, 5}, -2, 2}, {{4, 1}, -1, 0.5}, {{5}, -0.5, 1}};
  clamped.call = [](std::span<const Tensor> in) { return clamp(in[0], in[1], in[2]); };
  clamped.reference = reference_of(within);
  clamped.dtypes = kNumbers;
  cases.push_back(clamped);
  cases.push_back(with_shapes(clamped, "clamp/same_shape", {{6, 7}, {6, 7}, {6, 7}}));
  cases.push_back(with_shapes(clamped, "clamp/large", {{3, 20011}, {20011}, {}}));
  cases.back().gradient = cases.back().second_order = false;
  cases.push_back(with_shapes(clamped, "clamp/empty", {{0, 3}, {3}, {}}));
  OpCase between;
  between.name = "lerp";
  between.inputs = {{{3, 4, 5}, -2, 2}, {{4, 1}, -2, 2}, {{5}, -0.25, 1.25}};
  between.call = [](std::span<const Tensor> in) { return lerp(in[0], in[1], in[2]); };
  between.reference = reference_of([](double a, double b, double c) { return a + c * (b - a); });
  cases.push_back(between);
  cases.push_back(with_shapes(between, "lerp/scalar", {{40}, {40}, {}}));
  cases.push_back(with_shapes(between, "lerp/empty", {{0, 3}, {3}, {}}));
  between.name = "lerp/number";
  between.inputs.pop_back();
  between.call = [](std::span<const Tensor> in) { return lerp(in[0], in[1], 0.3); };
  between.reference = reference_of([](double a, double b) { return a + 0.3 * (b - a); });
  cases.push_back(between);

  OpCase slopes;
  slopes.name = "prelu";
  slopes.inputs = {{{2, 3, 4}, -2, 2}, {{3}, -0.5, 0.5}};
  slopes.call = [](std::span<const Tensor> in) { return prelu(in[0], in[1]); };
  slopes.reference = [](std::span<const Array> in) {
    Array out(in[0].shape);
    each_index(out.shape, [&](const Dims& i) {
      const double x = in[0].at(i), slope = in[1][in[1].size() == 1 ? 0 : i[1]];
      out.at(i) = x > 0 ? x : x * slope;
    });
    return out;
  };
  cases.push_back(slopes);
  cases.push_back(with_shapes(slopes, "prelu/one", {{7}, {1}}));
  cases.push_back(with_shapes(slopes, "prelu/empty", {{0, 3}, {3}}));

  OpCase gated;
  gated.name = "glu";
  gated.inputs = {{{4, 6}, -3, 3}};
  gated.call = [](std::span<const Tensor> in) { return glu(in[0]); };
  gated.reference = [](std::span<const Array> in) {
    Array out({in[0].shape[0], in[0].shape[1] / 2});
    each_index(out.shape, [&](const Dims& i) {
      out.at(i) = in[0].at(i) * logistic(in[0].at({i[0], i[1] + out.shape[1]}));
    });
    return out;
  };
  cases.push_back(gated);
  cases.push_back(with_shapes(gated, "glu/empty", {{4, 0}}));
  gated.name = "glu/axis0";
  gated.call = [](std::span<const Tensor> in) { return glu(in[0], 0); };
  gated.reference = [](std::span<const Array> in) {
    Array out({in[0].shape[0] / 2, in[0].shape[1]});
    each_index(out.shape, [&](const Dims& i) {
      out.at(i) = in[0].at(i) * logistic(in[0].at({i[0] + out.shape[0], i[1]}));
    });
    return out;
  };
  cases.push_back(gated);

  // The gradients that are ops of their own.
  const Binary gradients[] = {
      {"gelu_gradient", nullptr,
       [](double g, double x) {
         return g * (normal_cdf_of(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi));
       }},
      {"gelu_tanh_gradient", nullptr,
       [](double g, double x) {
         const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (x + 0.044715 * x * x * x));
         return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x));
       }},
      {"silu_gradient", nullptr,
       [](double g, double x) { return g * logistic(x) * (1 + x * (1 - logistic(x))); }},
  };
  for (const Binary& row : gradients) {
    OpCase op_case = binary_case(row, -2, 2, -3, 3);
    op_case.call = [op = find_op(row.name)](std::span<const Tensor> in) {
      return apply1(*op, {in[0], in[1]});
    };
    cases.push_back(op_case);
    cases.push_back(with_shapes(op_case, op_case.name + "/empty", {{0, 4}, {0, 4}}));
  }
  const std::pair<const char*, double (*)(double, double, double)> with_parameter[] = {
      {"leaky_relu_gradient", [](double g, double x, double slope) { return x > 0 ? g : g * slope; }},
      {"elu_gradient", [](double g, double x, double alpha) { return x > 0 ? g : g * alpha * std::exp(x); }},
  };
  for (const auto& [name, reference] : with_parameter) {
    OpCase op_case;
    op_case.name = name;
    op_case.inputs = {{{3, 4}, -2, 2}, {{3, 4}, -2, 2}, {{}, 0.1, 1}};
    op_case.call = [op = find_op(name)](std::span<const Tensor> in) {
      return apply1(*op, {in[0], in[1], in[2]});
    };
    op_case.reference = reference_of(reference);
    cases.push_back(op_case);
    cases.push_back(with_shapes(op_case, op_case.name + "/empty", {{0, 4}, {0, 4}, {}}));
  }

  OpCase gate = binary_case({"relu_gradient", nullptr, [](double g, double y) { return y > 0 ? g : 0.; }}, -2,
                            2, -2, 2);
  gate.inputs[1].shape = gate.inputs[0].shape;
  gate.call = [](std::span<const Tensor> in) { return apply1(*find_op("relu_gradient"), {in[0], in[1]}); };
  gate.dtypes = kNumbers;
  cases.push_back(gate);
  cases.push_back(with_shapes(gate, "relu_gradient/empty", {{0, 4}, {0, 4}}));

  // cast: to each type, from the type under test.
  const auto truncated = [](double x) { return std::trunc(x); };
  for (const DType to_type : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i8, DType::i32,
                              DType::i64, DType::u8, DType::u16, DType::u64, DType::boolean}) {
    OpCase convert;
    convert.name = str("cast/", to_type);
    convert.inputs = {{{5, 7}, is_floating(to_type) ? -20. : 0., 20}};
    convert.call = [to_type](std::span<const Tensor> in) { return cast(in[0], to_type); };
    if (is_floating(to_type))
      convert.reference = [to_type](std::span<const Array> in) {
        return to_array(to_tensor(in[0], to_type));
      };
    else if (to_type == DType::boolean)
      convert.reference = reference_of([](double x) { return x != 0 ? 1. : 0.; });
    else
      convert.reference = reference_of(truncated);
    convert.tolerance = 0;
    convert.half_ulps = 0;
    convert.dtypes = kEvery;
    convert.gradient = convert.second_order = to_type == DType::f64;
    cases.push_back(convert);
  }
  cases.push_back(with_shapes(cases.back(), "cast/empty", {{0, 2}}));
}

}  // namespace

void add_pointwise_cases(std::vector<OpCase>& cases) {
  add_arithmetic(cases);
  add_comparisons(cases);
  add_bits(cases);
  add_functions(cases);
  add_tolerant(cases);
  add_selections(cases);
}

}  // namespace tandem::testing
