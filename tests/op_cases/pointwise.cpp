// Cases of the pointwise ops: every row of TD_POINTWISE_OPS, and cast.
#include "tandem/ops/pointwise.h"

#include <cmath>

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

CaseReference reference_of(double (*f)(double, double)) {
  return [f](std::span<const Array> in) {
    Array out(stretched(in[0].shape, in[1].shape));
    each_index(out.shape,
               [&](const Dims& i) { out.at(i) = f(stretched_at(in[0], i), stretched_at(in[1], i)); });
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
  };
  for (const Binary& row : rows) {
    OpCase op_case = binary_case(row, -2, 2, -2, 2);
    op_case.dtypes = kEvery;
    op_case.int_high = 3;  // so that equal values and zeros occur
    op_case.gradient = op_case.second_order = false;
    add_binary(cases, op_case);
  }
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
      {"gelu", gelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.)); }, -4, 4},
  };
  for (const Unary& row : rows) {
    OpCase op_case;
    op_case.name = row.name;
    op_case.inputs = {{{4, 9}, row.low, row.high}};
    op_case.call = [call = row.call](std::span<const Tensor> in) { return call(in[0]); };
    op_case.reference = reference_of(row.reference);
    const std::string name = row.name;
    if (name == "neg" || name == "abs" || name == "relu") {
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
      {"tanh/extreme", tanh, [](double x) { return std::tanh(x); }, -100, 100},
      {"tanh/tiny", tanh, [](double x) { return std::tanh(x); }, -1e-3, 1e-3},
      {"erf/tiny", erf, [](double x) { return std::erf(x); }, -1e-3, 1e-3},
      {"sigmoid/extreme", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -100, 100},
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
    convert.name = cat("cast/", to_type);
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
  add_functions(cases);
  add_selections(cases);
}

}  // namespace tandem::testing
