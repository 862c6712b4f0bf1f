// The elementary functions of ops/elementary_functions.h against the C library's in a wider type: errors in units of the
// last place over dense samples, f32 against double and f64 against long double, and the special values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "tandem/ops/scalar_functions.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// |got - want| in units of the last place of the type at `want`; 0 where both are NaN or the same infinity.
template <class T, class W>
double ulps(T got, W want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  if (static_cast<W>(got) == want) return 0;
  const T rounded = static_cast<T>(want);
  if (got == rounded && std::isinf(got)) return 0;
  if (std::isinf(rounded) || std::isinf(got)) {
    // Beyond the largest number by less than a unit: either answer is right.
    const T largest = std::numeric_limits<T>::max();
    return std::abs(got) >= largest && std::abs(rounded) >= largest &&
                   std::signbit(got) == std::signbit(rounded)
               ? 1
               : 1e30;
  }
  const T magnitude = std::abs(rounded);
  const T unit = std::nextafter(magnitude, std::numeric_limits<T>::infinity()) - magnitude;
  return static_cast<double>(std::abs(static_cast<W>(got) - want) / static_cast<W>(unit));
}

struct Function {
  const char* name;
  float (*single)(float);
  double (*wide)(double);
  double (*reference)(double);
  long double (*reference64)(long double);
  double low, high;                 ///< the range in which samples are even
  double most_single, most_double;  ///< ulps allowed
};

#define TD_FUNCTION(name, ours, theirs, low, high, most_single, most_double) \
  { \
    name, [](float x) { return static_cast<float>(ours(x)); }, \
        [](double x) { return static_cast<double>(ours(x)); }, \
        [](double x) { return static_cast<double>(theirs(x)); }, [](long double x) { return theirs(x); }, \
        low, high, most_single, most_double \
  }
/// Functions that are computed in double for f32 too.
#define TD_WIDE(name, ours, theirs, low, high, most_double) \
  { \
    name, [](float x) { return static_cast<float>(ours(static_cast<double>(x))); }, \
        [](double x) { return ours(x); }, [](double x) { return static_cast<double>(theirs(x)); }, \
        [](long double x) { return theirs(x); }, low, high, 0.51, most_double \
  }

template <class W>
W reference_sigmoid(W x) {
  return 1 / (1 + std::exp(-x));
}
template <class W>
W reference_silu(W x) {
  return x / (1 + std::exp(-x));
}
template <class W>
W reference_gelu(W x) {
  return x * std::erfc(-x / std::sqrt(W(2))) / 2;
}
template <class W>
W reference_softplus(W x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

/// digamma and trigamma in long double: steps up to 40, then the series; below 0 by reflection.
long double reference_digamma(long double x) {
  const long double pi = 3.14159265358979323846264338327950288L;
  if (x < 0) {
    const long double f = x - std::round(x);
    return f == 0 ? std::nanl("") : reference_digamma(1 - x) - pi / std::tan(pi * f);
  }
  long double steps = 0;
  for (; x < 40; x += 1) steps += 1 / x;
  const long double w = 1 / (x * x);
  const long double series =
      w *
      (1.L / 12 -
       w * (1.L / 120 - w * (1.L / 252 - w * (1.L / 240 - w * (1.L / 132 - w * (691.L / 32760 - w / 12))))));
  return std::log(x) - 0.5L / x - series - steps;
}
long double reference_trigamma(long double x) {
  const long double pi = 3.14159265358979323846264338327950288L;
  if (x < 0) {
    const long double f = x - std::round(x), s = std::sin(pi * f);
    return pi * pi / (s * s) - reference_trigamma(1 - x);
  }
  long double steps = 0;
  for (; x < 40; x += 1) steps += 1 / (x * x);
  const long double y = 1 / x, w = y * y;
  const long double series =
      w * (1.L / 6 - w * (1.L / 30 - w * (1.L / 42 - w * (1.L / 30 - w * (5.L / 66 - w * (691.L / 2730))))));
  return steps + y + 0.5L * w + y * series;
}
/// Newton's steps from our own answer, on what is left of 1.
long double reference_erfinv(long double x) {
  const long double a = std::abs(x), half_root_pi = 0.886226925452758013649083741670572591L;
  if (!(a < 1))
    return a == 1 ? std::copysign(std::numeric_limits<long double>::infinity(), x) : std::nanl("");
  long double y = erfinv_(static_cast<double>(a));
  for (int i = 0; i < 2; ++i)
    y += (a < 0.5L ? a - std::erf(y) : std::erfc(y) - (1 - a)) * half_root_pi * std::exp(y * y);
  return std::copysign(y, x);
}
double trigamma(double x) { return polygamma_(x, 1); }

const Function kFunctions[] = {
    TD_FUNCTION("exp", exp_, std::exp, -104, 89, 1.5, 1.5),
    TD_FUNCTION("exp near 0", exp_, std::exp, -1, 1, 1.5, 1.5),
    TD_FUNCTION("exp2", exp2_, std::exp2, -150, 128, 2, 2),
    TD_FUNCTION("expm1", expm1_, std::expm1, -20, 89, 2, 2),
    TD_FUNCTION("expm1 near 0", expm1_, std::expm1, -1, 1, 2, 2),
    TD_FUNCTION("log", log_, std::log, 1e-45, 1e4, 2, 2),
    TD_FUNCTION("log near 1", log_, std::log, 0.5, 2, 2, 2),
    TD_FUNCTION("log2", log2_, std::log2, 1e-45, 1e4, 2, 2),
    TD_FUNCTION("log2 near 1", log2_, std::log2, 0.5, 2, 2, 2),
    TD_FUNCTION("log10", log10_, std::log10, 1e-45, 1e4, 2, 2),
    TD_FUNCTION("log10 near 1", log10_, std::log10, 0.5, 2, 2.5, 2.5),
    TD_FUNCTION("log1p", log1p_, std::log1p, -1, 1e4, 2.5, 2.5),
    TD_FUNCTION("log1p near 0", log1p_, std::log1p, -0.5, 1, 2.5, 2.5),
    TD_FUNCTION("tanh", tanh_, std::tanh, -12, 12, 2.5, 2.5),
    TD_FUNCTION("tanh near 0", tanh_, std::tanh, -1, 1, 2.5, 2.5),
    TD_FUNCTION("erf", erf_, std::erf, -5, 5, 2, 2),
    TD_FUNCTION("erf near 0", erf_, std::erf, -1, 1, 2, 2),
    TD_FUNCTION("sigmoid", sigmoid_, reference_sigmoid, -80, 80, 3, 3),
    TD_FUNCTION("softplus", softplus_, reference_softplus, -80, 80, 3, 3),
    TD_FUNCTION("gelu above 0", gelu_, reference_gelu, 0, 20, 3, 8),
    TD_FUNCTION("silu above 0", silu_, reference_silu, 0, 40, 3, 3),
    TD_WIDE("erfc", erfc_, std::erfc, -6, 27, 8),
    TD_WIDE("erfinv", erfinv_, reference_erfinv, -1, 1, 8),
    TD_WIDE("erfinv near 1", erfinv_, reference_erfinv, 0.99999, 1, 8),
    TD_WIDE("lgamma", lgamma_, std::lgamma, 0, 40, 8),
    TD_WIDE("lgamma near 1 and 2", lgamma_, std::lgamma, 0.9, 2.1, 8),
    TD_WIDE("digamma", digamma_, reference_digamma, 2, 40, 16),
    TD_WIDE("trigamma", trigamma, reference_trigamma, -40, 40, 6),
    TD_WIDE("sin", sin_, std::sin, -100, 100, 2),
    TD_WIDE("sin far", sin_, std::sin, -1e6, 1e6, 2),
    TD_WIDE("cos", cos_, std::cos, -100, 100, 2),
    TD_WIDE("tan", tan_, std::tan, -100, 100, 3),
    TD_WIDE("asin", asin_, std::asin, -1, 1, 2),
    TD_WIDE("acos", acos_, std::acos, -1, 1, 2.5),
    TD_WIDE("atan", atan_, std::atan, -20, 20, 2),
    TD_WIDE("sinh", sinh_, std::sinh, -88, 88, 3),
    TD_WIDE("sinh near 0", sinh_, std::sinh, -1.5, 1.5, 3),
    TD_WIDE("cosh", cosh_, std::cosh, -88, 88, 3),
    TD_WIDE("asinh", asinh_, std::asinh, -50, 50, 3),
    TD_WIDE("acosh", acosh_, std::acosh, 1, 50, 3),
    TD_WIDE("atanh", atanh_, std::atanh, -1, 1, 3),
};

double sample(const Function& f, int64_t i, int64_t n) {
  return f.low + (f.high - f.low) * (static_cast<double>(i) + hash_value(static_cast<uint32_t>(i), 5, 0, 1)) /
                     static_cast<double>(n);
}

TEST(ElementaryFunctions, OfF32StayWithinAFewUnitsInTheLastPlace) {
  for (const Function& f : kFunctions) {
    constexpr int64_t n = 100'000;
    double worst = 0, at = 0;
    const auto check = [&](float x) {
      const double e = ulps(f.single(x), f.reference(x));
      if (e > worst) worst = e, at = x;
    };
    for (int64_t i = 0; i < n; ++i) check(static_cast<float>(sample(f, i, n)));
    // and numbers of every size, for the rows that are not about a range
    const std::string name = f.name;
    const double most = name == "sigmoid" ? 80 : name == "tan" ? 1e5 : 1e9;
    for (uint32_t bits = 0; bits < 0x7f800000u && name.find(' ') == std::string::npos; bits += 80021)
      for (const float x : {float_from_bits(bits), -float_from_bits(bits)})
        if (std::abs(x) < most) check(x);
    EXPECT_LE(worst, f.most_single) << f.name << " of " << at;
    RecordProperty(std::string("f32 ") + f.name, std::to_string(worst));
    if (std::getenv("TANDEM_ULPS")) std::printf("f32 %-14s %.3f at %.9g\n", f.name, worst, at);
  }
}

TEST(ElementaryFunctions, OfF64StayWithinAFewUnitsInTheLastPlace) {
  if (std::numeric_limits<long double>::digits <= 53)
    GTEST_SKIP() << "long double is no wider than double here";
  for (const Function& f : kFunctions) {
    constexpr int64_t n = 6'000;
    double worst = 0, at = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double x = sample(f, i, n);
      const double e = ulps(f.wide(x), f.reference64(x));
      if (e > worst) worst = e, at = x;
    }
    EXPECT_LE(worst, f.most_double) << f.name << " of " << at;
    RecordProperty(std::string("f64 ") + f.name, std::to_string(worst));
    if (std::getenv("TANDEM_ULPS")) std::printf("f64 %-14s %.3f at %.17g\n", f.name, worst, at);
  }
}

/// Same value, and the same sign of zeros.
template <class T>
bool same(T a, T b) {
  return std::isnan(b) ? std::isnan(a) : a == b && std::signbit(a) == std::signbit(b);
}

template <class T>
void check_special_values() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(), zero = 0,
              one = 1;
  constexpr T tiny = std::numeric_limits<T>::denorm_min();
  const struct {
    const char* name;
    T (*f)(T);
    T (*reference)(T);
  } functions[] = {
      {"exp", [](T x) { return exp_(x); }, [](T x) { return std::exp(x); }},
      {"exp2", [](T x) { return exp2_(x); }, [](T x) { return std::exp2(x); }},
      {"expm1", [](T x) { return expm1_(x); }, [](T x) { return std::expm1(x); }},
      {"log", [](T x) { return log_(x); }, [](T x) { return std::log(x); }},
      {"log2", [](T x) { return log2_(x); }, [](T x) { return std::log2(x); }},
      {"log10", [](T x) { return log10_(x); }, [](T x) { return std::log10(x); }},
      {"log1p", [](T x) { return log1p_(x); }, [](T x) { return std::log1p(x); }},
      {"tanh", [](T x) { return tanh_(x); }, [](T x) { return std::tanh(x); }},
      {"erf", [](T x) { return erf_(x); }, [](T x) { return std::erf(x); }},
      {"erfc", [](T x) { return static_cast<T>(erfc_(static_cast<double>(x))); },
       [](T x) { return std::erfc(x); }},
      {"asin", [](T x) { return static_cast<T>(asin_(static_cast<double>(x))); },
       [](T x) { return std::asin(x); }},
      {"acos", [](T x) { return static_cast<T>(acos_(static_cast<double>(x))); },
       [](T x) { return std::acos(x); }},
      {"atan", [](T x) { return static_cast<T>(atan_(static_cast<double>(x))); },
       [](T x) { return std::atan(x); }},
      {"sin", [](T x) { return static_cast<T>(sin_(static_cast<double>(x))); },
       [](T x) { return std::sin(x); }},
      {"cos", [](T x) { return static_cast<T>(cos_(static_cast<double>(x))); },
       [](T x) { return std::cos(x); }},
      {"tan", [](T x) { return static_cast<T>(tan_(static_cast<double>(x))); },
       [](T x) { return std::tan(x); }},
      {"sinh", [](T x) { return static_cast<T>(sinh_(static_cast<double>(x))); },
       [](T x) { return std::sinh(x); }},
      {"cosh", [](T x) { return static_cast<T>(cosh_(static_cast<double>(x))); },
       [](T x) { return std::cosh(x); }},
      {"asinh", [](T x) { return static_cast<T>(asinh_(static_cast<double>(x))); },
       [](T x) { return std::asinh(x); }},
      {"acosh", [](T x) { return static_cast<T>(acosh_(static_cast<double>(x))); },
       [](T x) { return std::acosh(x); }},
      {"atanh", [](T x) { return static_cast<T>(atanh_(static_cast<double>(x))); },
       [](T x) { return std::atanh(x); }},
      {"round", [](T x) { return round_(x); }, [](T x) { return std::nearbyint(x); }},
      {"trunc", [](T x) { return trunc_(x); }, [](T x) { return std::trunc(x); }},
      {"ceil", [](T x) { return Ceil{}(x); }, [](T x) { return std::ceil(x); }},
      {"floor", [](T x) { return floor_(x); }, [](T x) { return std::floor(x); }},
  };
  constexpr T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  for (const auto& f : functions) {
    for (const T x : {zero, -zero, inf, -inf, nan, tiny, -tiny})
      EXPECT_PRED2(same<T>, f.f(x), f.reference(x)) << f.name << " of " << x;
    for (const T x : {one, -one, T(2), T(-2), T(0.5), T(-0.5), T(1.5), T(2.5), T(-2.5), T(1e30), T(-1e30),
                      most, -most, least, -least, T(0x1p30), T(-0x1p31), T(1e22)})
      EXPECT_LE(ulps(f.f(x), static_cast<long double>(f.reference(x))), 3) << f.name << " of " << x;
  }
  // Two arguments
  const T values[] = {zero, -zero, one,    -one,    inf,    -inf,    nan,
                      tiny, -tiny, T(3.5), T(-3.5), T(0.1), T(1e30), T(7e-20)};
  for (const T a : values)
    for (const T b : values) {
      EXPECT_PRED2(same<T>, fmod_(a, b), std::fmod(a, b)) << "fmod of " << a << ", " << b;
      const T angle = static_cast<T>(atan2_(static_cast<double>(a), static_cast<double>(b)));
      const T length = static_cast<T>(hypot_(static_cast<double>(a), static_cast<double>(b)));
      EXPECT_LE(ulps(angle, static_cast<long double>(std::atan2(a, b))), 2) << "atan2 of " << a << ", " << b;
      EXPECT_EQ(std::signbit(angle), std::signbit(std::atan2(a, b))) << "atan2 of " << a << ", " << b;
      EXPECT_LE(ulps(length, static_cast<long double>(std::hypot(a, b))), 2) << "hypot of " << a << ", " << b;
      const T power = pow_(a, b), want = std::pow(a, b);
      EXPECT_LE(ulps(power, static_cast<long double>(want)), sizeof(T) == 4 ? 1 : 2)
          << "pow of " << a << ", " << b;
    }
}

TEST(ElementaryFunctions, SigmoidGoesDownToZeroWithoutAHole) {
  // From -88.38 to -88.72 the power of two in exp(-x) is beyond what f32 holds, and exp(-x) is not.
  for (float x = -90; x < -86; x += 0.001f) {
    const double right = 1 / (1 + std::exp(-static_cast<double>(x)));
    ASSERT_NEAR(static_cast<double>(sigmoid_(x)), right, 3e-39 + 1e-6 * right) << x;
    ASSERT_NEAR(static_cast<double>(silu_(x)), x * right, 3e-37 + 1e-6 * std::abs(x * right)) << x;
  }
}

/// Functions without a counterpart in the C library, and slopes, at the ends of the range: their limits.
template <class T>
void check_limits() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(),
              most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min(),
              tiny = std::numeric_limits<T>::denorm_min();
  const struct {
    const char* name;
    T (*f)(T);
    T down, zero, up;  // at -infinity, 0 and infinity; up = infinity: the function is x itself far up
  } rows[] = {
      {"sigmoid", [](T x) { return sigmoid_(x); }, 0, T(0.5), 1},
      {"softplus", [](T x) { return softplus_(x); }, 0, T(0.69314718055994530942), inf},
      {"gelu", [](T x) { return gelu_(x); }, 0, 0, inf},
      {"gelu_tanh", [](T x) { return gelu_tanh_(x); }, 0, 0, inf},
      {"silu", [](T x) { return silu_(x); }, 0, 0, inf},
      {"relu", [](T x) { return Relu{}(x); }, 0, 0, inf},
      {"elu", [](T x) { return Elu{}(x, T(1)); }, -1, 0, inf},
      {"gelu_gradient", [](T x) { return GeluGradient{}(T(1), x); }, 0, T(0.5), 1},
      {"gelu_tanh_gradient", [](T x) { return GeluTanhGradient{}(T(1), x); }, 0, T(0.5), 1},
      {"silu_gradient", [](T x) { return SiluGradient{}(T(1), x); }, 0, T(0.5), 1},
      {"elu_gradient", [](T x) { return EluGradient{}(T(1), x, T(1)); }, 0, 1, 1},
      {"relu_gradient", [](T x) { return ReluGradient{}(T(1), x); }, 0, 0, 1},
      {"hardtanh", [](T x) { return Clamp{}(x, T(-1), T(1)); }, -1, 0, 1},
  };
  for (const auto& row : rows) {
    for (const T x : {-inf, -most, T(-1e30), T(-1e5)})
      EXPECT_EQ(row.f(x), row.down) << row.name << " of " << x;
    for (const T x : {inf, most, T(1e30), T(1e5)})
      EXPECT_EQ(row.f(x), row.up == inf ? x : row.up) << row.name << " of " << x;
    for (const T x : {T(0), T(-0.), tiny, -tiny, least, -least}) {
      const T y = row.f(x);
      const bool steps = std::string(row.name) == "relu_gradient";
      EXPECT_NEAR(y, steps && x > 0 ? 1 : row.zero, 1e-6) << row.name << " of " << x;
    }
    EXPECT_TRUE(std::isnan(row.f(nan)) || std::string(row.name) == "relu_gradient") << row.name;
  }
}
TEST(ElementaryFunctions, GoToTheirLimitsAtTheEndsOfF32) { check_limits<float>(); }
TEST(ElementaryFunctions, GoToTheirLimitsAtTheEndsOfF64) { check_limits<double>(); }

TEST(ElementaryFunctions, SigmoidAndSiluFallToZeroWithoutAGapWhereTheExponentialOverflows) {
  float before = sigmoid_(-86.f);
  for (float x = -86.f; x > -92.f;
       x = std::nextafter(x, -100.f)) {  // inf - inf between 88.38 and 88.72, once
    const float y = sigmoid_(x);
    ASSERT_TRUE(y >= 0 && y <= before) << x << " gives " << y << " after " << before;
    ASSERT_TRUE(silu_(x) <= 0 && silu_(x) > -1e-34f) << x << " gives " << silu_(x);
    before = y;
  }
  EXPECT_EQ(before, 0);
}

TEST(ElementaryFunctions, OfAnglesOfAnySizeAreRight) {
  const struct {
    const char* name;
    double (*f)(double);
    double (*near)(double);
    long double (*reference)(long double);
    double most;
  } rows[] = {{"sin", sin_, near_sin, std::sin, 2},
              {"cos", cos_, near_cos, std::cos, 2},
              {"tan", tan_, near_tan, std::tan, 4}};
  for (const auto& row : rows) {
    for (uint32_t i = 0; i < 20'000; ++i) {
      const uint64_t fraction = (uint64_t{hash32(i, 1)} << 20) ^ hash32(i, 2);
      const double far = double_from_bits((uint64_t{1053} + hash32(i, 3) % 994) << 52 |
                                          (fraction & ((uint64_t{1} << 52) - 1)));
      for (const double x : {far, -far}) {
        ASSERT_LE(ulps(row.f(x), row.reference(static_cast<long double>(x))), row.most)
            << row.name << " of " << x;
        const float single = static_cast<float>(std::fmod(far, 3e38)) * (x < 0 ? -1.f : 1.f);
        ASSERT_LE(ulps(static_cast<float>(row.f(single)), row.reference(static_cast<long double>(single))),
                  0.51)
            << row.name << " of " << single;
      }
      const double near = hash_value(i, 4, -0x1p30, 0x1p30);
      ASSERT_EQ(row.f(near), row.near(near)) << row.name << " of " << near;
    }
    // The double that comes closest to a multiple of pi/2.
    const double close = 6381956970095103. * 0x1p797;
    EXPECT_LE(ulps(row.f(close), row.reference(static_cast<long double>(close))), row.most) << row.name;
  }
}

TEST(ElementaryFunctions, GammaFunctionsAndErfinvAreRightAtPolesAndEnds) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double x : {0., -0., -1., -2., -1e300, inf, -inf}) EXPECT_EQ(lgamma_(x), inf) << x;
  EXPECT_EQ(lgamma_(1.), 0);
  EXPECT_EQ(lgamma_(2.), 0);
  EXPECT_EQ(lgamma_(1.7e308), inf);
  EXPECT_EQ(lgamma_(-1e-300), std::lgamma(-1e-300));
  EXPECT_EQ(digamma_(0.), -inf);
  EXPECT_EQ(digamma_(-0.), inf);
  EXPECT_EQ(digamma_(inf), inf);
  for (const double x : {-1., -2., -1e300, -inf, nan}) EXPECT_TRUE(std::isnan(digamma_(x))) << x;
  for (const double x : {0., -1., -5.}) {
    EXPECT_EQ(polygamma_(x, 1), inf) << x;
    EXPECT_EQ(polygamma_(x, 2), -inf) << x;
  }
  EXPECT_EQ(polygamma_(inf, 3), 0);
  struct {
    double a, x, slope;  // by mpmath, 60 digits
  } const slopes[] = {{0.001, 1e-30, 6.8501980858011074e-26},
                      {0.1, 0.01, 0.42279343812970282},
                      {0.5, 2.0, 2.5118893763620682},
                      {1.0, 40.0, 4.2904992340950977},
                      {3.0, 0.5, 0.37617535631048192},
                      {30.0, 45.0, 1.2231425063703331},
                      {1000.0, 900.0, 0.94840263817941041},
                      {9999.0, 10100.0, 1.0050503376970888},
                      {20000.0, 20400.0, 1.0099424081542508},
                      {20000.0, 10000.0, 0.69315286585944221},
                      {1000000.0, 998000.0, 0.99899949916574876}};
  for (const auto& [a, x, slope] : slopes)
    EXPECT_NEAR(gamma_slope_(a, x) / slope, 1, 3e-12) << a << ", " << x;
  EXPECT_EQ(gamma_slope_(2, 0), 0);
  for (const double bad : {0., -1., inf, std::nan("")})
    EXPECT_NE(gamma_slope_(bad, 1), gamma_slope_(bad, 1)) << bad;
  EXPECT_EQ(polygamma_(2.5, 0), digamma_(2.5));
  EXPECT_NEAR(polygamma_(1e200, 1), 1e-200, 1e-213);
  EXPECT_NEAR(polygamma_(786., 150) / -2.03333853383336328e-174, 1, 1e-12);
  EXPECT_NEAR(polygamma_(-2.75, 3) / 1558.48975128329360, 1, 1e-12);
  EXPECT_EQ(erfinv_(1.), inf);
  EXPECT_EQ(erfinv_(-1.), -inf);
  EXPECT_TRUE(same(erfinv_(-0.), -0.));
  for (const double x : {1.0000001, -2., inf, nan}) EXPECT_TRUE(std::isnan(erfinv_(x))) << x;
  EXPECT_EQ(logaddexp_(inf, inf), inf);
  EXPECT_EQ(logaddexp_(-inf, -inf), -inf);
  EXPECT_EQ(logaddexp_(-inf, 3), 3);
  EXPECT_EQ(logaddexp_(inf, -inf), inf);
  EXPECT_TRUE(std::isnan(logaddexp_(nan, 1)));
  EXPECT_TRUE(std::isnan(logaddexp_(1, nan)));
  EXPECT_EQ(logaddexp_(1e308, 1e308), 1e308);
}

TEST(ElementaryFunctions, OfSpecialValuesAreTheCLibrarysInF32) { check_special_values<float>(); }
TEST(ElementaryFunctions, OfSpecialValuesAreTheCLibrarysInF64) { check_special_values<double>(); }

TEST(ElementaryFunctions, PowersStayWithinAFewUnitsInTheLastPlace) {
  double worst = 0, worst_single = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const double x = std::exp2(hash_value(i, 1, -12, 12)), y = hash_value(i, 2, -60, 60);
    worst_single =
        std::max(worst_single, ulps(pow_(static_cast<float>(x), static_cast<float>(y)),
                                    std::pow(double(static_cast<float>(x)), double(static_cast<float>(y)))));
    if (std::numeric_limits<long double>::digits > 53 && i < 4000)
      worst = std::max(worst,
                       ulps(pow_(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y))));
  }
  EXPECT_LE(worst_single, 0.51);
  EXPECT_LE(worst, 16);  // of y·log x up to 500
  if (std::getenv("TANDEM_ULPS")) std::printf("pow f32 %.3f, f64 %.3f\n", worst_single, worst);
}

TEST(ElementaryFunctions, RemaindersAreExactForQuotientsOfAnySize) {
  for (uint32_t i = 0; i < 20'000; ++i) {
    const auto number = [&](uint32_t salt) {
      const uint64_t bits = (uint64_t{hash32(i, salt)} << 32) | hash32(i, salt + 1);
      const double x = double_from_bits(bits);
      return std::isfinite(x) ? x : 1.5;
    };
    const double a = number(1), b = i % 3 ? number(3) : a * hash_value(i, 4);
    ASSERT_TRUE(same(fmod_(a, b), std::fmod(a, b))) << a << ", " << b;
    const float x = float_from_bits(hash32(i, 5)), y = float_from_bits(hash32(i, 6));
    ASSERT_TRUE(same(fmod_(x, y), std::fmod(x, y))) << x << ", " << y;
  }
}

/// Every shift, division and remainder of 8-bit numbers: as in 64 bits, cut off.
template <class T>
void check_whole_numbers() {
  for (int i = std::numeric_limits<T>::min(); i <= std::numeric_limits<T>::max(); ++i)
    for (int j = std::numeric_limits<T>::min(); j <= std::numeric_limits<T>::max(); ++j) {
      const T a = static_cast<T>(i), b = static_cast<T>(j);
      const int64_t wide_a = i, wide_b = j;
      const int quotient = j == 0 ? 0 : (i - ((i % j + j) % j)) / j;
      ASSERT_EQ(floor_divide_(a, b), static_cast<T>(quotient)) << i << ", " << j;
      ASSERT_EQ(remainder_(a, b), static_cast<T>(i - quotient * j)) << i << ", " << j;
      ASSERT_EQ(floor_divide_(a, b), static_cast<T>(floor_divide_(wide_a, wide_b))) << i << ", " << j;
      ASSERT_EQ(remainder_(a, b), static_cast<T>(remainder_(wide_a, wide_b))) << i << ", " << j;
      ASSERT_EQ(fmod_(a, b), static_cast<T>(fmod_(wide_a, wide_b))) << i << ", " << j;
      ASSERT_EQ(shift_left(a, b), static_cast<T>(shift_left(wide_a, wide_b))) << i << ", " << j;
      ASSERT_EQ(shift_right(a, b), static_cast<T>(shift_right(wide_a, wide_b))) << i << ", " << j;
      ASSERT_EQ(pow_(a, static_cast<T>(j % 9)), static_cast<T>(pow_(wide_a, int64_t{j % 9})))
          << i << ", " << j;
    }
}
TEST(ElementaryFunctions, OfNarrowIntegersEqualThoseIn64BitsCutOff) {
  check_whole_numbers<int8_t>();
  check_whole_numbers<uint8_t>();
}

TEST(ElementaryFunctions, IntegerDivisionNeverTraps) {
  constexpr int64_t low = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(floor_divide_(low, int64_t{-1}), low);
  EXPECT_EQ(remainder_(low, int64_t{-1}), 0);
  EXPECT_EQ(fmod_(low, int64_t{-1}), 0);
  EXPECT_EQ(floor_divide_(low, int64_t{0}), 0);
  EXPECT_EQ(remainder_(low, int64_t{0}), low);
  EXPECT_EQ(shift_left(int64_t{1}, int64_t{64}), 0);
  EXPECT_EQ(shift_right(low, int64_t{-3}), -1);
}

}  // namespace
}  // namespace tandem::testing
