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

/// A case that moves elements without changing them: output index -> input index, over a given output shape.
inline OpCase moving(const std::string& name, const Dims& in_shape, const Dims& out_shape, CaseCall call,
                     std::function<Dims(const Dims&)> source) {
  OpCase op_case;
  op_case.name = name;
  op_case.inputs = {{in_shape}};
  op_case.call = std::move(call);
  op_case.reference = [=](std::span<const Array> in) {
    Array out(out_shape);
    each_index(out_shape, [&](const Dims& i) { out.at(i) = in[0].at(source(i)); });
    return out;
  };
  op_case.tolerance = 0;
  op_case.half_ulps = 0;
  op_case.dtypes = kEvery;
  return op_case;
}

/// A case that keeps the order of the elements and changes the shape.
inline OpCase reshaping(const std::string& name, const Dims& in_shape, const Dims& out_shape, CaseCall call) {
  OpCase op_case = moving(name, in_shape, out_shape, std::move(call), nullptr);
  op_case.reference = [out_shape](std::span<const Array> in) { return Array(out_shape, in[0].values); };
  return op_case;
}

}  // namespace tandem::testing
