#include "tandem/ops/create.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tandem/ops/define.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem {

OpDef& op_full() {
  static OpDef& op = define(without_inputs({.name = "full",
                                            .about = "one value everywhere",
                                            .outputs = {"y"},
                                            .infer = infer_made<FullAttrs>,
                                            .flops = no_flops}));
  return op;
}
OpDef& op_arange() {
  static OpDef& op = define(without_inputs({.name = "arange",
                                            .about = "numbers in even steps",
                                            .outputs = {"y"},
                                            .infer = infer_made<FullAttrs>,
                                            .flops = no_flops}));
  return op;
}

Tensor full_number(double value, int64_t integer, DType dtype, Device device) {
  return apply1(op_full(), {},
                FullAttrs{Dims{}, value, integer, dtype, static_cast<uint8_t>(device.kind), device.index});
}

namespace {

using Whole = __int128;
/// A whole number as it was written.
Whole whole(const Operand& number) {
  return number.number() >= 0x1p63 ? Whole{static_cast<uint64_t>(number.integer())} : Whole{number.integer()};
}

bool fits(Whole number, DType dtype) {
  return visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      return number >= Whole{std::numeric_limits<T>::min()} && number <= Whole{std::numeric_limits<T>::max()};
    return true;
  });
}

/// Of arange: its first and last number.
void check_range(Whole first, Whole last, int64_t count, DType dtype) {
  TD_CHECK(count == 0 || (fits(first, dtype) && fits(last, dtype)),
           "arange: every number must fit the element type; got ", static_cast<double>(first), " to ",
           static_cast<double>(last), " for ", dtype, ".");
}

/// The number as one of the integers of a type, or as the nearest end of their range.
int64_t as_integer(const Operand& value, DType dtype) {
  return visit_dtype(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      if (value.number_kind() == DTypeClass::floating)
        return static_cast<int64_t>(CastTo<T, double>::apply(value.number()));
      if (std::is_same_v<T, bool>) return value.number() != 0;
      return static_cast<int64_t>(std::clamp(whole(value), Whole{std::numeric_limits<T>::min()},
                                             Whole{std::numeric_limits<T>::max()}));
    }
    return 0;
  });
}

}  // namespace

Tensor full(const Dims& shape, const Operand& value, DType dtype, Device device) {
  TD_CHECK(!value.tensor(), "full: the value must be a number; got a tensor. expand() one without axes.");
  return apply1(op_full(), {},
                FullAttrs{shape, value.number(), as_integer(value, dtype), dtype,
                          static_cast<uint8_t>(device.kind), device.index});
}
Tensor zeros_like(const Tensor& x) { return full(x.shape(), 0, x.dtype(), x.device()); }
Tensor ones_like(const Tensor& x) { return full(x.shape(), 1, x.dtype(), x.device()); }

Tensor arange(int64_t n, DType dtype, Device device) {
  TD_CHECK(n >= 0, "arange: the size must not be negative; got ", n, ".");
  check_range(0, n - 1, n, dtype);
  return apply1(op_arange(), {},
                FullAttrs{Dims{n}, 0, 0, dtype, static_cast<uint8_t>(device.kind), device.index});
}

Tensor eye(int64_t rows, std::optional<int64_t> columns, DType dtype, Device device) {
  const int64_t width = columns.value_or(rows);
  TD_CHECK(rows >= 0 && width >= 0, "eye: the sizes must not be negative; got ", rows, " and ", width, ".");
  size_of({rows, width});
  return cast(equal(unsqueeze(arange(rows, DType::i64, device), 1), arange(width, DType::i64, device)),
              dtype);
}

Tensor arange(const Operand& start, const Operand& stop, const Operand& step, std::optional<DType> dtype,
              Device device) {
  bool is_whole = true;
  for (const Operand* number : {&start, &stop, &step}) {
    TD_CHECK(!number->tensor(), "arange: start, stop and step must be numbers; got a tensor.");
    is_whole = is_whole && number->number_kind() != DTypeClass::floating;
  }
  const DType type = dtype.value_or(is_whole ? DType::i64 : DType::f32);
  TD_CHECK(type != DType::boolean, "arange: the element type must be a number; got bool.");
  const double from = start.number(), upto = stop.number(), by = step.number();
  TD_CHECK(
      std::isfinite(from) && std::isfinite(upto) && std::isfinite(by) && by != 0 && (upto - from) / by >= 0,
      "arange: the step must lead from start to stop; got ", from, " to ", upto, " by ", by, ".");
  double count = std::ceil((upto - from) / by);
  if (is_whole) {  // exact, also beyond 2^53
    const Whole distance = whole(stop) - whole(start), s = whole(step);
    count = static_cast<double>(distance / s + (distance % s != 0));
  }
  TD_CHECK(count < 0x1p62, "arange: the number of elements must fit 63 bits; got ", from, " to ", upto,
           " by ", by, ".");
  const int64_t n = static_cast<int64_t>(count);
  if (is_whole) check_range(whole(start), whole(start) + (n - 1) * whole(step), n, type);
  if (is_whole && !is_floating(type))  // modulo 2^64
    return cast(add(mul(arange(n, DType::i64, device), step.integer()), start.integer()), type);
  return cast(add(mul(arange(n, DType::f64, device), by), from), type);
}

Tensor linspace(double start, double stop, int64_t count, DType dtype, Device device) {
  TD_CHECK(count >= 0, "linspace: the number of elements must not be negative; got ", count, ".");
  TD_CHECK(std::isfinite(start) && std::isfinite(stop), "linspace: start and stop must be finite; got ",
           start, " and ", stop, ".");
  TD_CHECK(dtype != DType::boolean, "linspace: the element type must be a number; got bool.");
  if (count == 1) return full({1}, start, dtype, device);
  // From both ends, so that both are exact.
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  const Tensor i = arange(count, DType::f64, device);
  const Tensor from_start = add(mul(i, step), start);
  const Tensor from_stop = sub(stop, mul(sub(static_cast<double>(count - 1), i), step));
  return cast(where(less(i, static_cast<double>(count / 2)), from_start, from_stop), dtype);
}

Tensor full_like(const Tensor& x, const Operand& value) {
  TD_CHECK(x.defined(), "full_like: x must be a tensor; got an undefined handle.");
  TD_CHECK(!value.tensor(),
           "full_like: the value must be a number; got a tensor. expand() one without axes.");
  return full(x.shape(), value, x.dtype(), x.device());
}

}  // namespace tandem
