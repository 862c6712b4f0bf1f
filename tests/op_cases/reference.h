// What the references of the op cases share: broadcasting over plain arrays, and lists of dtypes.
#pragma once

#include <functional>
#include <vector>

#include "tests/support/op_case.h"

namespace tandem::testing {

inline const std::vector<DType> kHalves = {DType::bf16, DType::f16};
inline const std::vector<DType> kSigned = {DType::bf16, DType::f16, DType::i8,
                                           DType::i16,  DType::i32, DType::i64};
inline const std::vector<DType> kNumbers = {DType::bf16, DType::f16, DType::i8,  DType::i16, DType::i32,
                                            DType::i64,  DType::u8,  DType::u16, DType::u32, DType::u64};
inline const std::vector<DType> kEvery = {DType::bf16, DType::f16, DType::i8,     DType::i16,
                                          DType::i32,  DType::i64, DType::u8,     DType::u16,
                                          DType::u32,  DType::u64, DType::boolean};

/// The common shape of two, right-aligned, 1 stretches.
inline Dims stretched(const Dims& a, const Dims& b) {
  const int rank = a.rank() > b.rank() ? a.rank() : b.rank();
  Dims out = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const Dim x = i < a.rank() ? a[a.rank() - 1 - i] : 1, y = i < b.rank() ? b[b.rank() - 1 - i] : 1;
    out[rank - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

/// The element of a broadcast array that stands at `index` of the common shape.
inline double stretched_at(const Array& array, const Dims& index) {
  Dims own = array.shape;
  const int lead = index.rank() - own.rank();
  for (int i = 0; i < own.rank(); ++i) own[i] = array.shape[i] == 1 ? 0 : index[lead + i];
  return array.at(own);
}

/// A copy of a case with another name and other input shapes.
inline OpCase with_shapes(OpCase op_case, const std::string& name, const std::vector<Dims>& shapes) {
  op_case.name = name;
  for (size_t i = 0; i < shapes.size(); ++i) op_case.inputs[i].shape = shapes[i];
  return op_case;
}

}  // namespace tandem::testing
