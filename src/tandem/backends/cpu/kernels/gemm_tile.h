// The register tile of matrix products: Tile::rows rows of A times up to Tile::vectors vectors of columns of B.
#pragma once

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {

/// Of a >= 0. A small product is one of everything: it would spend its time on divisions.
inline int64_t ceil_div(int64_t a, int64_t b) { return a <= b ? a > 0 : (a + b - 1) / b; }

template <class T, int kVectors>
struct TileSums {
  Vec<T> at[Tile<T>::rows][kVectors];
};

/// Tile::rows rows of A over a block of k. Element (row r, k) at data[r * row + k * step]; either row is 1, as in a panel, or step,
/// as in rows that are read where they are.
template <class T>
struct TileRows {
  const T* data;
  int64_t row, step;
};

/// The sum over k of rows of A times the first vectors of a panel of B. By memory's broadcast where rows are read in place:
/// every third has a pointer, and the two after it are one and two rows away, which is one address.
template <class T, int kVectors, bool kInPlace>
[[gnu::always_inline]] inline TileSums<T, kVectors> multiply_tile(const TileRows<T>& rows, const T* b,
                                                                  int64_t b_step, int64_t kc) {
  constexpr int kL = kLanes<T>, kRows = Tile<T>::rows, kEach = (kRows + 2) / 3;
  TileSums<T, kVectors> sums{};
  const T* a = rows.data;
  const T* from[kEach];
#pragma GCC unroll 16
  for (int i = 0; i < kEach; ++i) from[i] = a + 3 * i * rows.row;
#pragma GCC unroll 4
  for (int64_t k = 0; k < kc; ++k, b += b_step) {
    Vec<T> bv[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) bv[v] = load(b + v * kL);
#if defined(__ARM_NEON)
    Vec<T> av[kInPlace ? 1 : kRows / kL];
    if constexpr (!kInPlace)
#pragma GCC unroll 16
      for (int r = 0; r < kRows / kL; ++r) av[r] = load(a + r * kL);
#endif
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#if defined(__ARM_NEON)
      const Vec<T> ar =
          splat<T>(kInPlace ? from[r / 3][r % 3 * rows.row] : av[kInPlace ? 0 : r / kL][r % kL]);
#else
      const Vec<T> ar = splat<T>(kInPlace ? from[r / 3][r % 3 * rows.row] : a[r]);
#endif
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums.at[r][v] = fma(bv[v], ar, sums.at[r][v]);
    }
    if constexpr (kInPlace) {
#pragma GCC unroll 16
      for (int i = 0; i < kEach; ++i) ++from[i];
    } else {
      a += rows.step;
    }
  }
  return sums;
}

/// What happens to a tile of sums: `partial` holds the sums of earlier blocks of k where `add` is set, and
/// takes these where `last` is not; a finished tile gets its bias, is rounded and goes to C.
template <class S>
struct Destination {
  using T = Accumulator<S>;
  T* partial;  // the same memory as c where the types agree
  S* c;
  int64_t leading;
  const S* row_bias;
  const S* column_bias;
  bool add, last;
};

/// Three ways that compute the same: a whole tile that is only stored, a whole tile in vectors, and any tile element
/// by element. Additions run in one order: earlier blocks of k, row bias, column bias.
template <class S, int kVectors, class T = Accumulator<S>>
[[gnu::always_inline]] inline void store_tile(const TileSums<T, kVectors>& sums, const Destination<S>& to,
                                              int64_t rows, int64_t columns) {
  constexpr int kL = kLanes<T>, kRows = Tile<T>::rows, kColumns = kVectors * kL;
  if constexpr (std::is_same_v<S, T>) {
    if (rows == kRows && columns == kColumns && !to.add && !to.row_bias && !to.column_bias) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) store(to.c + r * to.leading + v * kL, sums.at[r][v]);
      return;
    }
    if (rows == kRows && columns == kColumns) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          T* at = to.c + r * to.leading + v * kL;
          Vec<T> x = sums.at[r][v];
          if (to.add) x = load(at) + x;
          if (to.last && to.row_bias) x += splat<T>(to.row_bias[r]);
          if (to.last && to.column_bias) x += load(to.column_bias + v * kL);
          store(at, x);
        }
      return;
    }
  }
  T tile[kRows * kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(tile + r * kColumns + v * kL, sums.at[r][v]);
  for (int64_t r = 0; r < rows; ++r) {
    T* row = tile + r * kColumns;
    if (to.add)
      for (int64_t j = 0; j < columns; ++j) row[j] = to.partial[r * to.leading + j] + row[j];
    if (!to.last) {
      for (int64_t j = 0; j < columns; ++j) to.partial[r * to.leading + j] = row[j];
      continue;
    }
    if (to.row_bias)
      for (int64_t j = 0; j < columns; ++j) row[j] += static_cast<T>(to.row_bias[r]);
    if (to.column_bias)
      for (int64_t j = 0; j < columns; ++j) row[j] += static_cast<T>(to.column_bias[j]);
    for (int64_t j = 0; j < columns; ++j) to.c[r * to.leading + j] = static_cast<S>(row[j]);
  }
}

template <class S, int kVectors, class T = Accumulator<S>>
[[gnu::noinline]] void run_tile_of(const TileRows<T>& a, const T* b, int64_t b_step, int64_t kc,
                                   const Destination<S>& to, int64_t rows, int64_t columns) {
  if (a.row == 1)
    store_tile<S, kVectors>(multiply_tile<T, kVectors, false>(a, b, b_step, kc), to, rows, columns);
  else
    store_tile<S, kVectors>(multiply_tile<T, kVectors, true>(a, b, b_step, kc), to, rows, columns);
}

/// rows × columns elements of C. All Tile::rows rows of A must be there, and whole vectors of B.
template <class S, class T = Accumulator<S>>
inline void run_tile(const TileRows<T>& a, const T* b, int64_t b_step, int64_t kc, const Destination<S>& to,
                     int64_t rows, int64_t columns) {
  static_assert(Tile<T>::vectors <= 3);
  const int64_t vectors = columns <= kLanes<T> ? 1 : columns <= 2 * kLanes<T> ? 2 : Tile<T>::vectors;
  if (vectors == 1)
    run_tile_of<S, 1>(a, b, b_step, kc, to, rows, columns);
  else if (vectors == 2)
    run_tile_of<S, 2>(a, b, b_step, kc, to, rows, columns);
  else
    run_tile_of<S, Tile<T>::vectors>(a, b, b_step, kc, to, rows, columns);
}

/// Where the sums of a product go while its blocks of k are computed, `parts` of them: in order, each added to those before it, or
/// side by side, all to be added in the same order afterwards. f32 and f64 keep sums in C itself as long as they are computed in order;
/// 16-bit types keep them in f32 beside it and round once, at the end.
template <class S>
class PartialSums {
 public:
  using T = Accumulator<S>;

  PartialSums(int64_t m, int64_t n, int64_t parts, bool side_by_side, S* c, int64_t leading, Bias<S> bias)
      : m_(m), n_(n), parts_(parts), side_by_side_(side_by_side), c_(c), leading_(leading), bias_(bias) {
    if (side_by_side)
      sums_ = scratch_of<T>(ScratchSlot::gemm_c, m * n * parts);
    else if constexpr (std::is_same_v<S, T>)
      sums_ = c;
    else if (parts > 1)
      sums_ = scratch_of<T>(ScratchSlot::gemm_c, m * leading);
  }

  /// For the tile whose first element is (i, j).
  Destination<S> at(int64_t i, int64_t j, int64_t part) const {
    if (side_by_side_) {
      T* const sums = sums_ + (part * m_ + i) * n_ + j;
      S* same = nullptr;
      if constexpr (std::is_same_v<S, T>) same = sums;
      return {sums, same, n_, nullptr, nullptr, false, false};
    }
    const int64_t offset = i * leading_ + j;
    return {sums_ ? sums_ + offset : nullptr,
            c_ + offset,
            leading_,
            bias_.row ? bias_.row + i : nullptr,
            bias_.column ? bias_.column + j : nullptr,
            part > 0,
            part + 1 == parts_};
  }

  /// Once all tiles are there: what lies side by side goes to C.
  void finish() const {
    if (!side_by_side_) return;
    constexpr int64_t kGrain = 16384;  // elements read by one chunk
    parallel_ranges(m_, 1 + kGrain / (n_ * parts_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* const sums = sums_ + i * n_;
        for (int64_t part = 1; part < parts_; ++part)
          for (int64_t j = 0; j < n_; ++j) sums[j] += sums[part * m_ * n_ + j];
        if (bias_.row)
          for (int64_t j = 0; j < n_; ++j) sums[j] += static_cast<T>(bias_.row[i]);
        if (bias_.column)
          for (int64_t j = 0; j < n_; ++j) sums[j] += static_cast<T>(bias_.column[j]);
        for (int64_t j = 0; j < n_; ++j) c_[i * leading_ + j] = static_cast<S>(sums[j]);
      }
    });
  }

 private:
  const int64_t m_, n_, parts_;
  const bool side_by_side_;
  S* const c_;
  const int64_t leading_;
  const Bias<S> bias_;
  T* sums_ = nullptr;
};

}  // namespace tandem::cpu::TD_ISA
