// Products of rows, read where they are, with a panel of columns that is packed: for products whose left side is read once.
#pragma once

#include <utility>

#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {

/// Rows of a register tile that is kCount vectors wide.
template <int kCount>
inline constexpr int kRowsOfTile = kVectorRegisters == 32 ? (kCount <= 2 ? 12 : 6) : 8 / kCount;

inline int64_t blocks_in(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Rows of A, `stride` apart, times one panel [k][kCount vectors]: row r, vector v goes to out + r · row + v · vector. k is cut as in
/// gemm.h, and the parts are added in order.
template <class C, int kRows, int kCount>
void multiply(const C* a, int64_t stride, int64_t depth, const C* panel, C* out, int64_t row,
              int64_t vector) {
  constexpr int kL = kLanes<C>, kEach = (kRows + 2) / 3;
  const int64_t part = depth_of_block(depth);
  for (int64_t k0 = 0; k0 < depth; k0 += part) {
    const int64_t end = k0 + part < depth ? k0 + part : depth;
    Vec<C> sums[kRows][kCount] = {};
    const C* from
        [kEach];  // every third row: the two after it are one and two strides away, which is an address on any processor
#pragma GCC unroll 8
    for (int i = 0; i < kEach; ++i) from[i] = a + 3 * i * stride + k0;
    for (int64_t k = k0; k < end; ++k) {
      Vec<C> b[kCount];
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) b[v] = load(panel + (k * kCount + v) * kL);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec<C> x = splat<C>(from[r / 3][r % 3 * stride]);
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) sums[r][v] = fma(b[v], x, sums[r][v]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kEach; ++i) ++from[i];
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kCount; ++v) {
        C* const to = out + r * row + v * vector;
        store(to, k0 == 0 ? sums[r][v] : load(to) + sums[r][v]);
      }
  }
}

template <class C, int kCount>
struct Rows {
  using Function = void (*)(const C*, int64_t, int64_t, const C*, C*, int64_t, int64_t);
  template <int... kIndex>
  static Function at(int64_t rows, std::integer_sequence<int, kIndex...>) {
    static constexpr Function table[] = {multiply<C, kIndex + 1, kCount>...};
    return table[rows - 1];
  }
  /// All of n rows, in tiles that are as even as possible.
  static void run(const C* a, int64_t stride, int64_t n, int64_t depth, const C* panel, C* out, int64_t row,
                  int64_t vector) {
    for (int64_t left = n; left > 0;) {
      const int64_t rows = blocks_in(left, blocks_in(left, kRowsOfTile<kCount>));
      at(rows, std::make_integer_sequence<int, kRowsOfTile<kCount>>())(a, stride, depth, panel, out, row,
                                                                       vector);
      a += rows * stride;
      out += rows * row;
      left -= rows;
    }
  }
};

}  // namespace tandem::cpu::TD_ISA
