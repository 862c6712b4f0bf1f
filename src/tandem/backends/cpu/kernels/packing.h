// Operands of matrix products with any strides, packed into panels: [k][row or column].
#pragma once

#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {

typedef float Quad __attribute__((vector_size(16)));
typedef float UnalignedQuad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int QuadIndex __attribute__((vector_size(16)));

/// to[k * kWidth + i] = from[i * stride + k] for four rows i and four k.
template <int kWidth>
inline void transpose_4x4(float* to, const float* from, int64_t stride) {
  const auto row = [&](int i) -> Quad { return *reinterpret_cast<const UnalignedQuad*>(from + i * stride); };
  const Quad a = row(0), b = row(1), c = row(2), d = row(3);
  const Quad ab_low = __builtin_shuffle(a, b, QuadIndex{0, 4, 1, 5});
  const Quad ab_high = __builtin_shuffle(a, b, QuadIndex{2, 6, 3, 7});
  const Quad cd_low = __builtin_shuffle(c, d, QuadIndex{0, 4, 1, 5});
  const Quad cd_high = __builtin_shuffle(c, d, QuadIndex{2, 6, 3, 7});
  const auto put = [&](int k, Quad v) { *reinterpret_cast<UnalignedQuad*>(to + k * kWidth) = v; };
  put(0, __builtin_shuffle(ab_low, cd_low, QuadIndex{0, 1, 4, 5}));
  put(1, __builtin_shuffle(ab_low, cd_low, QuadIndex{2, 3, 6, 7}));
  put(2, __builtin_shuffle(ab_high, cd_high, QuadIndex{0, 1, 4, 5}));
  put(3, __builtin_shuffle(ab_high, cd_high, QuadIndex{2, 3, 6, 7}));
}

/// Element (i, k) lies at from[i * along + k * depth]; i < count <= kOwn, and the rest up to kOwn is zero. A row of the panel is kWidth wide.
template <int kWidth, int kOwn = kWidth, class T, class S>
void pack_strided(T* to, const S* from, int64_t along, int64_t depth, int64_t count, int64_t kc) {
  if (count == kOwn && along == 1) {
    for (int64_t k = 0; k < kc; ++k)
      for (int i = 0; i < kOwn; ++i) to[k * kWidth + i] = static_cast<T>(from[k * depth + i]);
    return;
  }
  int64_t i = 0;
  if constexpr (std::is_same_v<S, float>) {
    if (depth == 1) {
      for (; i + 4 <= count; i += 4) {
        const float* rows = from + i * along;
        int64_t k = 0;
        for (; k + 4 <= kc; k += 4) transpose_4x4<kWidth>(to + k * kWidth + i, rows + k, along);
        for (; k < kc; ++k)
          for (int r = 0; r < 4; ++r) to[k * kWidth + i + r] = rows[r * along + k];
      }
    }
  }
  for (; i < count; ++i)
    for (int64_t k = 0; k < kc; ++k) to[k * kWidth + i] = static_cast<T>(from[i * along + k * depth]);
  for (; i < kOwn; ++i)
    for (int64_t k = 0; k < kc; ++k) to[k * kWidth + i] = T(0);
}

/// The operand as a PanelSource: `along` is the stride over rows of A (columns of B), `depth` that over k.
template <int kWidth, class S>
struct StridedPanels {
  using T = Accumulator<S>;
  const S* data;
  int64_t along, depth, count;

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    const auto& self = *static_cast<const StridedPanels*>(context);
    const int64_t left = self.count - first;
    pack_strided<kWidth>(to, self.data + first * self.along + k0 * self.depth, self.along, self.depth,
                         left < kWidth ? left : kWidth, kc);
  }
  PanelSource<T> source(bool in_place) const {
    PanelSource<T> result{&pack, this};
    if constexpr (std::is_same_v<S, T>) {
      if (in_place && along == 1) {
        result.direct = data;
        result.direct_step = depth;
      }
    }
    return result;
  }
};

}  // namespace tandem::cpu::TD_ISA
