// One element of every pointwise op: the single definition that the CPU loops, the CUDA loops and the
// run-time compiled fused kernels share. Written branch-free with plain arithmetic (no libm, no fused
// multiply-add), so that compilers vectorise them and every path gives the same bits. No includes but half.h:
// NVRTC compiles this text.
//
// A functor takes values of the compute type (float for bf16, f16 and f32; the type itself otherwise) and
// returns the result, which the caller rounds to the storage type. Comparisons return bool.
#pragma once

#include "tandem/core/half.h"

namespace tandem {

TD_HD unsigned long long double_bits(double x) { return __builtin_bit_cast(unsigned long long, x); }
TD_HD double double_from_bits(unsigned long long x) { return __builtin_bit_cast(double, x); }

// ---- elementary functions

/// exp in float: 2^k · p(r), |r| <= ln2/2. Under 1.5 ulp; overflows to inf above 88.72, underflows gradually.
TD_HD float exp_(float x) {
  const float clamped = x < -104.f ? -104.f : (x > 89.f ? 89.f : x);
  const float shifted = clamped * 1.44269504f + 12582912.f;  // rounds to an integer in the low mantissa bits
  const float k = shifted - 12582912.f;
  float r = clamped - k * 0.693359375f;
  r = r - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  // 2^k in two factors, so that neither over- nor underflows before the product does.
  const int ik = static_cast<int>(k);
  const int half = ik >> 1;
  const float a = float_from_bits(static_cast<unsigned>(half + 127) << 23);
  const float b = float_from_bits(static_cast<unsigned>(ik - half + 127) << 23);
  const float y = p * a * b;
  return x != x ? x : y;
}

TD_HD double exp_(double x) {
  const double clamped = x < -746. ? -746. : (x > 710. ? 710. : x);
  const double shifted = clamped * 1.4426950408889634 + 6755399441055744.;
  const double k = shifted - 6755399441055744.;
  double r = clamped - k * 6.93147180369123816490e-01;
  r = r - k * 1.90821492927058770002e-10;
  // Taylor to degree 13: the remainder is below 2^-57 for |r| <= ln2/2.
  double p = 1.6059043836821613e-10;
  p = p * r + 2.08767569878681e-09;
  p = p * r + 2.505210838544172e-08;
  p = p * r + 2.755731922398589e-07;
  p = p * r + 2.7557319223985893e-06;
  p = p * r + 2.48015873015873e-05;
  p = p * r + 1.984126984126984e-04;
  p = p * r + 1.3888888888888889e-03;
  p = p * r + 8.333333333333333e-03;
  p = p * r + 4.1666666666666664e-02;
  p = p * r + 1.6666666666666666e-01;
  p = p * r + 5.0e-01;
  p = p * (r * r) + r + 1.;
  const long long ik = static_cast<long long>(double_bits(shifted) & 0xffffull);
  const long long signed_k = ik >= 0x8000 ? ik - 0x10000 : ik;
  const long long half = signed_k >> 1;
  const double a = double_from_bits(static_cast<unsigned long long>(half + 1023) << 52);
  const double b = double_from_bits(static_cast<unsigned long long>(signed_k - half + 1023) << 52);
  const double y = p * a * b;
  return x != x ? x : y;
}

/// log in float: exponent · ln2 + log of a mantissa in [sqrt(1/2), sqrt(2)). Subnormals are scaled up first.
TD_HD float log_(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.f : x;
  const unsigned u = float_bits(scaled);
  const unsigned v = u - 0x3f3504f3u;
  const int e = static_cast<int>(v) >> 23;
  const float m = float_from_bits((v & 0x007fffffu) + 0x3f3504f3u) - 1.f;
  const float k = static_cast<float>(e) - (tiny ? 23.f : 0.f);
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m + -1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m + -1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m + -1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m + -2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = p * m * z;
  y = y + k * -2.12194440e-4f;
  y = y - 0.5f * z;
  y = m + y;
  y = y + k * 0.693359375f;
  y = x == float_from_bits(0x7f800000u) ? x : y;
  y = x == 0.f ? float_from_bits(0xff800000u) : y;
  return x < 0.f || x != x ? float_from_bits(0x7fc00000u) : y;
}

TD_HD double log_(double x) {
  const bool tiny = x < 2.2250738585072014e-308;
  const double scaled = tiny ? x * 4503599627370496. : x;
  const unsigned long long u = double_bits(scaled);
  const unsigned long long v = u - 0x3fe6a09e667f3bcdull;
  const long long e = static_cast<long long>(v) >> 52;
  const double m = double_from_bits((v & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double k = static_cast<double>(e) - (tiny ? 52. : 0.);
  // log(m) = 2 atanh(s), s = (m - 1) / (m + 1): an odd series in s, |s| < 0.1716.
  const double f = m - 1.;
  const double s = f / (2. + f);
  const double z = s * s;
  double p = 1. / 23.;
  p = p * z + 1. / 21.;
  p = p * z + 1. / 19.;
  p = p * z + 1. / 17.;
  p = p * z + 1. / 15.;
  p = p * z + 1. / 13.;
  p = p * z + 1. / 11.;
  p = p * z + 1. / 9.;
  p = p * z + 1. / 7.;
  p = p * z + 1. / 5.;
  p = p * z + 1. / 3.;
  const double r = 2. * s * (p * z);
  double y = k * 1.90821492927058770002e-10 + r;
  // 2s = f - s·f keeps the leading term exact.
  y = y - s * f;
  y = f + y;
  y = y + k * 6.93147180369123816490e-01;
  y = x == double_from_bits(0x7ff0000000000000ull) ? x : y;
  y = x == 0. ? double_from_bits(0xfff0000000000000ull) : y;
  return x < 0. || x != x ? double_from_bits(0x7ff8000000000000ull) : y;
}

template <class T>
TD_HD T abs_(T x) {
  return x < T(0) ? -x : x;
}
TD_HD float abs_(float x) { return float_from_bits(float_bits(x) & 0x7fffffffu); }
TD_HD double abs_(double x) { return double_from_bits(double_bits(x) & 0x7fffffffffffffffull); }
TD_HD float copy_sign(float magnitude, float sign) {
  return float_from_bits((float_bits(magnitude) & 0x7fffffffu) | (float_bits(sign) & 0x80000000u));
}
TD_HD double copy_sign(double magnitude, double sign) {
  return double_from_bits((double_bits(magnitude) & 0x7fffffffffffffffull) |
                          (double_bits(sign) & 0x8000000000000000ull));
}
TD_HD float sqrt_(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
TD_HD double sqrt_(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}
TD_HD float floor_(float x) {
#if defined(__CUDA_ARCH__)
  return ::floorf(x);
#else
  return __builtin_floorf(x);
#endif
}
TD_HD double floor_(double x) {
#if defined(__CUDA_ARCH__)
  return ::floor(x);
#else
  return __builtin_floor(x);
#endif
}

/// tanh: an odd polynomial near 0, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign put back.
TD_HD float tanh_(float x) {
  const float a = abs_(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z + -5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z + -3.33332819422e-1f;
  const float small = p * z * x + x;
  const float e = exp_(2.f * (a > 10.f ? 10.f : a));
  const float large = copy_sign(1.f - 2.f / (e + 1.f), x);
  const float y = a < 0.625f ? small : large;
  return x != x ? x : y;
}
TD_HD double tanh_(double x) {
  const double a = abs_(x);
  const double z = x * x;
  double p = -9.64399179425052238628e-1;
  p = p * z + -9.92877231001918586564e1;
  p = p * z + -1.61468768441708447952e3;
  double q = z + 1.12811678491632931402e2;
  q = q * z + 2.23548839060100448583e3;
  q = q * z + 4.84406305325125486048e3;
  const double small = x + x * z * (p / q);
  const double e = exp_(2. * (a > 22. ? 22. : a));
  const double large = copy_sign(1. - 2. / (e + 1.), x);
  const double y = a < 0.625 ? small : large;
  return x != x ? x : y;
}

/// sin (shift = 0) and cos (shift = 1): reduction by pi/2 in parts, then one of two polynomials. In float the
/// reduction is carried out in double, which keeps it exact enough for |x| below 2^30.
template <class T>
TD_HD T sin_cos_(T x_in, int shift) {
  const double x = static_cast<double>(x_in);
  const double shifted = x * 0.6366197723675814 + 6755399441055744.;
  const double k = shifted - 6755399441055744.;
  double r = x - k * 1.5707963267341256e+00;
  r = r - k * 6.0771005065061922e-11;
  const unsigned quadrant = static_cast<unsigned>(double_bits(shifted)) + static_cast<unsigned>(shift);
  const double z = r * r;
  double s = 1.58962301576546568060e-10;
  s = s * z + -2.50507477628578072866e-8;
  s = s * z + 2.75573136213857245213e-6;
  s = s * z + -1.98412698295895385996e-4;
  s = s * z + 8.33333333332211858878e-3;
  s = s * z + -1.66666666666666307295e-1;
  s = s * z * r + r;
  double c = -1.13585365213876817300e-11;
  c = c * z + 2.08757008419747316778e-9;
  c = c * z + -2.75573141792967388112e-7;
  c = c * z + 2.48015872888517045348e-5;
  c = c * z + -1.38888888888730564116e-3;
  c = c * z + 4.16666666666665929218e-2;
  c = 1. - 0.5 * z + c * z * z;
  double y = (quadrant & 1u) ? c : s;
  y = (quadrant & 2u) ? -y : y;
  const bool defined = abs_(x) < 1073741824.;
  return static_cast<T>(defined ? y : double_from_bits(0x7ff8000000000000ull));
}

/// erf after Abramowitz-Stegun's form with a fit to double accuracy by pieces: a series near 0, and
/// 1 - exp(-x²)·c(1/x) beyond (rational fits in the manner of Cody).
TD_HD double erf_(double x) {
  const double a = abs_(x);
  // |x| <= 0.5: x · P(x²)/Q(x²)
  const double z = x * x;
  double p = 1.85777706184603153e-1;
  p = p * z + 3.16112374387056560;
  p = p * z + 1.13864154151050156e2;
  p = p * z + 3.77485237685302021e2;
  p = p * z + 3.20937758913846947e3;
  double q = z + 2.36012909523441209e1;
  q = q * z + 2.44024637934444173e2;
  q = q * z + 1.28261652607737228e3;
  q = q * z + 2.84423683343917062e3;
  const double near = x * (p / q);
  // 0.5 < |x| <= 4
  const double b = a > 4. ? 4. : a;
  double m = 2.15311535474403846e-8;
  m = m * b + 5.64188496988670089e-1;
  m = m * b + 8.88314979438837594;
  m = m * b + 6.61191906371416295e1;
  m = m * b + 2.98635138197400131e2;
  m = m * b + 8.81952221241769090e2;
  m = m * b + 1.71204761263407058e3;
  m = m * b + 2.05107837782607147e3;
  m = m * b + 1.23033935479799725e3;
  double n = b + 1.57449261107098347e1;
  n = n * b + 1.17693950891312499e2;
  n = n * b + 5.37181101862009858e2;
  n = n * b + 1.62138957456669019e3;
  n = n * b + 3.29079923573345963e3;
  n = n * b + 4.36261909014324716e3;
  n = n * b + 3.43936767414372164e3;
  n = n * b + 1.23033935480374942e3;
  const double middle = 1. - exp_(-(b * b)) * (m / n);
  // beyond 4 erf is 1 - 1.5e-8 … 1: asymptotic factor
  const double d = a < 4. ? 4. : (a > 6. ? 6. : a);
  const double w = 1. / (d * d);
  double s = 1.63153871373020978e-2;
  s = s * w + 3.05326634961232344e-1;
  s = s * w + 3.60344899949804439e-1;
  s = s * w + 1.25781726111229246e-1;
  s = s * w + 1.60837851487422766e-2;
  s = s * w + 6.58749161529837803e-4;
  double t = w + 2.56852019228982242;
  t = t * w + 1.87295284992346047;
  t = t * w + 5.27905102951428412e-1;
  t = t * w + 6.05183413124413191e-2;
  t = t * w + 2.33520497626869185e-3;
  const double far = 1. - exp_(-(d * d)) * ((5.6418958354775628695e-1 - w * (s / t)) / d);
  double y = a <= 0.5 ? near : copy_sign(a <= 4. ? middle : far, x);
  y = a > 6. ? copy_sign(1., x) : y;
  return x != x ? x : y;
}
TD_HD float erf_(float x) { return static_cast<float>(erf_(static_cast<double>(x))); }

/// x^y by exp(y·log x) in double, with the sign and the special cases of IEEE pow.
TD_HD double pow_(double x, double y) {
  const double a = abs_(x);
  const double whole = floor_(y);
  const bool is_whole = whole == y;
  const bool is_odd = is_whole && (floor_(y * 0.5) * 2. != y);
  // log in two parts: exponent and mantissa, so that large |y log x| keeps its precision.
  double magnitude = exp_(y * log_(a));
  // Small whole powers exactly as repeated products would give them (2 and 0.5 are what training uses).
  magnitude = y == 2. ? a * a : magnitude;
  magnitude = y == 1. ? a : magnitude;
  magnitude = y == 0.5 ? sqrt_(a) : magnitude;
  magnitude = y == -1. ? 1. / a : magnitude;
  const double inf = double_from_bits(0x7ff0000000000000ull);
  magnitude = a == 0. ? (y > 0. ? 0. : inf) : magnitude;
  magnitude = a == 1. ? 1. : magnitude;
  double result = x < 0. || (x == 0. && double_bits(x) != 0) ? (is_odd ? -magnitude : magnitude) : magnitude;
  result = x < 0. && !is_whole && abs_(y) != inf ? double_from_bits(0x7ff8000000000000ull) : result;
  result = x != x || y != y ? x + y : result;
  result = y == 0. || x == 1. ? 1. : result;
  return result;
}
TD_HD float pow_(float x, float y) {
  return static_cast<float>(pow_(static_cast<double>(x), static_cast<double>(y)));
}
/// Whole powers; a negative power of an integer is 0 but for ±1.
template <class T>
TD_HD T pow_(T x, T y) {
  if (y < T(0)) return x == T(1) ? T(1) : (x == T(-1) ? ((y & T(1)) ? T(-1) : T(1)) : T(0));
  T result = T(1);
  for (T base = x, left = y; left > T(0);
       left = static_cast<T>(left >> 1), base = static_cast<T>(base * base))
    if (left & T(1)) result = static_cast<T>(result * base);
  return result;
}
TD_HD bool pow_(bool x, bool y) { return x || !y; }

/// Two normal numbers from two random words (Box-Muller).
struct NormalPair {
  float first, second;
};
TD_HD NormalPair normal_pair(unsigned bits0, unsigned bits1) {
  const float u = (static_cast<float>(bits0 >> 8) + 1.f) * 5.9604644775390625e-8f;  // (0, 1]
  const float v = static_cast<float>(bits1 >> 8) * 5.9604644775390625e-8f;
  const float r = sqrt_(-2.f * log_(u));
  const float angle = 6.2831853071795865f * v;
  return {r * sin_cos_(angle, 1), r * sin_cos_(angle, 0)};
}

// ---- functors

#define TD_UNARY(Name, expression) \
  struct Name { \
    template <class T> \
    TD_HD auto operator()(T x) const { \
      return expression; \
    } \
  };
#define TD_BINARY(Name, expression) \
  struct Name { \
    template <class T> \
    TD_HD auto operator()(T a, T b) const { \
      return expression; \
    } \
  };

TD_BINARY(Add, static_cast<T>(a + b))
TD_BINARY(Sub, static_cast<T>(a - b))
TD_BINARY(Mul, static_cast<T>(a* b))
TD_BINARY(Div, static_cast<T>(a / b))
TD_BINARY(Pow, pow_(a, b))
TD_BINARY(Maximum, (a != a || a > b) ? a : b)
TD_BINARY(Minimum, (a != a || a < b) ? a : b)
TD_BINARY(Equal, a == b)
TD_BINARY(NotEqual, a != b)
TD_BINARY(Less, a < b)
TD_BINARY(LessEqual, a <= b)
TD_BINARY(Greater, a > b)
TD_BINARY(GreaterEqual, a >= b)
TD_BINARY(LogicalAnd, (a != T(0)) & (b != T(0)))
TD_BINARY(LogicalOr, (a != T(0)) | (b != T(0)))
TD_UNARY(LogicalNot, x == T(0))
TD_UNARY(Neg, static_cast<T>(-x))
TD_UNARY(Abs, static_cast<T>(abs_(x)))
TD_UNARY(Sign, static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0))))
TD_UNARY(Floor, floor_(x))
TD_UNARY(Exp, exp_(x))
TD_UNARY(Log, log_(x))
TD_UNARY(Sqrt, sqrt_(x))
TD_UNARY(Rsqrt, T(1) / sqrt_(x))
TD_UNARY(Sin, sin_cos_(x, 0))
TD_UNARY(Cos, sin_cos_(x, 1))
TD_UNARY(Tanh, tanh_(x))
TD_UNARY(Erf, erf_(x))
TD_UNARY(Sigmoid, T(1) / (T(1) + exp_(-x)))
TD_UNARY(Relu, x > T(0) || x != x ? x : T(0))
TD_UNARY(Gelu, x* T(0.5) * (T(1) + erf_(x * T(0.70710678118654752440))))
/// g where the relu's output is positive, else 0.
TD_BINARY(ReluGradient, b > T(0) ? a : T(0))

/// condition ? a : b; the caller loads the condition as bool.
struct Where {
  template <class T>
  TD_HD T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

#undef TD_UNARY
#undef TD_BINARY

// ---- storage and compute types

template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};
template <>
struct ComputeType<Float16> {
  using type = float;
};

template <bool value, class A, class B>
struct Choose {
  using type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using type = B;
};

/// cast: one element from one storage type to another. Floats to integers truncate (NaN gives 0, beyond the
/// range the nearest end); to bool: non-zero.
template <class To, class From>
struct CastTo {
  TD_HD static To apply(From x) { return static_cast<To>(static_cast<typename ComputeType<To>::type>(x)); }
};
template <class From>
struct CastTo<bool, From> {
  TD_HD static bool apply(From x) { return static_cast<typename ComputeType<From>::type>(x) != 0; }
};
template <class To, class From, bool is_signed>
TD_HD To saturate(From x) {
  constexpr To low = is_signed ? static_cast<To>(1ull << (8 * sizeof(To) - 1)) : To(0);
  constexpr To high = static_cast<To>(~low);
  const From lowest = static_cast<From>(low);
  // The first value beyond the range is a power of two and exact in any floating type.
  const From beyond =
      static_cast<From>(static_cast<double>(1ull << (8 * sizeof(To) - 1)) * (is_signed ? 1. : 2.));
  if (x != x) return To(0);
  if (x <= lowest) return low;
  if (x >= beyond) return high;
  return static_cast<To>(x);
}
#define TD_CAST_TO_INTEGER(To, is_signed) \
  template <> \
  struct CastTo<To, double> { \
    TD_HD static To apply(double x) { return saturate<To, double, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, float> { \
    TD_HD static To apply(float x) { return saturate<To, float, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, BFloat16> { \
    TD_HD static To apply(BFloat16 x) { return saturate<To, float, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, Float16> { \
    TD_HD static To apply(Float16 x) { return saturate<To, float, is_signed>(x); } \
  };
TD_CAST_TO_INTEGER(signed char, true)
TD_CAST_TO_INTEGER(short, true)
TD_CAST_TO_INTEGER(int, true)
TD_CAST_TO_INTEGER(long, true)
TD_CAST_TO_INTEGER(unsigned char, false)
TD_CAST_TO_INTEGER(unsigned short, false)
TD_CAST_TO_INTEGER(unsigned, false)
TD_CAST_TO_INTEGER(unsigned long, false)
#undef TD_CAST_TO_INTEGER

// ---- the table of pointwise ops --------------------------------------------------------------------
// X(name, functor, number of inputs, element types of the inputs): the rows from which the CPU and CUDA backends
// make their loops. `every` is all types, `number` all but bool, `floating` f64, f32, bf16, f16. The result has the
// type of the inputs unless the functor returns bool. (where takes a bool first and is the one with 3 inputs.)
#define TD_POINTWISE_OPS(X) \
  X(add, Add, 2, number) \
  X(sub, Sub, 2, number) \
  X(mul, Mul, 2, number) \
  X(div, Div, 2, floating) \
  X(pow, Pow, 2, number) \
  X(maximum, Maximum, 2, every) \
  X(minimum, Minimum, 2, every) \
  X(equal, Equal, 2, every) \
  X(not_equal, NotEqual, 2, every) \
  X(less, Less, 2, every) \
  X(less_equal, LessEqual, 2, every) \
  X(greater, Greater, 2, every) \
  X(greater_equal, GreaterEqual, 2, every) \
  X(logical_and, LogicalAnd, 2, every) \
  X(logical_or, LogicalOr, 2, every) \
  X(logical_not, LogicalNot, 1, every) \
  X(neg, Neg, 1, number) \
  X(abs, Abs, 1, number) \
  X(sign, Sign, 1, number) \
  X(floor, Floor, 1, floating) \
  X(exp, Exp, 1, floating) \
  X(log, Log, 1, floating) \
  X(sqrt, Sqrt, 1, floating) \
  X(rsqrt, Rsqrt, 1, floating) \
  X(sin, Sin, 1, floating) \
  X(cos, Cos, 1, floating) \
  X(tanh, Tanh, 1, floating) \
  X(erf, Erf, 1, floating) \
  X(sigmoid, Sigmoid, 1, floating) \
  X(relu, Relu, 1, number) \
  X(gelu, Gelu, 1, floating) \
  X(relu_gradient, ReluGradient, 2, number) \
  X(where, Where, 3, every)

}  // namespace tandem
