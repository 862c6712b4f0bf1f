// The direct convolution kernel. Forward and input gradient are one problem: out(m, i, j) = bias(m) + sum over
// taps t of weight(t, m) * source(offset(t) + i * pitch + j), with a source padded so that no tap leaves it.
// A tile holds up to eight output channels m times a few vectors of adjacent pixels in registers.
#pragma once

#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {

inline constexpr int kMaxRows = kVectorRegisters == 32 ? 8 : 6;  // output channels of a tile
inline constexpr int kMaxVectors = 8;

/// Vectors of pixels of a tile with so many channels: as many sums as fit the registers.
constexpr int tile_vectors(int rows) {
  const int sums = kVectorRegisters == 32 ? 24 : 12;
  return sums / rows < kMaxVectors ? sums / rows : kMaxVectors;
}

/// Taps in the order of their kernel rows, so that the taps of an output row that hit the image are a range.
struct TapRange {
  int64_t begin, end;
};

template <class S>
struct Problem {
  using T = Accumulator<S>;
  int64_t channels;       // m
  int64_t rows, columns;  // i, j
  int64_t pitch;          // of the source
  int64_t taps;
  const int64_t* offsets;  // by tap
  const TapRange* ranges;  // by output row i
  const T* weights;        // blocks of block_rows() channels, each [tap][channel]
  const S* bias;           // by channel, or null
  int64_t out_plane, out_row, out_column;

  int64_t blocks() const { return ceil_div(channels, kMaxRows); }
  int64_t block_rows() const { return ceil_div(channels, blocks()); }
};

/// A tile's vectors of pixels: where each reads, where it goes, and how many of its lanes count (0 beyond the
/// last pixel).
template <class S>
struct TilePixels {
  const Accumulator<S>* source[kMaxVectors];
  S* to[kMaxVectors];
  int64_t width[kMaxVectors];
  TapRange taps;
  bool whole;  // every vector may be stored in full
};

template <class S, int kRows, class T = Accumulator<S>>
[[gnu::noinline]] void run_tile(const Problem<S>& p, const T* weights, const TilePixels<S>& pixels,
                                const S* bias, int channels) {
  constexpr int kL = kLanes<T>, kVectors = tile_vectors(kRows);
  Vec<T> sums[kRows][kVectors] = {};
  const T* w = weights + pixels.taps.begin * kRows;
  const T* source[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) source[v] = pixels.source[v];
  const int64_t* offset = p.offsets + pixels.taps.begin;
  const int64_t* const end = p.offsets + pixels.taps.end;
#pragma GCC unroll 2
  for (; offset < end; ++offset, w += kRows) {
    Vec<T> x[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) x[v] = load(source[v] + *offset);
#if defined(__ARM_NEON)
    constexpr int kWhole = (kRows + kL - 1) / kL;
    Vec<T> wv[kWhole];
#pragma GCC unroll 16
    for (int r = 0; r < kWhole; ++r) wv[r] = load(w + r * kL);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x[v], splat<T>(wv[r / kL][r % kL]), sums[r][v]);
#else
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> wr = splat<T>(w[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x[v], wr, sums[r][v]);
    }
#endif
  }
  if (bias) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> br = splat<T>(r < channels ? static_cast<T>(bias[r]) : T(0));
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] += br;
    }
  }
  if constexpr (std::is_same_v<S, T>) {
    if (pixels.whole && channels == kRows) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) store(pixels.to[v] + r * p.out_plane, sums[r][v]);
      return;
    }
  }
  T tile[kRows][kVectors][kL];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(tile[r][v], sums[r][v]);
  for (int r = 0; r < channels; ++r)
    for (int v = 0; v < kVectors; ++v) {
      S* to = pixels.to[v] + r * p.out_plane;
      for (int64_t i = 0; i < pixels.width[v]; ++i) to[i * p.out_column] = static_cast<S>(tile[r][v][i]);
    }
}

/// All pixels of one block of channels.
template <class S, int kRows, class T = Accumulator<S>>
void run_block(const Problem<S>& p, const T* source, int64_t first_channel, S* out) {
  constexpr int kL = kLanes<T>, kVectors = tile_vectors(kRows);
  const int64_t vectors = p.rows * ceil_div(p.columns, kL);
  const int64_t left = p.channels - first_channel;
  const int channels = static_cast<int>(left < kRows ? left : kRows);
  const T* weights = p.weights + first_channel * p.taps;
  const S* bias = p.bias ? p.bias + first_channel : nullptr;
  // Rows follow each other without a gap in the output, and vectors are stored in order: the lanes of a short
  // vector that spill into later rows are overwritten by these, as long as none leaves the plane.
  const bool may_spill = p.out_column == 1 && p.out_row == p.columns;
  int64_t row = 0, column = 0;  // of the next vector
  for (int64_t first = 0; first < vectors; first += kVectors) {
    TilePixels<S> pixels;
    pixels.taps = p.ranges[row];
    pixels.whole = may_spill;
    for (int v = 0; v < kVectors; ++v) {
      if (first + v >= vectors) {
        pixels.source[v] = pixels.source[0];
        pixels.to[v] = out;
        pixels.width[v] = 0;
        pixels.whole = false;
        continue;
      }
      pixels.source[v] = source + row * p.pitch + column;
      pixels.to[v] = out + row * p.out_row + column * p.out_column;
      pixels.width[v] = p.columns - column < kL ? p.columns - column : kL;
      if (p.ranges[row].begin < pixels.taps.begin) pixels.taps.begin = p.ranges[row].begin;
      if (p.ranges[row].end > pixels.taps.end) pixels.taps.end = p.ranges[row].end;
      if (row * p.columns + column + kL > p.rows * p.columns) pixels.whole = false;
      column += kL;
      if (column >= p.columns) {
        column = 0;
        ++row;
      }
    }
    run_tile<S, kRows>(p, weights, pixels, bias, channels);
  }
}

/// One block of channels of one source; the register tile fits the block.
template <class S>
void run_channels(const Problem<S>& p, const Accumulator<S>* source, int64_t block, S* out) {
  const int64_t first = block * p.block_rows();
  if (first >= p.channels) return;
  S* to = out + first * p.out_plane;
  switch (p.block_rows()) {
    case 1:
      return run_block<S, 1>(p, source, first, to);
    case 2:
      return run_block<S, 2>(p, source, first, to);
    case 3:
      return run_block<S, 3>(p, source, first, to);
    case 4:
      return run_block<S, 4>(p, source, first, to);
    case 5:
      return run_block<S, 5>(p, source, first, to);
    case 6:
      return run_block<S, 6>(p, source, first, to);
    case 7:
      return run_block < S, kMaxRows == 8 ? 7 : 6 > (p, source, first, to);
    default:
      return run_block<S, kMaxRows>(p, source, first, to);
  }
}

/// Packs a block of channels for the taps of some kernel rows and columns: kernel rows row0, row0 + row_step …,
/// then `inner` channels of the source, then kernel columns likewise. Element (channel, inner, i, j) lies at
/// from[channel * channel_stride + inner * inner_stride + i * kw + j].
template <class T, class S>
void pack_block(T* to, const S* from, const ConvShape& s, const int64_t* kernel_rows, int64_t n_rows,
                const int64_t* kernel_columns, int64_t n_columns, int64_t inner, int64_t inner_stride,
                int64_t channels, int64_t channel_stride, int64_t block_rows) {
  for (int64_t a = 0; a < n_rows; ++a)
    for (int64_t c = 0; c < inner; ++c)
      for (int64_t b = 0; b < n_columns; ++b, to += block_rows) {
        const S* at = from + c * inner_stride + kernel_rows[a] * s.kw + kernel_columns[b];
        for (int64_t r = 0; r < channels; ++r) to[r] = static_cast<T>(at[r * channel_stride]);
        for (int64_t r = channels; r < block_rows; ++r) to[r] = T(0);
      }
}

/// Chunks of one image: its blocks of channels are spread only where there are few images.
inline int64_t channel_split(int64_t images, int64_t blocks) {
  return images >= 16 ? 1 : ceil_div(16, images) < blocks ? ceil_div(16, images) : blocks;
}

}  // namespace tandem::cpu::TD_ISA
