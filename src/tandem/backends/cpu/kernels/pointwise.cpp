// Pointwise ops of floating types, one instruction-set level's loops. They serve the ops one by one (backends/cpu/pointwise.cpp)
// and fused chains (fused.cpp).
//
// Few loops are compiled, since there are many ops and three levels: f32 and f64. bf16 and f16 are converted in small blocks
// around the loops of float, in which they are computed anyway. A few ops that training spends its time on read and write bf16
// and f16 themselves.
// loops: plain
#include "tandem/backends/cpu/kernels/pointwise_loops.h"
#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {
namespace {

template <class F, int inputs, Types types>
void put_row(TileFn (&row)[kDTypeCount]) {
  const auto put = [&](DType dtype, TileFn loop) { row[static_cast<int>(dtype)] = loop; };
  if constexpr (std::is_same_v<F, Where>) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const size_t width = bytes_of(static_cast<DType>(i));
      row[i] = width == 4   ? SelectLoop<uint32_t>::run
               : width == 2 ? SelectLoop<uint16_t>::run
               : width == 8 ? SelectLoop<uint64_t>::run
                            : SelectLoop<uint8_t>::run;
    }
    return;
  } else {
    if constexpr (kWide<F>) {
      put(DType::f64, direct<F, inputs, double>());
      put(DType::f32, through<F, inputs, float, double>());
      put(DType::bf16, through<F, inputs, BFloat16, double>());
      put(DType::f16, through<F, inputs, Float16, double>());
    } else if constexpr (types != Types::integer && types != Types::bits) {
      put(DType::f64, direct<F, inputs, double>());
      put(DType::f32, direct<F, inputs, float, types == Types::floating>());
      if constexpr (kDirectHalves<F>) {
        put(DType::bf16, direct<F, inputs, BFloat16>());
        put(DType::f16, direct<F, inputs, Float16>());
      } else {
        put(DType::bf16, through<F, inputs, BFloat16, float>());
        put(DType::f16, through<F, inputs, Float16, float>());
      }
    }
  }
}

/// From → To directly.
template <class To, class From>
void put_cast(PointwiseLoops& loops) {
  loops.cast[static_cast<int>(dtype_of<From>())][static_cast<int>(dtype_of<To>())] = CastLoop<To, From>::run;
}

}  // namespace

void register_pointwise_kernels() {
  PointwiseLoops& loops = pointwise_loops();
  put_cast<BFloat16, float>(loops);
  put_cast<Float16, float>(loops);
  put_cast<float, BFloat16>(loops);
  put_cast<float, Float16>(loops);
  put_cast<double, float>(loops);
  put_cast<float, double>(loops);
  put_cast<float, uint8_t>(loops);
#define TD_ROW(name, Functor, inputs, types, ...) \
  put_row<Functor, inputs, Types::types>(loops.by_type[row_##name]);
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
}

}  // namespace tandem::cpu::TD_ISA
