// Tensors made from nothing: constants, ranges, the unit matrix.
#pragma once

#include <optional>

#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"

namespace tandem {

/// The value, a number, becomes what cast() makes of it: for integers truncated, and beyond the range its nearest end.
/// Whole numbers are exact.
Tensor full(const Dims& shape, const Operand& value, DType dtype = DType::f32, Device device = {});
inline Tensor zeros(const Dims& shape, DType dtype = DType::f32, Device device = {}) {
  return full(shape, 0, dtype, device);
}
inline Tensor ones(const Dims& shape, DType dtype = DType::f32, Device device = {}) {
  return full(shape, 1, dtype, device);
}
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
/// 0, 1 … n-1
Tensor arange(int64_t n, DType dtype = DType::i64, Device device = {});
Tensor eye(int64_t rows, std::optional<int64_t> columns = {}, DType dtype = DType::f32, Device device = {});
/// start, start + step … before stop. Without a type: i64 where all three are whole numbers, else f32.
Tensor arange(const Operand& start, const Operand& stop, const Operand& step = 1,
              std::optional<DType> dtype = {}, Device device = {});
/// `count` numbers from start to stop, both included.
Tensor linspace(double start, double stop, int64_t count, DType dtype = DType::f32, Device device = {});
Tensor full_like(const Tensor& x, const Operand& value);

/// full and arange: integer and value say the same number for integers beyond 2^53.
struct FullAttrs {
  Dims shape;
  double value = 0;
  int64_t integer = 0;
  DType dtype = DType::f32;
  uint8_t device_kind = 0, device_index = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("shape", &FullAttrs::shape), field("value", &FullAttrs::value),
                 field("integer", &FullAttrs::integer), field("dtype", &FullAttrs::dtype),
                 field("device_kind", &FullAttrs::device_kind),
                 field("device_index", &FullAttrs::device_index));
  }
};
OpDef& op_full();
OpDef& op_arange();

}  // namespace tandem
