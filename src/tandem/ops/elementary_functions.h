// Elementary and special functions of one number: exp, log, sin, erf, lgamma, pow … Written branch-free where it matters, with
// plain arithmetic (no libm, no fused multiply-add but by fma_), so that compilers vectorise them and the CPU, CUDA and the
// run-time compiled kernels give the same bits. No includes but half.h: NVRTC compiles this text.
#pragma once

#include "tandem/core/half.h"

/// Always inlined: a loop over a function that is left as a call is not vectorised.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define TD_FN TD_HD
#else
#define TD_FN inline __attribute__((always_inline))
#endif

namespace tandem {

TD_FN unsigned long long double_bits(double x) { return __builtin_bit_cast(unsigned long long, x); }
TD_FN double double_from_bits(unsigned long long x) { return __builtin_bit_cast(double, x); }

/// a · b + c with one rounding. Written out where it is meant, in f32 only; compilers are told to fuse nothing themselves.
/// All hardware of today has the instruction; x86-64 without AVX2 calls the C library, slowly, for the same bits.
TD_FN float fma_(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// x within [low, high] (low < 0 < high) by comparing its bits, which takes one instruction a side where comparing floats
/// takes several for the sake of NaN. A NaN becomes one of the ends.
TD_FN float within_bits(float x, float low, float high) {
  const int top = static_cast<int>(float_bits(high)), signed_bits = static_cast<int>(float_bits(x));
  const unsigned bottom = float_bits(low),
                 bits = static_cast<unsigned>(signed_bits < top ? signed_bits : top);
  return float_from_bits(bits < bottom ? bits : bottom);
}

/// (1 + p) · 2^k, in double p · 2^k, in two factors, so that neither over- nor underflows before the product does. |k| < 250 (in double 2000).
TD_FN float one_more_times_power_of_two(float p, unsigned k) {
  const unsigned whole = k << 23, half = static_cast<unsigned>(static_cast<int>(whole) >> 1) & 0xff800000u;
  const float first = float_from_bits(half + 0x3f800000u);
  return fma_(p, first, first) * float_from_bits(whole - half + 0x3f800000u);
}
TD_FN double times_power_of_two(double p, long long k) {
  const unsigned long long biased = static_cast<unsigned long long>(k + 4096), half = biased >> 1;
  const double a = double_from_bits((half - 2048u + 1023u) << 52);
  const double b = double_from_bits((biased - half - 2048u + 1023u) << 52);
  return p * a * b;
}

/// x = k·ln2 + r with |r| <= ln2/2, and e^r - 1 = r + r²·p(r).
struct ExpPartsFloat {
  unsigned k;  // in the low 9 bits, what stands above has no meaning
  float tail;  // e^r - 1
};
struct ExpPartsDouble {
  long long k;
  double tail;
};
TD_FN float exp_tail(float r) {
  const float z = r * r;
  const float high = fma_(z, 1.39464322805e-3f, fma_(r, 8.36658847255e-3f, 4.16662835524e-2f));
  return fma_(fma_(high, z, fma_(r, 1.66665433235e-1f, 5.00000006072e-1f)), z, r);
}
TD_FN ExpPartsFloat exp_parts(float x) {
  const float shifted = fma_(x, 1.44269504f, 12582912.f);  // rounds to an integer in the low mantissa bits
  const float k = shifted - 12582912.f;
  return {float_bits(shifted), exp_tail(fma_(k, 2.12194440e-4f, fma_(k, -0.693359375f, x)))};
}
TD_FN double exp_tail(double r) {
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
  return p * (r * r) + r;
}
TD_FN ExpPartsDouble exp_parts(double x) {
  const double shifted = x * 1.4426950408889634 + 6755399441055744.;
  const double k = shifted - 6755399441055744.;
  double r = x - k * 6.93147180369123816490e-01;
  r = r - k * 1.90821492927058770002e-10;
  return {static_cast<long long>(double_bits(shifted) - 0x4338000000000000ull), exp_tail(r)};
}

/// exp(x), under 1.5 ulp. Overflows to inf above 88.72 (f64: 709.78), underflows gradually.
TD_FN float exp_(float x) {
  const auto e = exp_parts(within_bits(x, -104.f, 90.f));
  const float y = one_more_times_power_of_two(e.tail, e.k);
  return x != x ? x : y;
}
/// exp(x) · 2^shift.
TD_FN double exp_shifted(double x, int shift) {
  const auto e = exp_parts(x < -746. ? -746. : (x > 711. ? 711. : x));
  return times_power_of_two(e.tail + 1., e.k + shift);
}
TD_FN double exp_(double x) { return exp_shifted(x, 0); }
/// exp(x) above -87, something small below, inf from 88.8 on; not for NaN. For sums with 1.
TD_FN float exp_for_sum(float x) {
  const auto e = exp_parts(within_bits(x, -87.f, 89.f));
  // Half the power: the whole one is inf for k = 128, of which a tail below 0 would make NaN.
  const float half = float_from_bits((e.k << 23) + 0x3f000000u), y = fma_(e.tail, half, half);
  return y + y;
}
/// 2^x (times 2^shift) within 1.2e-7 for -126 <= x + shift < 128, where the result is only a part of something.
TD_FN float exp2_near(float x, int shift = 0) {
  const float shifted = x + 12582912.f;
  const float f = x - (shifted - 12582912.f), z = f * f;
  const float high = fma_(z, 1.34073380699e-3f, fma_(f, 9.67195244527e-3f, 5.55030837848e-2f));
  const float p = fma_(high, z, fma_(f, 2.40222342868e-1f, 6.93147214584e-1f));
  const float power =
      float_from_bits((float_bits(shifted) << 23) + (static_cast<unsigned>(127 + shift) << 23));
  return fma_(p, f * power, power);
}

TD_FN float exp2_(float x) {
  const float clamped = within_bits(x, -151.f, 129.f);
  const float shifted = clamped + 12582912.f;
  const float r = clamped - (shifted - 12582912.f);
  const float y = one_more_times_power_of_two(exp_tail(r * 0.693147181f), float_bits(shifted));
  return x != x ? x : y;
}
TD_FN double exp2_(double x) {
  const double clamped = x < -1076. ? -1076. : (x > 1025. ? 1025. : x);
  const double shifted = clamped + 6755399441055744.;
  const double r = clamped - (shifted - 6755399441055744.);
  return times_power_of_two(exp_tail(r * 0.69314718055994531) + 1.,
                            static_cast<long long>(double_bits(shifted) - 0x4338000000000000ull));
}

/// exp(x) - 1 = 2^k (e^r - 1) + (2^k - 1), both halved until the end so that only the result overflows.
TD_FN float expm1_(float x) {
  const auto e = exp_parts(within_bits(x, -18.f, 89.f));
  const float half = float_from_bits((e.k << 23) + 0x3f000000u);  // 2^(k-1)
  const float y = half == 0.5f ? e.tail : fma_(half, e.tail, half - 0.5f) * 2.f;
  return (float_bits(x) & 0x7fffffffu) < 0x2edbe6ffu || x != x ? x : y;  // |x| below 1e-10
}
TD_FN double expm1_(double x) {
  const auto e = exp_parts(x < -40. ? -40. : (x > 710. ? 710. : x));
  const double half = double_from_bits(static_cast<unsigned long long>(e.k + 1022) << 52);
  const double y = e.k == 0 ? e.tail : (half * e.tail + (half - 0.5)) * 2.;
  return x < 1e-20 && x > -1e-20 ? x : y;
}

/// log x = k·ln2 + log(1 + m), the second as m + rest; 1 + m in [sqrt(1/2), sqrt(2)). Subnormals are scaled up first.
struct LogPartsFloat {
  float k, m, rest;
};
struct LogPartsDouble {
  double k, m, rest;
};
TD_FN LogPartsFloat log_parts(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.f : x;
  const unsigned u = float_bits(scaled);
  const unsigned v = u - 0x3f3504f3u;
  const int e = static_cast<int>(v) >> 23;
  const float m = float_from_bits((v & 0x007fffffu) + 0x3f3504f3u) - 1.f;
  const float k = static_cast<float>(e) - (tiny ? 23.f : 0.f);
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = fma_(p, m, -1.1514610310e-1f);
  p = fma_(p, m, 1.1676998740e-1f);
  p = fma_(p, m, -1.2420140846e-1f);
  p = fma_(p, m, 1.4249322787e-1f);
  p = fma_(p, m, -1.6668057665e-1f);
  p = fma_(p, m, 2.0000714765e-1f);
  p = fma_(p, m, -2.4999993993e-1f);
  p = fma_(p, m, 3.3333331174e-1f);
  return {k, m, fma_(p * m, z, -0.5f * z)};
}
TD_FN LogPartsDouble log_parts(double x) {
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
  return {k, f, 2. * s * (p * z) - s * f};  // 2s = f - s·f keeps the leading term exact
}
/// What every logarithm gives beyond the positive finite numbers; y elsewhere.
TD_FN float log_beyond(float x, float y) {
  y = x == float_from_bits(0x7f800000u) ? x : y;
  y = x == 0.f ? float_from_bits(0xff800000u) : y;
  return x < 0.f || x != x ? float_from_bits(0x7fc00000u) : y;
}
TD_FN double log_beyond(double x, double y) {
  y = x == double_from_bits(0x7ff0000000000000ull) ? x : y;
  y = x == 0. ? double_from_bits(0xfff0000000000000ull) : y;
  return x < 0. || x != x ? double_from_bits(0x7ff8000000000000ull) : y;
}
TD_FN float log_(float x) {
  const auto l = log_parts(x);
  return log_beyond(x, fma_(l.k, 0.693359375f, l.m + fma_(l.k, -2.12194440e-4f, l.rest)));
}
TD_FN double log_(double x) {
  const auto l = log_parts(x);
  return log_beyond(x, l.m + (l.rest + l.k * 1.90821492927058770002e-10) + l.k * 6.93147180369123816490e-01);
}
/// log2 and log10: the factor of the leading term m is split, so that its product is exact.
TD_FN float log2_(float x) {
  const auto l = log_parts(x);
  const float high = float_from_bits(float_bits(l.m + l.rest) & 0xfffff000u), low = (l.m - high) + l.rest;
  // log2(e) = 1.4423828125 + 3.12228389e-4
  return log_beyond(x, (low * 1.44269504f + high * 3.12228389e-4f) + high * 1.4423828125f + l.k);
}
TD_FN double log2_(double x) {
  const auto l = log_parts(x);
  const double high = double_from_bits(double_bits(l.m + l.rest) & 0xffffffff00000000ull),
               low = (l.m - high) + l.rest;
  return log_beyond(
      x, (low * 1.4426950408889634 + high * 3.768874985636099e-07) + high * 1.44269466400146484375 + l.k);
}
TD_FN float log10_(float x) {
  const auto l = log_parts(x);
  const float high = float_from_bits(float_bits(l.m + l.rest) & 0xfffff000u), low = (l.m - high) + l.rest;
  // log10(e) = 0.434326171875 - 3.16899717e-5, log10(2) = 0.30078125 + 2.48745663981e-4
  return log_beyond(x, (low * 0.434294482f + high * -3.16899717e-5f + l.k * 2.48745664e-4f) +
                           high * 0.434326171875f + l.k * 0.30078125f);
}
TD_FN double log10_(double x) {
  const auto l = log_parts(x);
  const double high = double_from_bits(double_bits(l.m + l.rest) & 0xffffffff00000000ull),
               low = (l.m - high) + l.rest;
  return log_beyond(
      x, (low * 0.43429448190325183 + high * 1.9699272335463627e-08 + l.k * 7.5085978265526235e-08) +
             high * 0.4342944622039794921875 + l.k * 0.3010299205780029296875);
}
/// log(1 + x): the logarithm of the rounded sum, and what the rounding lost.
template <class T>
TD_FN T log1p_(T x) {
  const T u = T(1) + x;
  // x >= 1: 1 - (u - x), else x - (u - 1), written without a choice: the larger of the two comes first.
  const T large = x > T(1) ? x : T(1), small = x > T(1) ? T(1) : x;
  const T lost = small - (u - large);
  const T y = log_(u);
  // 0 stays 0 with its sign; at inf and -1 there is nothing to set right.
  const T corrected = y + lost / u;
  const bool plain = y - y == T(0);
  return x == T(0) ? x : (plain ? corrected : y);
}

template <class T>
TD_FN T abs_(T x) {
  return x < T(0) ? -x : x;
}
TD_FN float abs_(float x) { return float_from_bits(float_bits(x) & 0x7fffffffu); }
TD_FN double abs_(double x) { return double_from_bits(double_bits(x) & 0x7fffffffffffffffull); }
TD_FN float copy_sign(float magnitude, float sign) {
  return float_from_bits((float_bits(magnitude) & 0x7fffffffu) | (float_bits(sign) & 0x80000000u));
}
TD_FN double copy_sign(double magnitude, double sign) {
  return double_from_bits((double_bits(magnitude) & 0x7fffffffffffffffull) |
                          (double_bits(sign) & 0x8000000000000000ull));
}
TD_FN float sqrt_(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
TD_FN double sqrt_(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}
TD_FN float floor_(float x) {
#if defined(__CUDA_ARCH__)
  return ::floorf(x);
#else
  return __builtin_floorf(x);
#endif
}
TD_FN double floor_(double x) {
#if defined(__CUDA_ARCH__)
  return ::floor(x);
#else
  return __builtin_floor(x);
#endif
}

TD_FN float trunc_(float x) { return copy_sign(floor_(abs_(x)), x); }
TD_FN double trunc_(double x) { return copy_sign(floor_(abs_(x)), x); }
/// To the nearest whole number, halves to the even one: adding 2^23 (2^52) leaves no room for a fraction.
TD_FN float round_(float x) {
  const float a = abs_(x);
  return a < 8388608.f ? copy_sign((a + 8388608.f) - 8388608.f, x) : x;
}
TD_FN double round_(double x) {
  const double a = abs_(x);
  return a < 4503599627370496. ? copy_sign((a + 4503599627370496.) - 4503599627370496., x) : x;
}

/// tanh of a = |x| below 0.625: an odd polynomial.
TD_FN float tanh_near_zero(float a) {
  const float z = a * a, z2 = z * z;
  const float high = fma_(fma_(z, -5.70498872745e-3f, 2.06390887954e-2f), z, -5.37397155531e-2f);
  const float p = fma_(high, z2, fma_(z, 1.33314422036e-1f, -3.33332819422e-1f));
  return fma_(p * z, a, a);
}
/// tanh: a polynomial near 0, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign put back.
TD_FN float tanh_(float x) {
  const float a = abs_(x);
  const float e = exp2_near((a > 10.f ? 10.f : a) * 2.88539008f);
  return copy_sign(a < 0.625f ? tanh_near_zero(a) : 1.f - 2.f / (e + 1.f), x);
}
TD_FN double tanh_(double x) {
  const double a = abs_(x);
  const double z = x * x;
  double p = -9.64399179425052238628e-1;
  p = p * z + -9.92877231001918586564e1;
  p = p * z + -1.61468768441708447952e3;
  double q = z + 1.12811678491632931402e2;
  q = q * z + 2.23548839060100448583e3;
  q = q * z + 4.84406305325125486048e3;
  const double e = exp_(2. * (a > 22. ? 22. : a));
  return copy_sign(a < 0.625 ? a + a * z * (p / q) : 1. - 2. / (e + 1.), x);
}

/// x = (a whole number of quarter turns, of which only the last two bits matter) · pi/2 + rest, |rest| <= pi/4.
struct QuarterTurns {
  double rest;
  unsigned count;
};
/// |x| below 2^30: pi/2 is taken off in parts. Branch-free, so that loops over it vectorise.
constexpr double kFarAngle = 1073741824.;
TD_FN QuarterTurns near_turns(double x) {
  const double shifted = x * 0.6366197723675814 + 6755399441055744.;
  const double k = shifted - 6755399441055744.;
  double r = x - k * 1.570796251296997;  // parts of 23 bits: exact products for k below 2^30
  r = r - k * 7.549789415861596e-08;
  r = r - k * 5.390302858158119e-15;
  return {r, static_cast<unsigned>(double_bits(shifted))};
}

TD_FN double upper_half(double x) { return double_from_bits(double_bits(x) & 0xfffffffff8000000ull); }
/// The upper 64 bits of a product.
TD_FN unsigned long long multiply_high(unsigned long long a, unsigned long long b) {
  const unsigned long long a1 = a >> 32, a0 = a & 0xffffffffu, b1 = b >> 32, b0 = b & 0xffffffffu;
  const unsigned long long middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
/// |x| from 2^30 on (Payne and Hanek's way): x = m · 2^e, and of 2/pi only the 192 bits count whose products with m are
/// neither multiples of four turns nor too small to matter. NaN for an infinity.
TD_HD QuarterTurns far_turns(double x) {
  static constexpr unsigned long long two_over_pi[20] = {0,  // for windows that begin before the first bit
                                                         0xa2f9836e4e441529ull,
                                                         0xfc2757d1f534ddc0ull,
                                                         0xdb6295993c439041ull,
                                                         0xfe5163abdebbc561ull,
                                                         0xb7246e3a424dd2e0ull,
                                                         0x06492eea09d1921cull,
                                                         0xfe1deb1cb129a73eull,
                                                         0xe88235f52ebb4484ull,
                                                         0xe99c7026b45f7e41ull,
                                                         0x3991d639835339f4ull,
                                                         0x9c845f8bbdf9283bull,
                                                         0x1ff897ffde05980full,
                                                         0xef2f118b5a0a6d1full,
                                                         0x6d367ecf27cb09b7ull,
                                                         0x4f463f669e5fea2dull,
                                                         0x7527bac7ebe5f17bull,
                                                         0x3d0739f78a5292eaull,
                                                         0x6bfb5fb11f8d5d08ull,
                                                         0x56033046fc7b6babull};
  const unsigned long long bits = double_bits(x);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ffu);
  if (exponent == 0x7ff) return {double_from_bits(0x7ff8000000000000ull), 0};
  const unsigned long long m = (bits & 0x000fffffffffffffull) | 0x0010000000000000ull;
  const int first = exponent - 1075 - 2 + 64, word = first >> 6, shift = first & 63;
  unsigned long long window[3];
  for (int i = 0; i < 3; ++i)
    window[i] = two_over_pi[word + i] << shift | (shift ? two_over_pi[word + i + 1] >> (64 - shift) : 0);
  const unsigned long long low = m * window[2], middle = m * window[1] + multiply_high(m, window[2]);
  const unsigned long long carry = middle < m * window[1];
  const unsigned long long high = m * window[0] + multiply_high(m, window[1]) + carry;
  // Two bits of quarter turns, then the fraction of one; above a half it counts from the next.
  unsigned long long upper = high << 2 | middle >> 62, lower = middle << 2 | low >> 62;
  const bool over = upper >> 63;
  unsigned count = static_cast<unsigned>(high >> 62) + over;
  if (over) {
    upper = ~upper;
    lower = ~lower;
  }
  // (head + tail) · pi/2, both factors in two parts.
  const double head = static_cast<double>(upper >> 11) * 0x1p-53;
  const double tail = static_cast<double>(upper & 0x7ffu) * 0x1p-64 + static_cast<double>(lower) * 0x1p-128;
  const double half_pi = 1.5707963267948966, product = head * half_pi;
  const double h1 = upper_half(head), h2 = head - h1, p1 = upper_half(half_pi), p2 = half_pi - p1;
  const double lost = ((h1 * p1 - product) + h1 * p2 + h2 * p1) + h2 * p2;
  const double rest = product + (lost + (head * 6.123233995736766e-17 + tail * half_pi));
  const bool turns_back = bits >> 63;
  return {over != turns_back ? -rest : rest, turns_back ? 0u - count : count};
}

/// sin and cos of an angle: two polynomials.
struct SinCos {
  double sin, cos;
};
TD_FN SinCos sin_cos_of(QuarterTurns turns) {
  const double r = turns.rest, z = r * r;
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
  const bool odd = (turns.count & 1u) != 0;
  const double sine = odd ? c : s, cosine = odd ? s : c;
  return {(turns.count & 2u) ? -sine : sine, ((turns.count + 1u) & 2u) ? -cosine : cosine};
}
// near_…: for |x| below kFarAngle (and NaN, infinities); the others for every x, with the same bits.
TD_FN double near_sin(double x) { return x == 0. ? x : sin_cos_of(near_turns(x)).sin; }
TD_FN double near_cos(double x) { return sin_cos_of(near_turns(x)).cos; }
TD_FN double near_tan(double x) {
  const auto both = sin_cos_of(near_turns(x));
  return x == 0. ? x : both.sin / both.cos;
}
TD_FN double sin_(double x) { return abs_(x) >= kFarAngle ? sin_cos_of(far_turns(x)).sin : near_sin(x); }
TD_FN double cos_(double x) { return abs_(x) >= kFarAngle ? sin_cos_of(far_turns(x)).cos : near_cos(x); }
TD_FN double tan_(double x) {
  if (abs_(x) < kFarAngle || x != x) return near_tan(x);
  const auto both = sin_cos_of(far_turns(x));
  return both.sin / both.cos;
}

/// atan of a quotient n / d, both positive: beyond tan(pi/8) by the difference to pi/4, beyond tan(3pi/8) by that to pi/2.
TD_FN double atan_quotient(double n, double d) {
  const bool middle = n > 0.41421356237309503 * d, far = n > 2.414213562373095 * d;
  const double x = (far ? -d : (middle ? n - d : n)) / (far ? n : (middle ? n + d : d));
  const double z = x * x;
  double p = -0.017930272984674221;
  p = p * z + 0.038086094331521286;
  p = p * z + -0.050401732609066775;
  p = p * z + 0.058480873943394234;
  p = p * z + -0.066631321228902122;
  p = p * z + 0.076920627736215429;
  p = p * z + -0.090908979077784757;
  p = p * z + 0.11111110788961502;
  p = p * z + -0.14285714280314611;
  p = p * z + 0.19999999999954884;
  p = p * z + -0.3333333333333320;
  const double near = p * z * x;
  const double low = far ? 6.123233995736766e-17 : (middle ? 3.061616997868383e-17 : 0.);
  const double high = far ? 1.5707963267948966 : (middle ? 0.78539816339744831 : 0.);
  return high + (x + (near + low));
}
TD_FN double atan_(double x) {
  const double a = abs_(x), inf = double_from_bits(0x7ff0000000000000ull);
  const double y = a == inf ? 1.5707963267948966 : atan_quotient(a, 1.);
  return x != x ? x : copy_sign(y, x);
}
TD_FN double atan2_(double y, double x) {
  const double a = abs_(y), b = abs_(x), inf = double_from_bits(0x7ff0000000000000ull);
  const bool both_zero = a == 0. && b == 0., both_inf = a == inf && b == inf;
  double n = both_inf ? 1. : (both_zero ? 0. : (a == inf ? 1. : (b == inf ? 0. : a)));
  double d = both_inf ? 1. : (both_zero ? 1. : (a == inf ? 0. : (b == inf ? 1. : b)));
  // Into the middle of the range, so that sums and products of the two neither over- nor underflow.
  const double factor = n > 1e150 || d > 1e150 ? 0x1p-600 : (n < 1e-150 && d < 1e-150 ? 0x1p600 : 1.);
  n = n * factor;
  d = d * factor;
  double angle = atan_quotient(n, d);
  angle = (double_bits(x) >> 63) ? 3.1415926535897931 - (angle - 1.2246467991473532e-16) : angle;
  return x != x || y != y ? x + y : copy_sign(angle, y);
}

/// asin for 0 <= x <= 1/2.
TD_FN double asin_near(double x) {
  const double z = x * x;
  double p = 0.032657894363725927;
  p = p * z + -0.021045473993817579;
  p = p * z + 0.021739843915678251;
  p = p * z + 0.0036933232210797315;
  p = p * z + 0.010783633127892209;
  p = p * z + 0.011398329738204077;
  p = p * z + 0.013980888260287358;
  p = p * z + 0.017351606769852031;
  p = p * z + 0.022372215247607990;
  p = p * z + 0.030381942700209386;
  p = p * z + 0.044642857174717430;
  p = p * z + 0.074999999999707784;
  p = p * z + 0.16666666666666760;
  return p * z * x + x;
}
/// asin and acos beyond 1/2 through pi/2 - 2 asin(sqrt((1 - x) / 2)); NaN beyond 1.
TD_FN double asin_(double x) {
  const double a = abs_(x);
  const bool far = a > 0.5;
  const double near = asin_near(far ? sqrt_(0.5 * (1. - a)) : a);
  const double y = far ? 1.5707963267948966 - (2. * near - 6.123233995736766e-17) : near;
  return copy_sign(y, x);
}
TD_FN double acos_(double x) {
  const double a = abs_(x);
  const bool far = a > 0.5;
  const double near = asin_near(far ? sqrt_(0.5 * (1. - a)) : a);
  const double positive = far ? 2. * near : 1.5707963267948966 - (near - 6.123233995736766e-17);
  const double negative = far ? 3.1415926535897931 - (2. * near - 1.2246467991473532e-16)
                              : 1.5707963267948966 + (near + 6.123233995736766e-17);
  return x < 0. ? negative : positive;
}

/// Half of e^|x| more or less half of e^-|x|; sinh near 0 by its series.
TD_FN double sinh_(double x) {
  const double a = abs_(x), z = a < 1. ? x * x : 0.;
  double p = 7.7593034793944736e-13;
  p = p * z + 1.6057240658504701e-10;
  p = p * z + 2.5052123393989211e-8;
  p = p * z + 2.7557319155369765e-6;
  p = p * z + 1.9841269841437558e-4;
  p = p * z + 8.3333333333331390e-3;
  p = p * z + 1.6666666666666667e-1;
  const double half = exp_shifted(a, -1);
  return a < 1. ? p * z * x + x : copy_sign(half - 0.25 / half, x);
}
TD_FN double cosh_(double x) {
  const double half = exp_shifted(abs_(x), -1);
  return half + 0.25 / half;
}
TD_FN double asinh_(double x) {
  const double a = abs_(x);
  const bool large = a > 1e9;
  const double near = log1p_(a + a * a / (1. + sqrt_(a * a + 1.)));
  return copy_sign(large ? log_(a) + 0.69314718055994531 : near, x);
}
TD_FN double acosh_(double x) {
  const double t = x - 1.;
  const double y = x > 1e9 ? log_(x) + 0.69314718055994531 : log1p_(t + sqrt_(2. * t + t * t));
  return x < 1. ? double_from_bits(0x7ff8000000000000ull) : y;
}
TD_FN double atanh_(double x) {
  const double a = abs_(x);
  return copy_sign(0.5 * log1p_(2. * a / (1. - a)), x);
}
/// sqrt(a² + b²) without overflow on the way.
TD_FN double hypot_(double a, double b) {
  const double x = abs_(a), y = abs_(b), inf = double_from_bits(0x7ff0000000000000ull);
  const double large = x > y ? x : y, small = x > y ? y : x;
  const double factor = large > 1e150 ? 0x1p-600 : (large < 1e-140 ? 0x1p600 : 1.);
  const double n = large * factor, m = small * factor;
  const double y2 = sqrt_(n * n + m * m) / factor;
  return x == inf || y == inf ? inf : y2 + (a != a || b != b ? a + b : 0.);
}

/// erf and erfc to double accuracy by pieces (rational fits in the manner of Cody): a polynomial near 0, and
/// exp(-x²)·R(x) or exp(-x²)·R(1/x²)/x beyond for erfc.
struct ErfParts {
  double near;  // erf(|x|) where |x| <= 0.5
  double tail;  // erfc(|x|) where |x| > 0.5
};
TD_FN ErfParts erf_parts(double x) {
  const double a = abs_(x);
  // |x| <= 0.5: x + x · P(x²)
  const double z = x * x;
  double p = -1.4617782170305124e-7;
  p = p * z + 1.6370885723059945e-6;
  p = p * z + -1.4922987187179760e-5;
  p = p * z + 1.2055285797068112e-4;
  p = p * z + -8.5483265048179669e-4;
  p = p * z + 5.2239776219663138e-3;
  p = p * z + -2.6866170644997282e-2;
  p = p * z + 1.1283791670954863e-1;
  p = p * z + -3.7612638903183750e-1;
  p = p * z + 1.2837916709551257e-1;
  const double near = a + a * p;
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
  // beyond 4: asymptotic factor
  const double d = a < 4. ? 4. : (a > 28. ? 28. : a);
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
  // exp(-c²): c² in two parts, since its rounding error would count c² times over.
  const double c = a > 28. ? 28. : a;
  const double high = double_from_bits(double_bits(c) & 0xfffffffff8000000ull), low = (c - high) * (c + high);
  const double bell = exp_(-(high * high)) * (1. - low * (1. - low * (0.5 - low * (1. / 6.))));
  return {near, bell * (a <= 4. ? m / n : (5.6418958354775628695e-1 - w * (s / t)) / d)};
}
TD_FN double erf_(double x) {
  const double a = abs_(x);
  const auto e = erf_parts(x);
  return copy_sign(a <= 0.5 ? e.near : 1. - e.tail, x);
}
TD_FN double erfc_(double x) {
  const auto e = erf_parts(x);
  const double far = x > 0. ? (x > 28. ? 0. : e.tail) : 2. - e.tail;
  return abs_(x) <= 0.5 ? 1. - copy_sign(e.near, x) : far;
}

/// The inverse of erf: the quantile of the normal distribution by three rational functions (Wichura, AS 241), over sqrt(2).
TD_FN double erfinv_(double x) {
  const double a = abs_(x), q = 0.5 * a;
  const bool central = q <= 0.425;
  const double near = 0.180625 - q * q;
  double n = 2.5090809287301226727e3;
  n = n * near + 3.3430575583588128105e4;
  n = n * near + 6.7265770927008700853e4;
  n = n * near + 4.5921953931549871457e4;
  n = n * near + 1.3731693765509461125e4;
  n = n * near + 1.9715909503065514427e3;
  n = n * near + 1.3314166789178437745e2;
  n = n * near + 3.3871328727963666080;
  double m = 5.2264952788528545610e3;
  m = m * near + 2.8729085735721942674e4;
  m = m * near + 3.9307895800092710610e4;
  m = m * near + 2.1213794301586595867e4;
  m = m * near + 5.3941960214247511077e3;
  m = m * near + 6.8718700749205790830e2;
  m = m * near + 4.2313330701600911252e1;
  m = m * near + 1.;
  // Beyond, by the root of the logarithm of what is left of 1, which 1 - a gives exactly.
  const double rest = sqrt_(-log_(central ? 0.0625 : 0.5 - q));
  const bool far = rest > 5.;
  const double r = rest - 1.6, s = rest - 5.;
  double u = 7.74545014278341407640e-4;
  u = u * r + 2.27238449892691845833e-2;
  u = u * r + 2.41780725177450611770e-1;
  u = u * r + 1.27045825245236838258;
  u = u * r + 3.64784832476320460504;
  u = u * r + 5.76949722146069140550;
  u = u * r + 4.63033784615654529590;
  u = u * r + 1.42343711074968357734;
  double v = 1.05075007164441684324e-9;
  v = v * r + 5.47593808499534494600e-4;
  v = v * r + 1.51986665636164571966e-2;
  v = v * r + 1.48103976427480074590e-1;
  v = v * r + 6.89767334985100004550e-1;
  v = v * r + 1.67638483018380384940;
  v = v * r + 2.05319162663775882187;
  v = v * r + 1.;
  double p = 2.01033439929228813265e-7;
  p = p * s + 2.71155556874348757815e-5;
  p = p * s + 1.24266094738807843860e-3;
  p = p * s + 2.65321895265761230930e-2;
  p = p * s + 2.96560571828504891230e-1;
  p = p * s + 1.78482653991729133580;
  p = p * s + 5.46378491116411436990;
  p = p * s + 6.65790464350110377720;
  double t = 2.04426310338993978564e-15;
  t = t * s + 1.42151175831644588870e-7;
  t = t * s + 1.84631831751005468180e-5;
  t = t * s + 7.86869131145613259100e-4;
  t = t * s + 1.48753612908506148525e-2;
  t = t * s + 1.36929880922735805310e-1;
  t = t * s + 5.99832206555887937690e-1;
  t = t * s + 1.;
  const double tail = (far ? p : u) / (far ? t : v);
  const double y = (central ? q * n / m : tail) * 0.70710678118654752440;
  const double inf = double_from_bits(0x7ff0000000000000ull), nan = double_from_bits(0x7ff8000000000000ull);
  const double inside = a == 1. ? inf : y;
  return copy_sign(a <= 1. ? inside : nan, x);
}

/// log(e^a + e^b).
TD_FN double logaddexp_(double a, double b) {
  const double top = a != a || a > b ? a : b, away = a == b ? 0. : abs_(a - b);
  return top + log1p_(exp_(-away));
}

/// log Γ(2 + z) for |z| <= 1/2 by its series Σ (-1)^k (ζ(k) - 1) z^k / k.
TD_FN double lgamma_by_two(double z) {
  double p = -2.7595228851242334e-10;
  p = p * z + 5.731367241678862e-10;
  p = p * z + -1.1921401405860912e-09;
  p = p * z + 2.4836745438024785e-09;
  p = p * z + -5.183475041970047e-09;
  p = p * z + 1.0838659214896955e-08;
  p = p * z + -2.2711094608943164e-08;
  p = p * z + 4.7698101693639804e-08;
  p = p * z + -1.0043224823968099e-07;
  p = p * z + 2.1207184805554665e-07;
  p = p * z + -4.492469198764566e-07;
  p = p * z + 9.55141213040742e-07;
  p = p * z + -2.039215753801366e-06;
  p = p * z + 4.374866789907488e-06;
  p = p * z + -9.439488275268397e-06;
  p = p * z + 2.050721277567069e-05;
  p = p * z + -4.492623673813314e-05;
  p = p * z + 9.945751278180853e-05;
  p = p * z + -0.00022315475845357939;
  p = p * z + 0.0005096695247430425;
  p = p * z + -0.001192753911703261;
  p = p * z + 0.0028905103307415234;
  p = p * z + -0.007385551028673986;
  p = p * z + 0.020580808427784546;
  p = p * z + -0.0673523010531981;
  p = p * z + 0.3224670334241132;
  return (p * z + 0.42278433509846713) * z;
}
/// log Γ(x) for x >= 0. Below 8.5 steps of 1 lead to the neighbourhood of 2: a product, one logarithm; beyond, Stirling's series.
TD_FN double lgamma_positive(double x) {
  const double m = floor_(x + 0.5), z = x - m;  // m: the nearest whole number
  double product = m >= 3. ? x - 1. : 1.;
  product = m >= 4. ? product * (x - 2.) : product;
  product = m >= 5. ? product * (x - 3.) : product;
  product = m >= 6. ? product * (x - 4.) : product;
  product = m >= 7. ? product * (x - 5.) : product;
  product = m >= 8. ? product * (x - 6.) : product;
  product = m == 1. ? x : product;
  product = m == 0. ? x * (x + 1.) : product;
  const bool large = x >= 8.5;
  const double logarithm = log_(large ? x : product);
  const double near = lgamma_by_two(large ? 0. : z) + (m <= 1. ? -logarithm : logarithm);
  const double y = 1. / x, w = y * y;
  double t = 0.00641025641025641;
  t = t * w + -0.0019175269175269176;
  t = t * w + 0.0008417508417508417;
  t = t * w + -0.0005952380952380953;
  t = t * w + 0.0007936507936507937;
  t = t * w + -0.002777777777777778;
  t = t * w + 0.08333333333333333;
  const double far = (x - 0.5) * (logarithm - 1.) + (0.41893853320467274178 + t * y);
  return large ? far : near;
}
/// Below 0 by Γ(x) Γ(1 - x) = π / sin(πx). Infinite at 0, -1, -2 …
TD_FN double lgamma_(double x) {
  const double a = abs_(x), inf = double_from_bits(0x7ff0000000000000ull);
  const bool negative = x < 0.;
  const double other = lgamma_positive(negative ? 1. + a : x);
  const double f = a - floor_(a), t = f > 0.5 ? 1. - f : f;  // exact
  const double reflected = log_(3.14159265358979323846 / near_sin(3.14159265358979323846 * t)) - other;
  const bool pole = t == 0. || a == inf;
  const double below = pole ? inf : reflected;
  return negative ? below : other;
}

/// The derivative of log Γ for x >= 0: ten steps up, then the asymptotic series.
TD_FN double digamma_positive(double x) {
  const bool small = x < 10.;
  double steps = 1. / (x + 9.) + 1. / (x + 8.);
  steps = steps + (1. / (x + 7.) + 1. / (x + 6.));
  steps = steps + (1. / (x + 5.) + 1. / (x + 4.));
  steps = steps + (1. / (x + 3.) + 1. / (x + 2.));
  steps = steps + 1. / (x + 1.);
  steps = steps + 1. / x;
  const double w = small ? x + 10. : x, v = 1. / (w * w);
  double t = -0.4432598039215686;
  t = t * v + 0.08333333333333333;
  t = t * v + -0.021092796092796094;
  t = t * v + 0.007575757575757576;
  t = t * v + -0.004166666666666667;
  t = t * v + 0.003968253968253968;
  t = t * v + -0.008333333333333333;
  t = t * v + 0.08333333333333333;
  const double y = log_(w) - (0.5 / w + t * v);
  return small ? y - steps : y;
}
/// Below 0 by ψ(x) = ψ(1 - x) - π cot(πx). NaN at -1, -2 … and infinite at 0, with the sign of -x.
TD_FN double digamma_(double x) {
  const double a = abs_(x);
  const bool negative = x < 0.;
  const double other = digamma_positive(negative ? 1. + a : x);
  const double f = a - floor_(a), t = f > 0.5 ? f - 1. : f;  // exact
  const double reflected = other + 3.14159265358979323846 / near_tan(3.14159265358979323846 * t);
  const double below = t == 0. ? double_from_bits(0x7ff8000000000000ull) : reflected;
  return negative ? below : other;
}

TD_FN float erf_(float x) {
  const float a = abs_(x), z = x * x, z2 = z * z;
  const float p =
      fma_(fma_(fma_(z, -6.535237795e-4f, 5.085130787e-3f), z2, fma_(z, -2.682080697e-2f, 1.128311282e-1f)),
           z2, fma_(z, -3.761260139e-1f, 1.283791637e-1f));
  // beyond 0.8: 1 - 2^(-t·q(t))
  const float t = a > 4.f ? 4.f : a, t2 = t * t;
  const float high = fma_(fma_(t2, 5.09002086208e-6f, fma_(t, -3.58544820546e-4f, 4.83644018391e-3f)), t2,
                          fma_(t, -3.34337780375e-2f, 1.52327928338e-1f));
  const float q = fma_(high, t2, fma_(t, 9.16870389072e-1f, 1.62816918869f));
  return copy_sign(a < 0.8f ? fma_(p, a, a) : 1.f - exp2_near(-(q * t)), x);
}

/// The distribution function of the normal distribution at -a, a >= 0, as 2^(a·q(a) - 1) for a <= 8; it has vanished there.
TD_FN float normal_tail(float a) {
  const float z = a * a;
  const float high = fma_(z, 8.85819008761e-6f, fma_(a, -5.76953339963e-5f, -4.06985050161e-4f));
  const float middle = fma_(high, z, fma_(a, 7.36313110566e-3f, -5.2666609768e-2f));
  const float q = fma_(middle, z, fma_(a, -4.59164323288e-1f, -1.1511088388f));
  return exp2_near(q * a, -1);
}
TD_FN float magnitude_to(float x, float most) {  // |x|, or `most` where that is less; not for NaN
  const unsigned bits = float_bits(x) & 0x7fffffffu, top = float_bits(most);
  return float_from_bits(bits < top ? bits : top);
}
/// Φ(-|x|); 0 from |x| = 8 on, where it is below 1e-15.
TD_FN float normal_tail_of(float magnitude) { return magnitude < 8.f ? normal_tail(magnitude) : 0.f; }
TD_FN float normal_cdf(float x) {
  const float tail = normal_tail_of(magnitude_to(x, 8.f));
  const float y = x < 0.f ? tail : 1.f - tail;
  return x != x ? x : y;
}
/// x · Φ(x) = max(x, 0) - |x| · Φ(-|x|), where a NaN stays.
TD_FN float gelu_(float x) {
  const float a = magnitude_to(x, 8.f);
  return fma_(-a, normal_tail_of(a), x < 0.f ? 0.f : x);
}
TD_FN double normal_cdf(double x) { return 0.5 * erfc_(x * -0.70710678118654752440); }
/// x, or ±1000 beyond: where a gate of x has become 0 or 1 for good, so that its product with x (or x²) is the limit and
/// not infinity times 0.
template <class T>
TD_FN T from_below(T x) {
  return x < T(-1000) ? T(-1000) : x;
}
template <class T>
TD_FN T from_both_sides(T x) {
  return x > T(1000) ? T(1000) : from_below(x);
}
TD_FN double gelu_(double x) { return from_below(x) * normal_cdf(x); }
/// Its density.
template <class T>
TD_FN T normal_density(T x) {
  return exp_(x * x * T(-0.5)) * T(0.39894228040143267794);
}
template <class T>
TD_FN T gelu_slope(T any) {
  const T x = from_both_sides(any);
  return normal_cdf(x) + x * normal_density(x);
}

TD_FN float sigmoid_(float x) {
  const float y = 1.f / (1.f + exp_for_sum(-x));
  return x != x ? x : y;
}
TD_FN double sigmoid_(double x) { return 1. / (1. + exp_(-x)); }
TD_FN float silu_(float x) { return from_below(x) / (1.f + exp_for_sum(-x)); }
TD_FN double silu_(double x) { return from_below(x) / (1. + exp_(-x)); }
template <class T>
TD_FN T softplus_(T x) {
  return (x > T(0) ? x : T(0)) + log1p_(exp_(-abs_(x)));
}
/// gelu's approximation x · sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x³), and its derivative.
template <class T>
TD_FN T gelu_tanh_gate(T x) {
  return sigmoid_(x * (T(1.5957691216057308) + T(0.07135481627260025) * (x * x)));
}
template <class T>
TD_FN T gelu_tanh_(T x) {
  return from_below(x) * gelu_tanh_gate(x);
}
template <class T>
TD_FN T gelu_tanh_slope(T any) {
  const T x = from_both_sides(any), s = gelu_tanh_gate(x);
  return s + x * (s * (T(1) - s)) * (T(1.5957691216057308) + T(0.21406444881780076) * (x * x));
}
template <class T>
TD_FN T silu_slope(T any) {
  const T x = from_both_sides(any), s = sigmoid_(x);
  return s * (T(1) + x * (T(1) - s));
}

/// IEEE pow of |x|^y = magnitude: the sign and the special cases.
TD_FN double pow_signed(double x, double y, double magnitude) {
  const double a = abs_(x), inf = double_from_bits(0x7ff0000000000000ull);
  const bool is_whole = floor_(y) == y;
  const bool is_odd = is_whole && (floor_(y * 0.5) * 2. != y);
  // Small whole powers exactly as repeated products would give them (2 and 0.5 are what training uses).
  magnitude = y == 2. ? a * a : magnitude;
  magnitude = y == 1. ? a : magnitude;
  magnitude = y == 0.5 ? sqrt_(a) : magnitude;
  magnitude = y == -1. ? 1. / a : magnitude;
  magnitude = a == 0. ? (y > 0. ? 0. : inf) : magnitude;
  magnitude = a == inf ? (y > 0. ? inf : 0.) : magnitude;
  magnitude = a == 1. ? 1. : magnitude;
  double result = x < 0. || (x == 0. && double_bits(x) != 0) ? (is_odd ? -magnitude : magnitude) : magnitude;
  result =
      x < 0. && a != inf && !is_whole && abs_(y) != inf ? double_from_bits(0x7ff8000000000000ull) : result;
  result = x != x || y != y ? x + y : result;
  return y == 0. || x == 1. ? 1. : result;
}
TD_FN float pow_(float x, float y) {
  const double wide_x = static_cast<double>(x), wide_y = static_cast<double>(y);
  return static_cast<float>(pow_signed(wide_x, wide_y, exp_(wide_y * log_(abs_(wide_x)))));
}
/// In f64 log x and its product with y are carried in two parts: the rounding error of y·log x counts by its size.
TD_FN double pow_(double x, double y) {
  const auto l = log_parts(abs_(x));
  const double whole = l.k * 6.93147180369123816490e-01, first = whole + l.m;
  const double more = l.rest + l.k * 1.90821492927058770002e-10, high = first + more;
  const double low = (whole - first + l.m) + (first - high + more);
  const double product = y * high;
  const double y1 = upper_half(y), y2 = y - y1, h1 = upper_half(high), h2 = high - h1;
  const double rest = ((y1 * h1 - product) + y1 * h2 + y2 * h1) + y2 * h2 + y * low;
  const double lost = abs_(product) < 1000. ? rest : 0.;
  return pow_signed(x, y, exp_(product) * (1. + lost));
}
/// y^-s; small whole powers as products.
TD_HD double inverse_power(double y, double s) {
  if (!(s >= 0. && s <= 16.) || floor_(s) != s) return pow_(y, -s);
  double power = 1., base = 1. / y;
  for (int k = static_cast<int>(s); k > 0; k >>= 1, base = base * base) power = k & 1 ? power * base : power;
  return power;
}
/// Hurwitz' zeta function Σ (q + k)^-s, q > 0, times unit^s, which keeps it in range: twelve terms, and Euler and Maclaurin's
/// sum of the others. unit is a power of two.
TD_HD double hurwitz_zeta(double s, double q, double unit) {
  const double w = q + 12., r = inverse_power(w / unit, s - 1.) * unit, v = 1. / (w * w);
  double t = -3.3896802963225827e-13 * (s + 13.) * (s + 14.) * v + 1.3382536530684679e-11;
  t = t * (s + 11.) * (s + 12.) * v + -5.284190138687493e-10;
  t = t * (s + 9.) * (s + 10.) * v + 2.08767569878681e-08;
  t = t * (s + 7.) * (s + 8.) * v + -8.267195767195768e-07;
  t = t * (s + 5.) * (s + 6.) * v + 3.306878306878307e-05;
  t = t * (s + 3.) * (s + 4.) * v + -0.001388888888888889;
  t = t * (s + 1.) * (s + 2.) * v + 0.08333333333333333;
  double sum = r / (s - 1.) + r / w * (0.5 + t * s / w);
  for (int k = 11; k >= 0; --k) sum = sum + inverse_power((q + k) / unit, s);
  return q == double_from_bits(0x7ff0000000000000ull) ? 0. : sum;
}
/// The n-th derivative of digamma, n a whole number from 0 on: (-1)^(n+1) n! ζ(n + 1, x). Below 0 the terms with a negative
/// base are those of two other sums; infinite at 0, -1, -2 … Rare, so that it may branch.
TD_HD double polygamma_(double x, double n) {
  if (n == 0.) return digamma_(x);
  const bool odd = floor_(n * 0.5) * 2. != n;
  const double s = n + 1., unit = x > 1. ? double_from_bits(double_bits(x) & 0x7ff0000000000000ull) : 1.;
  const double a = abs_(x), f = a - floor_(a);
  double y = double_from_bits(0x7ff0000000000000ull);
  if (!(x < 0.)) {
    y = hurwitz_zeta(s, a, unit) / unit;
  } else if (f != 0.) {
    const double turned = hurwitz_zeta(s, f, 1.) - hurwitz_zeta(s, a + 1., 1.);
    y = hurwitz_zeta(s, 1. - f, 1.) + (odd ? turned : -turned);
  }
  for (double i = 1.; i <= n && i <= 171.; i = i + 1.) y = y * (i / unit);
  return odd ? y : -y;
}

/// How a sample x of the gamma distribution of concentration a and rate 1 moves with a while its quantile stays:
/// -(dP/da) / (dP/dx), P the distribution function. By P's series below a + 1 and the continued fraction of 1 - P above, both
/// differentiated term by term; for large a, not too far from the mean, by Cornish and Fisher's expansion of the quantile.
/// Rare, so that it may branch.
TD_HD double gamma_slope_(double a, double x) {
  const double inf = double_from_bits(0x7ff0000000000000ull);
  if (!(a > 0. && a < inf && x >= 0. && x < inf)) return double_from_bits(0x7ff8000000000000ull);
  if (x == 0.) return 0.;
  const double root = sqrt_(a), far = (x - a) / root;
  if (a > 1e4 && abs_(far) < 12.) {
    double z = far;
    for (int i = 0; i < 8; ++i) {
      const double q = z * z, c3 = ((9. * q + 256.) * q - 433.) * z / 38880. / root;
      const double c2 = (c3 - ((3. * q + 7.) * q - 16.) / 810.) / root;
      z = far - ((q - 1.) / 3. + ((q - 7.) * z / 36. + c2) / root) / root;
    }
    const double q = z * z, c3 = ((9. * q + 256.) * q - 433.) * z / 25920. / root;
    const double c2 = (((3. * q + 7.) * q - 16.) / 810. - c3) / root;
    return 1. + (z * 0.5 + (c2 - (q - 7.) * z / 72.) / a) / root;
  }
  const double slope = log_(x) - digamma_(a);
  if (x < a + 1.) {
    double term = 1. / a, rest = term, sum = term, weighted = term * rest;  // rest: 1/a + … + 1/(a + n)
    for (int n = 1; n < 100000 && term * rest >= 1e-17 * weighted; ++n) {
      term = term * (x / (a + n));
      rest = rest + 1. / (a + n);
      sum = sum + term;
      weighted = weighted + term * rest;
    }
    return x * (weighted - slope * sum);
  }
  // Lentz' method; beside each number its derivative by a.
  const double tiny = 1e-290;
  double b = x + 1. - a, c = 1. / tiny, dc = 0., d = 1. / b, dd = d * d, h = d, dh = dd;
  for (int n = 1; n < 100000; ++n) {
    const double k = n * (a - n);
    b = b + 2.;
    const double u = k * d + b, du = n * d + k * dd - 1.;
    d = 1. / (u == 0. ? tiny : u);
    dd = -du * d * d;
    const double v = b + k / c, dv = n / c - k * dc / (c * c) - 1.;
    c = v == 0. ? tiny : v;
    dc = dv;
    const double f = c * d, df = dc * d + c * dd;
    dh = dh * f + h * df;
    h = h * f;
    if (abs_(f - 1.) < 1e-16 && abs_(df * h) <= 1e-16 * abs_(dh)) break;
  }
  return x * (slope * h + dh);
}

/// x within [low, high]; a NaN anywhere wins. One choice a line: of two conditions joined compilers make a branch.
template <class T>
TD_FN T clamp_(T x, T low, T high) {
  T y = x > low ? x : low;
  y = x != x ? x : y;
  T z = y < high ? y : high;
  z = y != y ? y : z;
  return z;
}
/// Whole powers; a negative power of an integer is 0 but for ±1.
template <class T>
TD_FN T pow_(T x, T y) {
  if (y < T(0)) return x == T(1) ? T(1) : (x == T(-1) ? ((y & T(1)) ? T(-1) : T(1)) : T(0));
  T result = T(1);
  for (T base = x, left = y; left > T(0);
       left = static_cast<T>(left >> 1), base = static_cast<T>(base * base))
    if (left & T(1)) result = static_cast<T>(result * base);
  return result;
}
TD_FN bool pow_(bool x, bool y) { return x || !y; }

/// The remainder of a / b with the sign of a, exact: division of the mantissas as whole numbers, 11 bits at a time.
TD_FN double fmod_(double a, double b) {
  const double x = abs_(a), y = abs_(b), inf = double_from_bits(0x7ff0000000000000ull);
  if (!(x < inf) || !(y > 0.)) return double_from_bits(0x7ff8000000000000ull);
  if (x < y) return a;
  const unsigned long long fraction = 0x000fffffffffffffull, one = 0x0010000000000000ull;
  const unsigned long long u = double_bits(x), v = double_bits(y);
  int left = static_cast<int>(u >> 52), exponent = static_cast<int>(v >> 52);
  unsigned long long rest = left ? (u & fraction) | one : u;
  const unsigned long long divisor = exponent ? (v & fraction) | one : v;
  left = left ? left : 1;
  exponent = exponent ? exponent : 1;
  left -= exponent;
  rest %= divisor;
  while (left > 0) {
    const int bits = left < 11 ? left : 11;
    rest = (rest << bits) % divisor;
    left -= bits;
  }
  return copy_sign(times_power_of_two(static_cast<double>(rest), exponent - 1075ll), a);
}
TD_FN float fmod_(float a, float b) {
  return static_cast<float>(fmod_(static_cast<double>(a), static_cast<double>(b)));
}
/// Whole numbers. By 0: the quotient is 0 and the remainder a, on every device. By -1: no trap for the lowest a.
template <class T>
TD_FN T fmod_(T a, T b) {
  if (b == T(0)) return a;
  if (T(-1) < T(0) && b == T(-1)) return T(0);
  return static_cast<T>(a % b);
}
/// The remainder with the sign of b.
template <class T>
TD_FN T remainder_(T a, T b) {
  const T m = fmod_(a, b);
  return m != T(0) && b != T(0) && (m < T(0)) != (b < T(0)) ? static_cast<T>(m + b) : m;
}
template <class T>
TD_FN T floor_divide_(T a, T b) {
  if (b == T(0)) return T(0);
  if (T(-1) < T(0) && b == T(-1)) return static_cast<T>(0ull - static_cast<unsigned long long>(a));
  const T m = static_cast<T>(a % b), q = static_cast<T>(a / b);
  return m != T(0) && (m < T(0)) != (b < T(0)) ? static_cast<T>(q - T(1)) : q;
}
/// floor(a / b) of the exact quotient: a whole number even where a / b rounds up to the next.
template <class T>
TD_FN T real_floor_divide(T a, T b) {
  const T m = fmod_(a, b);
  T q = (a - m) / b;
  q = m != T(0) && (m < T(0)) != (b < T(0)) ? q - T(1) : q;
  const T whole = floor_(q);
  const T nearest = q - whole > T(0.5) ? whole + T(1) : whole;
  const T y = q == T(0) ? copy_sign(T(0), a / b) : nearest;
  return b == T(0) ? a / b : y;
}
TD_FN float floor_divide_(float a, float b) { return real_floor_divide(a, b); }
TD_FN double floor_divide_(double a, double b) { return real_floor_divide(a, b); }

/// Shifts by less than 0 or by the width and more shift everything out (to the right: the sign stays).
template <class T>
TD_FN T shift_left(T a, T b) {
  const bool within = b >= T(0) && b < static_cast<T>(8 * sizeof(T));
  return within ? static_cast<T>(static_cast<unsigned long long>(a) << (b & T(63))) : T(0);
}
template <class T>
TD_FN T shift_right(T a, T b) {
  const bool within = b >= T(0) && b < static_cast<T>(8 * sizeof(T));
  return within ? static_cast<T>(a >> (b & T(63))) : (a < T(0) ? static_cast<T>(-1) : T(0));
}

/// Two normal numbers from two random words (Box-Muller).
struct NormalPair {
  float first, second;
};
TD_FN NormalPair normal_pair(unsigned bits0, unsigned bits1) {
  const float u = (static_cast<float>(bits0 >> 8) + 1.f) * 5.9604644775390625e-8f;  // (0, 1]
  const float v = static_cast<float>(bits1 >> 8) * 5.9604644775390625e-8f;
  const float r = sqrt_(-2.f * log_(u));
  const float angle = 6.2831853071795865f * v;
  const auto both = sin_cos_of(near_turns(static_cast<double>(angle)));
  return {r * static_cast<float>(both.cos), r * static_cast<float>(both.sin)};
}

struct NormalPairDouble {
  double first, second;
};
TD_FN NormalPairDouble normal_pair(unsigned long long bits0, unsigned long long bits1) {
  const double u = (static_cast<double>(bits0 >> 11) + 1.) * 0x1p-53;  // (0, 1]
  const double v = static_cast<double>(bits1 >> 11) * 0x1p-53;
  const double r = sqrt_(-2. * log_(u));
  const auto both = sin_cos_of(near_turns(6.2831853071795865 * v));
  return {r * both.cos, r * both.sin};
}

}  // namespace tandem
