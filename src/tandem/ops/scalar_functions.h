// One element of every pointwise op: the single definition that the CPU loops, the CUDA loops and the run-time compiled fused
// kernels share, and the table of these ops. NVRTC compiles this text: no includes but the one below.
//
// A functor takes values of the compute type (float for bf16, f16 and f32; the type itself otherwise) and
// returns the result, which the caller rounds to the storage type. Comparisons return bool.
#pragma once

#include "tandem/ops/elementary_functions.h"

namespace tandem {

// ---- functors

#define TD_UNARY(Name, expression) \
  struct Name { \
    template <class T> \
    TD_FN auto operator()(T x) const { \
      return expression; \
    } \
  };
#define TD_BINARY(Name, expression) \
  struct Name { \
    template <class T> \
    TD_FN auto operator()(T a, T b) const { \
      return expression; \
    } \
  };

#define TD_TERNARY(Name, expression) \
  struct Name { \
    template <class T> \
    TD_FN T operator()(T a, T b, T c) const { \
      return static_cast<T>(expression); \
    } \
  };

/// A function that is computed in double whatever the type: rare ones, where accuracy is cheaper to have than speed.
template <class F>
struct Wide {
  template <class T>
  TD_FN T operator()(T x) const {
    return static_cast<T>(F{}(static_cast<double>(x)));
  }
  template <class T>
  TD_FN T operator()(T a, T b) const {
    return static_cast<T>(F{}(static_cast<double>(a), static_cast<double>(b)));
  }
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
TD_BINARY(LogicalXor, (a != T(0)) != (b != T(0)))
TD_UNARY(LogicalNot, x == T(0))
TD_BINARY(Remainder, remainder_(a, b))
TD_BINARY(Fmod, fmod_(a, b))
TD_BINARY(FloorDivide, floor_divide_(a, b))
TD_BINARY(BitwiseAnd, static_cast<T>(a& b))
TD_BINARY(BitwiseOr, static_cast<T>(a | b))
TD_BINARY(BitwiseXor, static_cast<T>(a ^ b))
TD_UNARY(BitwiseNot, static_cast<T>(~x))
TD_BINARY(ShiftLeft, shift_left(a, b))
TD_BINARY(ShiftRight, shift_right(a, b))
TD_UNARY(Neg, static_cast<T>(-x))
TD_UNARY(Abs, static_cast<T>(abs_(x)))
TD_UNARY(Sign, static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0))))
TD_UNARY(Floor, floor_(x))
TD_UNARY(Ceil, -floor_(-x))
TD_UNARY(Round, round_(x))
TD_UNARY(Trunc, trunc_(x))
TD_UNARY(Exp, exp_(x))
TD_UNARY(Exp2, exp2_(x))
TD_UNARY(Expm1, expm1_(x))
TD_UNARY(Log, log_(x))
TD_UNARY(Log2, log2_(x))
TD_UNARY(Log10, log10_(x))
TD_UNARY(Log1p, log1p_(x))
TD_UNARY(Sqrt, sqrt_(x))
TD_UNARY(Rsqrt, T(1) / sqrt_(x))
TD_UNARY(Sin, sin_(x))
TD_UNARY(Cos, cos_(x))
TD_UNARY(Tan, tan_(x))
TD_UNARY(NearSin, near_sin(x))
TD_UNARY(NearCos, near_cos(x))
TD_UNARY(NearTan, near_tan(x))
TD_UNARY(Asin, asin_(x))
TD_UNARY(Acos, acos_(x))
TD_UNARY(Atan, atan_(x))
TD_BINARY(Atan2, atan2_(a, b))
TD_UNARY(Sinh, sinh_(x))
TD_UNARY(Cosh, cosh_(x))
TD_UNARY(Asinh, asinh_(x))
TD_UNARY(Acosh, acosh_(x))
TD_UNARY(Atanh, atanh_(x))
TD_UNARY(Erfc, erfc_(x))
TD_BINARY(Hypot, hypot_(a, b))
TD_UNARY(Erfinv, erfinv_(x))
TD_UNARY(Lgamma, lgamma_(x))
TD_UNARY(Digamma, digamma_(x))
/// b is the order.
TD_BINARY(Polygamma, polygamma_(a, b))
TD_BINARY(LogAddExp, logaddexp_(a, b))
/// a is the concentration, b the sample.
TD_BINARY(GammaSlope, gamma_slope_(a, b))
TD_UNARY(Tanh, tanh_(x))
TD_UNARY(Erf, erf_(x))
TD_UNARY(Sigmoid, sigmoid_(x))
TD_UNARY(Relu, x > T(0) || x != x ? x : T(0))
TD_UNARY(Gelu, gelu_(x))
TD_UNARY(GeluTanh, gelu_tanh_(x))
TD_UNARY(Silu, silu_(x))
TD_UNARY(Softplus, softplus_(x))
/// b is the slope of negative a.
TD_BINARY(LeakyRelu, a > T(0) ? a : a * b)
/// b is alpha.
TD_BINARY(Elu, a > T(0) ? a : b * expm1_(a))
// Gradients in one pass: a is the gradient that arrives, b the input, c the parameter.
TD_BINARY(GeluGradient, a* gelu_slope(b))
TD_BINARY(GeluTanhGradient, a* gelu_tanh_slope(b))
TD_BINARY(SiluGradient, a* silu_slope(b))
TD_TERNARY(LeakyReluGradient, b > T(0) ? a : a * c)
TD_TERNARY(EluGradient, b > T(0) ? a : a * c * exp_(b))
/// a within [b, c].
TD_TERNARY(Clamp, clamp_(a, b, c))
/// From a to b by the weight c, exact at both ends.
TD_TERNARY(Lerp, c < T(0.5) ? a + c * (b - a) : b - (b - a) * (T(1) - c))
/// g, but 0 where the relu's output is 0 (a NaN lets it pass).
TD_BINARY(ReluGradient, b <= T(0) ? T(0) : a)

/// condition ? a : b; the caller loads the condition as bool.
struct Where {
  template <class T>
  TD_FN T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

#undef TD_UNARY
#undef TD_BINARY
#undef TD_TERNARY

/// Functors whose integer result does not depend on the sign: one loop serves both types of a width.
template <class F>
inline constexpr bool kSignless = false;
#define TD_SIGNLESS(F) \
  template <> \
  inline constexpr bool kSignless<F> = true;
TD_SIGNLESS(Add)
TD_SIGNLESS(Sub)
TD_SIGNLESS(Mul)
TD_SIGNLESS(Neg)
TD_SIGNLESS(Equal)
TD_SIGNLESS(NotEqual)
TD_SIGNLESS(LogicalAnd)
TD_SIGNLESS(LogicalOr)
TD_SIGNLESS(LogicalXor)
TD_SIGNLESS(LogicalNot)
TD_SIGNLESS(BitwiseAnd)
TD_SIGNLESS(BitwiseOr)
TD_SIGNLESS(BitwiseXor)
TD_SIGNLESS(BitwiseNot)
#undef TD_SIGNLESS
/// Functors that are computed in double whatever the type.
template <class F>
inline constexpr bool kWide = false;
template <class F>
inline constexpr bool kWide<Wide<F>> = true;

/// Functors that branch for arguments from kFarAngle on, and the branch-free one that serves all the others: a loop on
/// the CPU looks at its arguments first.
template <class F>
struct NearOnly {
  using type = F;
  static constexpr bool kDiffers = false;
};
#define TD_NEAR_ONLY(F, Near) \
  template <> \
  struct NearOnly<Wide<F>> { \
    using type = Wide<Near>; \
    static constexpr bool kDiffers = true; \
  };
TD_NEAR_ONLY(Sin, NearSin)
TD_NEAR_ONLY(Cos, NearCos)
TD_NEAR_ONLY(Tan, NearTan)
#undef TD_NEAR_ONLY

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
  TD_FN static To apply(From x) { return static_cast<To>(static_cast<typename ComputeType<To>::type>(x)); }
};
template <class From>
struct CastTo<bool, From> {
  TD_FN static bool apply(From x) { return static_cast<typename ComputeType<From>::type>(x) != 0; }
};
template <class To, class From, bool is_signed>
TD_FN To saturate(From x) {
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
    TD_FN static To apply(double x) { return saturate<To, double, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, float> { \
    TD_FN static To apply(float x) { return saturate<To, float, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, BFloat16> { \
    TD_FN static To apply(BFloat16 x) { return saturate<To, float, is_signed>(x); } \
  }; \
  template <> \
  struct CastTo<To, Float16> { \
    TD_FN static To apply(Float16 x) { return saturate<To, float, is_signed>(x); } \
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
// X(name, functor, number of inputs, element types of the inputs, their names, what it computes): the rows from which the CPU and CUDA backends
// make their loops. `every` is all types, `number` all but bool, `floating` f64, f32, bf16, f16, `integer` the whole
// numbers and `bits` those and bool. The result has the type of the inputs unless the functor returns bool. All inputs
// have one type, but for where, which takes a bool first.
//
// Loops may compute a narrow integer in 64 bits and cut the result off: every functor gives the same either way.
#define TD_POINTWISE_OPS(X) \
  X(add, Add, 2, number, ("a", "b"), "a + b") \
  X(sub, Sub, 2, number, ("a", "b"), "a - b") \
  X(mul, Mul, 2, number, ("a", "b"), "a b") \
  X(div, Div, 2, floating, ("a", "b"), "a / b") \
  X(pow, Pow, 2, number, ("a", "b"), "a to the power of b") \
  X(remainder, Remainder, 2, number, ("a", "b"), "what is left of a / b, with the sign of b") \
  X(fmod, Fmod, 2, number, ("a", "b"), "what is left of a / b, with the sign of a") \
  X(floor_divide, FloorDivide, 2, number, ("a", "b"), "a / b, rounded down") \
  X(maximum, Maximum, 2, every, ("a", "b"), "the larger of a and b") \
  X(minimum, Minimum, 2, every, ("a", "b"), "the smaller of a and b") \
  X(equal, Equal, 2, every, ("a", "b"), "whether a = b") \
  X(not_equal, NotEqual, 2, every, ("a", "b"), "whether a and b differ") \
  X(less, Less, 2, every, ("a", "b"), "whether a < b") \
  X(less_equal, LessEqual, 2, every, ("a", "b"), "whether a <= b") \
  X(greater, Greater, 2, every, ("a", "b"), "whether a > b") \
  X(greater_equal, GreaterEqual, 2, every, ("a", "b"), "whether a >= b") \
  X(logical_and, LogicalAnd, 2, every, ("a", "b"), "whether both are not 0") \
  X(logical_or, LogicalOr, 2, every, ("a", "b"), "whether one of them is not 0") \
  X(logical_xor, LogicalXor, 2, every, ("a", "b"), "whether exactly one of them is not 0") \
  X(logical_not, LogicalNot, 1, every, ("x"), "whether x is 0") \
  X(bitwise_and, BitwiseAnd, 2, bits, ("a", "b"), "the bits that both have") \
  X(bitwise_or, BitwiseOr, 2, bits, ("a", "b"), "the bits that one of them has") \
  X(bitwise_xor, BitwiseXor, 2, bits, ("a", "b"), "the bits in which they differ") \
  X(bitwise_not, BitwiseNot, 1, integer, ("x"), "all bits turned") \
  X(bitwise_left_shift, ShiftLeft, 2, integer, ("a", "b"), "the bits of a moved up by b places") \
  X(bitwise_right_shift, ShiftRight, 2, integer, ("a", "b"), "the bits of a moved down by b places") \
  X(neg, Neg, 1, number, ("x"), "-x") \
  X(abs, Abs, 1, number, ("x"), "x without its sign") \
  X(sign, Sign, 1, number, ("x"), "-1, 0 or 1") \
  X(floor, Floor, 1, floating, ("x"), "rounded down") \
  X(ceil, Ceil, 1, floating, ("x"), "rounded up") \
  X(round, Round, 1, floating, ("x"), "rounded to the nearest, halves to even") \
  X(trunc, Trunc, 1, floating, ("x"), "rounded towards 0") \
  X(exp, Exp, 1, floating, ("x"), "e to the power of x") \
  X(exp2, Exp2, 1, floating, ("x"), "2 to the power of x") \
  X(expm1, Expm1, 1, floating, ("x"), "exp(x) - 1") \
  X(log, Log, 1, floating, ("x"), "the natural logarithm") \
  X(log2, Log2, 1, floating, ("x"), "the logarithm to base 2") \
  X(log10, Log10, 1, floating, ("x"), "the logarithm to base 10") \
  X(log1p, Log1p, 1, floating, ("x"), "log(1 + x)") \
  X(sqrt, Sqrt, 1, floating, ("x"), "the square root") \
  X(rsqrt, Rsqrt, 1, floating, ("x"), "1 / sqrt(x)") \
  X(sin, Wide<Sin>, 1, floating, ("x"), "the sine") \
  X(cos, Wide<Cos>, 1, floating, ("x"), "the cosine") \
  X(tan, Wide<Tan>, 1, floating, ("x"), "the tangent") \
  X(asin, Wide<Asin>, 1, floating, ("x"), "the inverse of sin") \
  X(acos, Wide<Acos>, 1, floating, ("x"), "the inverse of cos") \
  X(atan, Wide<Atan>, 1, floating, ("x"), "the inverse of tan") \
  X(atan2, Wide<Atan2>, 2, floating, ("y", "x"), "the angle of the point (x, y)") \
  X(sinh, Wide<Sinh>, 1, floating, ("x"), "the hyperbolic sine") \
  X(cosh, Wide<Cosh>, 1, floating, ("x"), "the hyperbolic cosine") \
  X(tanh, Tanh, 1, floating, ("x"), "the hyperbolic tangent") \
  X(asinh, Wide<Asinh>, 1, floating, ("x"), "the inverse of sinh") \
  X(acosh, Wide<Acosh>, 1, floating, ("x"), "the inverse of cosh") \
  X(atanh, Wide<Atanh>, 1, floating, ("x"), "the inverse of tanh") \
  X(hypot, Wide<Hypot>, 2, floating, ("a", "b"), "sqrt(a^2 + b^2)") \
  X(erf, Erf, 1, floating, ("x"), "the error function") \
  X(erfc, Wide<Erfc>, 1, floating, ("x"), "1 - erf(x)") \
  X(erfinv, Wide<Erfinv>, 1, floating, ("x"), "the inverse of erf") \
  X(lgamma, Wide<Lgamma>, 1, floating, ("x"), "the logarithm of the size of the gamma function") \
  X(digamma, Wide<Digamma>, 1, floating, ("x"), "the derivative of lgamma") \
  X(polygamma, Wide<Polygamma>, 2, floating, ("x", "n"), "the n-th derivative of digamma") \
  X(logaddexp, Wide<LogAddExp>, 2, floating, ("a", "b"), "log(exp(a) + exp(b))") \
  X(gamma_slope, Wide<GammaSlope>, 2, floating, ("a", "x"), \
    "the derivative of a gamma-distributed sample x by a") \
  X(sigmoid, Sigmoid, 1, floating, ("x"), "1 / (1 + exp(-x))") \
  X(relu, Relu, 1, number, ("x"), "x, or 0 below 0") \
  X(gelu, Gelu, 1, floating, ("x"), "x times the normal distribution up to x") \
  X(gelu_tanh, GeluTanh, 1, floating, ("x"), "gelu by tanh, nearly") \
  X(silu, Silu, 1, floating, ("x"), "x sigmoid(x)") \
  X(softplus, Softplus, 1, floating, ("x"), "log(1 + exp(x))") \
  X(leaky_relu, LeakyRelu, 2, floating, ("x", "slope"), "x, or slope x below 0") \
  X(elu, Elu, 2, floating, ("x", "alpha"), "x, or alpha (exp(x) - 1) below 0") \
  X(relu_gradient, ReluGradient, 2, number, ("g", "y"), "the gradient of relu") \
  X(gelu_gradient, GeluGradient, 2, floating, ("g", "x"), "the gradient of gelu") \
  X(gelu_tanh_gradient, GeluTanhGradient, 2, floating, ("g", "x"), "the gradient of gelu_tanh") \
  X(silu_gradient, SiluGradient, 2, floating, ("g", "x"), "the gradient of silu") \
  X(leaky_relu_gradient, LeakyReluGradient, 3, floating, ("g", "x", "slope"), "the gradient of leaky_relu") \
  X(elu_gradient, EluGradient, 3, floating, ("g", "x", "alpha"), "the gradient of elu") \
  X(clamp, Clamp, 3, number, ("x", "low", "high"), "x, no less than low and no more than high") \
  X(hardtanh, Clamp, 3, number, ("x", "low", "high"), "clamp, with gradient 0 at its ends") \
  X(lerp, Lerp, 3, floating, ("a", "b", "weight"), "a + weight (b - a)") \
  X(where, Where, 3, every, ("condition", "a", "b"), "a where the condition holds, else b")

}  // namespace tandem
