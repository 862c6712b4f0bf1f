// Pointwise ops of whole numbers and bool, and all casts: compiled once, for every processor. Of the integers i32, the two of 64
// bits, and bytes for bool have loops; the others are converted in small blocks around one of these: a whole number cut off to its
// width is right (see the table in scalar_functions.h). Each level puts its own loops over the casts that training spends time on.
// levels: one
// loops: short
#include "tandem/backends/cpu/kernels/pointwise_loops.h"
#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {
namespace {

template <class F, int inputs, Types types>
void put_row(TileFn (&row)[kDTypeCount]) {
  if constexpr (!std::is_same_v<F, Where>) {  // which moves elements by their width: pointwise.cpp
    const auto put = [&](DType dtype, TileFn loop) { row[static_cast<int>(dtype)] = loop; };
    if constexpr (types != Types::floating) {
      put(DType::i64, direct<F, inputs, int64_t>());
      put(DType::u64, direct<F, inputs, typename Choose<kSignless<F>, int64_t, uint64_t>::type>());
      put(DType::i32, direct<F, inputs, int32_t>());
      put(DType::i16, through<F, inputs, int16_t, int64_t>());
      put(DType::i8, through<F, inputs, int8_t, int64_t>());
      put(DType::u32, through<F, inputs, uint32_t, int64_t>());
      put(DType::u16, through<F, inputs, uint16_t, int64_t>());
      put(DType::u8, through<F, inputs, uint8_t, int64_t>());
    }
    // A bool is a byte of 0 or 1, and every function of bools gives the same as on such bytes.
    if constexpr (types == Types::every || types == Types::bits) {
      put(DType::boolean, direct<F, inputs, uint8_t>());
      put(DType::u8, direct<F, inputs, uint8_t>());
    }
  }
}

/// The type by way of which a type is cast, and the type by way of which it is reached.
template <class T>
struct Core {
  using from = int64_t;
  using to = T;  // of the integers each for itself: out of range floats go to the nearest end
};
template <>
struct Core<float> {
  using from = float;
  using to = float;
};
template <>
struct Core<double> {
  using from = double;
  using to = double;
};
template <>
struct Core<uint64_t> {
  using from = uint64_t;
  using to = uint64_t;
};
template <>
struct Core<BFloat16> {
  using from = float;
  using to = float;
};
template <>
struct Core<Float16> {
  using from = float;
  using to = float;
};

template <class From>
void put_casts_from(PointwiseLoops& loops) {
  for (int to = 0; to < kDTypeCount; ++to)
    loops.cast[static_cast<int>(dtype_of<From>())][to] =
        visit_dtype(static_cast<DType>(to), [](auto zero) -> TileFn {
          using To = decltype(zero);
          using A = typename Core<From>::from;
          using B = typename Core<To>::to;
          return converted<1, From, A, CastLoop<B, A>::run, B, To>;
        });
}

}  // namespace

void register_integer_pointwise_kernels() {
  PointwiseLoops& loops = pointwise_loops();
  for (int from = 0; from < kDTypeCount; ++from)
    visit_dtype(static_cast<DType>(from), [&](auto zero) { put_casts_from<decltype(zero)>(loops); });
  register_pointwise();
#define TD_ROW(name, Functor, inputs, types, ...) \
  put_row<Functor, inputs, Types::types>(loops.by_type[row_##name]);
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
}

}  // namespace tandem::cpu::TD_ISA
