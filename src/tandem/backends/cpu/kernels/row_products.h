// Products of rows, read where they are, with a panel of columns that is packed: for products whose left side is read once.
#pragma once

#include <utility>

#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {

/// Rows of a register tile that is kCount vectors wide.
template <int kCount>
inline constexpr int kRowsOfTile = kVectorRegisters == 32 ? (kCount <= 2 ? 12 : 6) : 8 / kCount;

inline constexpr int64_t kCacheLine = 64;

inline int64_t blocks_in(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Rows of A, `stride` apart, times `depth` rows of one panel [k][kCount vectors]: row r, vector v goes to out + r · row + v · vector, or is
/// added to what is there. Meanwhile a cache line for each row of the panel comes nearer, from `ahead` on; null: none.
template <class C, int kRows, int kCount>
void multiply(const C* a, int64_t stride, int64_t depth, const C* panel, C* out, int64_t row, int64_t vector,
              bool adds, const char* ahead) {
  constexpr int kL = kLanes<C>, kEach = (kRows + 2) / 3;
  Vec<C> sums[kRows][kCount] = {};
  const C* from
      [kEach];  // every third row: the two after it are one and two strides away, which is an address on any processor
#pragma GCC unroll 8
  for (int i = 0; i < kEach; ++i) from[i] = a + 3 * i * stride;
  for (int64_t k = 0; k < depth; ++k) {
    if (ahead) __builtin_prefetch(ahead + k * kCacheLine, 0, 2);
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
      store(to, adds ? load(to) + sums[r][v] : sums[r][v]);
    }
}

template <class C, int kCount>
struct Rows {
  using Function = void (*)(const C*, int64_t, int64_t, const C*, C*, int64_t, int64_t, bool, const char*);
  template <int... kIndex>
  static Function at(int64_t rows, std::integer_sequence<int, kIndex...>) {
    static constexpr Function table[] = {multiply<C, kIndex + 1, kCount>...};
    return table[rows - 1];
  }
  /// All of n rows, in tiles that are as even as possible. k is cut as in gemm.h, and the parts are added in order; all rows take a
  /// part of the panel before the next, for it may come from far away: `goes_on` says that what lies behind it is multiplied next, and each
  /// tile fetches its share of that.
  static void run(const C* a, int64_t stride, int64_t n, int64_t depth, const C* panel, C* out, int64_t row,
                  int64_t vector, bool goes_on = false) {
    constexpr int64_t kWidth = kCount * kLanes<C>;
    const int64_t lines =
        blocks_in(kWidth * static_cast<int64_t>(sizeof(C)), kCacheLine);  // of a panel's row
    const int64_t part = depth_of_block(depth);
    for (int64_t k = 0; k < depth; k += part)
      for (int64_t done = 0, tile = 0; done < n; ++tile) {
        const int64_t rows = blocks_in(n - done, blocks_in(n - done, kRowsOfTile<kCount>));
        const C* const now = panel + k * kWidth;
        const char* const ahead =
            goes_on && tile < lines
                ? reinterpret_cast<const char*>(now + part * kWidth) + tile * part * kCacheLine
                : nullptr;
        at(rows, std::make_integer_sequence<int, kRowsOfTile<kCount>>())(
            a + done * stride + k, stride, depth - k < part ? depth - k : part, now, out + done * row, row,
            vector, k > 0, ahead);
        done += rows;
      }
  }
};

}  // namespace tandem::cpu::TD_ISA
