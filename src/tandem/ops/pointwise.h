// Pointwise operations: one element of each (broadcast) input gives one element of the output. Types combine
// by promote(); functions of real numbers turn integers into f32, as in PyTorch. A number written in C++
// never changes the type of a floating tensor.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// A tensor, or a plain number that takes the type of what it meets.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor) {}
  Operand(double value) : value_(value), kind_(DTypeClass::floating) {}
  Operand(float value) : Operand(static_cast<double>(value)) {}
  Operand(int value) : Operand(static_cast<int64_t>(value)) {}
  Operand(int64_t value) : value_(static_cast<double>(value)), integer_(value), kind_(DTypeClass::integer) {}
  Operand(bool value) : value_(value), integer_(value), kind_(DTypeClass::boolean) {}
  const Tensor* tensor() const { return tensor_; }
  DTypeClass number_kind() const { return kind_; }
  double number() const { return value_; }
  int64_t integer() const { return integer_; }

 private:
  const Tensor* tensor_ = nullptr;
  double value_ = 0;
  int64_t integer_ = 0;
  DTypeClass kind_ = DTypeClass::floating;
};

// Arithmetic. Division of integers gives f32.
Tensor add(const Operand& a, const Operand& b);
Tensor sub(const Operand& a, const Operand& b);
Tensor mul(const Operand& a, const Operand& b);
Tensor div(const Operand& a, const Operand& b);
Tensor pow(const Operand& a, const Operand& b);
Tensor maximum(const Operand& a, const Operand& b);  ///< NaN wins
Tensor minimum(const Operand& a, const Operand& b);  ///< NaN wins
// Comparison: results are bool.
Tensor equal(const Operand& a, const Operand& b);
Tensor not_equal(const Operand& a, const Operand& b);
Tensor less(const Operand& a, const Operand& b);
Tensor less_equal(const Operand& a, const Operand& b);
Tensor greater(const Operand& a, const Operand& b);
Tensor greater_equal(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x);
// Functions
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);  ///< exact: x · Φ(x)
/// condition (bool) ? a : b, all broadcast.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
/// Element type conversion. Floats go to integers by truncation; anything non-zero is true.
Tensor cast(const Tensor& x, DType dtype);

inline Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

/// The pointwise ops are the rows of TD_POINTWISE_OPS in scalar_functions.h (find_op("add") …); cast is
/// apart, since its input and output types differ.
struct CastAttrs {
  DType dtype = DType::f32;
  static auto fields() { return std::tuple{field("dtype", &CastAttrs::dtype)}; }
};
OpDef& op_cast();

}  // namespace tandem
