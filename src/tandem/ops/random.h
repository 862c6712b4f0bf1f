// Tensors made from nothing: constants, ranges and random numbers (core/rng.h), and dropout.
#pragma once

#include "tandem/core/op.h"
#include "tandem/core/rng.h"

namespace tandem {

Tensor full(const Dims& shape, double value, DType dtype = DType::f32, Device device = {});
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
/// Uniform in [low, high); the same numbers on every device.
Tensor uniform(const Dims& shape, double low = 0, double high = 1, DType dtype = DType::f32,
               Device device = {});
/// Normal (Box-Muller).
Tensor normal(const Dims& shape, double mean = 0, double deviation = 1, DType dtype = DType::f32,
              Device device = {});
/// 1 with probability p, else 0.
Tensor bernoulli(const Dims& shape, double p, DType dtype = DType::f32, Device device = {});
/// Zeroes each element with probability p and scales the rest by 1 / (1 - p). p = 0 returns x itself.
Tensor dropout(const Tensor& x, double p);

/// full and arange: integer and value say the same number for integers beyond 2^53.
struct FullAttrs {
  Dims shape;
  double value = 0;
  int64_t integer = 0;
  DType dtype = DType::f32;
  uint8_t device_kind = 0, device_index = 0;
  static auto fields() {
    return std::tuple{field("shape", &FullAttrs::shape),
                      field("value", &FullAttrs::value),
                      field("integer", &FullAttrs::integer),
                      field("dtype", &FullAttrs::dtype),
                      field("device_kind", &FullAttrs::device_kind),
                      field("device_index", &FullAttrs::device_index)};
  }
};
struct RandomAttrs {
  Dims shape;
  double a = 0, b = 1;  // uniform: low, high; normal: mean, deviation; bernoulli: p, unused
  DType dtype = DType::f32;
  uint8_t device_kind = 0, device_index = 0;
  static auto fields() {
    return std::tuple{field("shape", &RandomAttrs::shape),
                      field("a", &RandomAttrs::a),
                      field("b", &RandomAttrs::b),
                      field("dtype", &RandomAttrs::dtype),
                      field("device_kind", &RandomAttrs::device_kind),
                      field("device_index", &RandomAttrs::device_index)};
  }
};
OpDef& op_full();
OpDef& op_arange();
OpDef&
op_uniform();  // random. Element i takes word i % 4 of block offset + i / 4: low + u · (high - low) in f32
OpDef&
op_normal();  // random. Words (0,1) and (2,3) of a block make two pairs: see scalar_functions.h normal_pair
OpDef& op_bernoulli();  // random. 1 where uniform < p (p as f32)

}  // namespace tandem
