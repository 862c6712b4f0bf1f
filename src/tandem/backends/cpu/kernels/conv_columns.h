// The columns of a convolution as a matrix product, gathered from images a panel at a time.
#pragma once

#include "tandem/backends/cpu/kernels/conv.h"

namespace tandem::cpu::TD_ISA {

/// The right operand of a convolution as a product: row t is a tap, column q is pixel q % pixels of image q / pixels.
template <class S>
struct ConvColumns {
  using T = Accumulator<S>;
  const ConvShape& s;
  const S* x;  // the group's first channel of the block's first image
  int64_t images;

  /// kWidth columns from `first` on, of taps k0 … k0 + kc: [tap][column].
  template <int kWidth>
  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    const auto& self = *static_cast<const ConvColumns*>(context);
    const ConvShape& s = self.s;
    // The corner of each column's window.
    const S* corner[kWidth];
    int64_t row[kWidth], column[kWidth];
    for (int q = 0; q < kWidth; ++q) {
      const int64_t pixel = first + q, image = pixel / (s.oh * s.ow), at = pixel % (s.oh * s.ow);
      row[q] = at / s.ow * s.stride_h - s.padding_h;
      column[q] = at % s.ow * s.stride_w - s.padding_w;
      corner[q] = image < self.images ? self.x + image * s.c * s.h * s.w : nullptr;
    }
    for (int64_t k = k0; k < k0 + kc; ++k, to += kWidth) {
      const int64_t c = k / (s.kh * s.kw);
      const int64_t i = k / s.kw % s.kh * s.dilation_h, j = k % s.kw * s.dilation_w;
      for (int q = 0; q < kWidth; ++q) {
        const int64_t h = row[q] + i, w = column[q] + j;
        const bool inside = corner[q] && h >= 0 && h < s.h && w >= 0 && w < s.w;
        to[q] = inside ? static_cast<T>(corner[q][(c * s.h + h) * s.w + w]) : T(0);
      }
    }
  }
};

}  // namespace tandem::cpu::TD_ISA
