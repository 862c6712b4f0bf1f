// Pointwise operations: one element of each (broadcast) input gives one element of the output. Types combine
// by promote(); functions of real numbers turn integers into f32, as in PyTorch. A number written in C++
// never changes the type of a floating tensor.
#pragma once

#include <concepts>
#include <optional>
#include <type_traits>

#include "tandem/core/op.h"

namespace tandem {

/// A number as C++ writes it: of any arithmetic type, on either side of an operator.
template <class N>
concept PlainNumber = std::is_arithmetic_v<N>;

/// A tensor, or a plain number that takes the type of what it meets. A whole number that meets integers must fit their
/// type.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor) {}
  template <PlainNumber N>
  Operand(N value) : value_(static_cast<double>(value)) {
    if constexpr (!std::is_floating_point_v<N>) {
      integer_ = static_cast<int64_t>(value);
      kind_ = std::is_same_v<N, bool> ? DTypeClass::boolean : DTypeClass::integer;
    }
  }
  const Tensor* tensor() const { return tensor_; }
  DTypeClass number_kind() const { return kind_; }
  double number() const { return value_; }
  /// A whole number; from 2^63 on its bits, as number() then tells.
  int64_t integer() const { return integer_; }

 private:
  const Tensor* tensor_ = nullptr;
  double value_ = 0;
  int64_t integer_ = 0;
  DTypeClass kind_ = DTypeClass::floating;
};

// Arithmetic. Division of integers gives f32. The sum of two bools is their or, the product their and.
Tensor add(const Operand& a, const Operand& b);
Tensor sub(const Operand& a, const Operand& b);
Tensor mul(const Operand& a, const Operand& b);
Tensor div(const Operand& a, const Operand& b);
Tensor pow(const Operand& a, const Operand& b);
// Division with a remainder. Integers by 0 give the quotient 0 and the remainder a; nothing traps.
Tensor remainder(const Operand& a, const Operand& b);     ///< with the sign of b, as Python's %
Tensor fmod(const Operand& a, const Operand& b);          ///< with the sign of a, as C's
Tensor floor_divide(const Operand& a, const Operand& b);  ///< rounds down; integers stay integers
Tensor maximum(const Operand& a, const Operand& b);       ///< NaN wins
Tensor minimum(const Operand& a, const Operand& b);       ///< NaN wins
/// x within [low, high]; one of the two may be left out ({}). A NaN wins. high wins where low is above it. The gradient
/// passes at the bounds themselves.
Tensor clamp(const Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high);
Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight);  ///< a + weight · (b - a)
// Bits of integers; and, or, xor and not of bool are the logical ones. A shift by less than 0, or by the width or more,
// shifts everything out (to the right: the sign stays).
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_not(const Tensor& x);
Tensor bitwise_left_shift(const Operand& a, const Operand& b);
Tensor bitwise_right_shift(const Operand& a, const Operand& b);
// Comparison: results are bool.
Tensor equal(const Operand& a, const Operand& b);
Tensor not_equal(const Operand& a, const Operand& b);
Tensor less(const Operand& a, const Operand& b);
Tensor less_equal(const Operand& a, const Operand& b);
Tensor greater(const Operand& a, const Operand& b);
Tensor greater_equal(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_xor(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// |a - b| <= atol + rtol · |b|, or equal (infinities are, and NaN where equal_nan is set): bool.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
/// x with other numbers for NaN and the infinities; by default 0 and the ends of the type's range. These get no gradient.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> positive_infinity = {},
                  std::optional<double> negative_infinity = {});
// Functions
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< halves go to the even neighbour
Tensor trunc(const Tensor& x);
Tensor frac(const Tensor& x);  ///< x - trunc(x)
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);  ///< exp(x) - 1, exact near 0
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);  ///< log(1 + x), exact near 0
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor atan2(const Operand& y, const Operand& x);  ///< the angle of the point (x, y)
Tensor hypot(const Operand& a, const Operand& b);  ///< sqrt(a² + b²)
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);
Tensor erfinv(const Tensor& x);   ///< the inverse of erf: ±infinity at ±1, NaN beyond
Tensor lgamma(const Tensor& x);   ///< log |Γ(x)|
Tensor digamma(const Tensor& x);  ///< its derivative
/// The n-th derivative of digamma, 0 <= n <= 170.
Tensor polygamma(int64_t n, const Tensor& x);
Tensor logaddexp(const Operand& a, const Operand& b);  ///< log(exp(a) + exp(b)) without overflow
/// With x a sample of the gamma distribution of concentration a > 0 and rate 1: its derivative by a where its quantile stays
/// (distributions::Gamma::rsample). Has no gradient itself.
Tensor gamma_slope(const Operand& a, const Operand& x);
// Activations
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor relu6(const Tensor& x);
Tensor gelu(const Tensor& x);       ///< exact: x · Φ(x)
Tensor gelu_tanh(const Tensor& x);  ///< its approximation by tanh
Tensor silu(const Tensor& x);       ///< x · sigmoid(x)
Tensor mish(const Tensor& x);       ///< x · tanh(softplus(x))
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// leaky_relu with learnt slopes: one, or one for each index of axis 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, double alpha = 1.0);
/// log(1 + exp(beta · x)) / beta, and x itself where beta · x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
Tensor softsign(const Tensor& x);    ///< x / (1 + |x|)
Tensor logsigmoid(const Tensor& x);  ///< log(sigmoid(x)) without underflow
/// clamp(x, low, high), whose gradient is 0 at the two corners (relu6, hardsigmoid and hardswish likewise).
Tensor hardtanh(const Tensor& x, const Operand& low = -1.0, const Operand& high = 1.0);
Tensor hardsigmoid(const Tensor& x);  ///< clamp(x / 6 + 1/2, 0, 1)
Tensor hardswish(const Tensor& x);    ///< x · hardsigmoid(x)
/// x where above the limit, else value.
Tensor threshold(const Tensor& x, const Operand& limit, const Operand& value);
/// The first half of an axis times the sigmoid of the second.
Tensor glu(const Tensor& x, int64_t axis = -1);
/// condition (bool) ? a : b, all broadcast.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
/// Element type conversion. Floats go to integers by truncation; anything non-zero is true.
Tensor cast(const Tensor& x, DType dtype);

inline Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
template <PlainNumber N>
Tensor operator+(N a, const Tensor& b) {
  return add(a, b);
}
template <PlainNumber N>
Tensor operator-(N a, const Tensor& b) {
  return sub(a, b);
}
template <PlainNumber N>
Tensor operator*(N a, const Tensor& b) {
  return mul(a, b);
}
template <PlainNumber N>
Tensor operator/(N a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator-(const Tensor& x) { return neg(x); }

// Comparisons, element by element: bool. (== and != would be taken for a question about the handles: equal(), not_equal().)
inline Tensor operator<(const Tensor& a, const Operand& b) { return less(a, b); }
inline Tensor operator<=(const Tensor& a, const Operand& b) { return less_equal(a, b); }
inline Tensor operator>(const Tensor& a, const Operand& b) { return greater(a, b); }
inline Tensor operator>=(const Tensor& a, const Operand& b) { return greater_equal(a, b); }
template <PlainNumber N>
Tensor operator<(N a, const Tensor& b) {
  return less(a, b);
}
template <PlainNumber N>
Tensor operator<=(N a, const Tensor& b) {
  return less_equal(a, b);
}
template <PlainNumber N>
Tensor operator>(N a, const Tensor& b) {
  return greater(a, b);
}
template <PlainNumber N>
Tensor operator>=(N a, const Tensor& b) {
  return greater_equal(a, b);
}

/// Changes a in place, as assign(a, a + b) does: whoever shares its memory sees it, and so it is refused where a gradient is
/// wanted (write a = a + b there). The result must keep a's shape and kind of type.
const Tensor& operator+=(const Tensor& a, const Operand& b);
const Tensor& operator-=(const Tensor& a, const Operand& b);
const Tensor& operator*=(const Tensor& a, const Operand& b);
const Tensor& operator/=(const Tensor& a, const Operand& b);

// Of integers and bool; ! of any type.
inline Tensor operator&(const Tensor& a, const Operand& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Operand& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Operand& b) { return bitwise_xor(a, b); }
template <PlainNumber N>
Tensor operator&(N a, const Tensor& b) {
  return bitwise_and(a, b);
}
template <PlainNumber N>
Tensor operator|(N a, const Tensor& b) {
  return bitwise_or(a, b);
}
template <PlainNumber N>
Tensor operator^(N a, const Tensor& b) {
  return bitwise_xor(a, b);
}
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
inline Tensor operator!(const Tensor& x) { return logical_not(x); }

/// The pointwise ops are the rows of TD_POINTWISE_OPS in scalar_functions.h (find_op("add") …); cast is
/// apart, since its input and output types differ.
OpDef& op_cast();  // CastAttrs

}  // namespace tandem
