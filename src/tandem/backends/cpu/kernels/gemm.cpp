// "panels": the blocked matrix product. k is cut into equal blocks; for each, both operands are packed into panels
// (unless they already lie that way), then fixed blocks of C are computed in parallel. Every element of C is
// one chain of fused multiply-adds a block of k, and the blocks are added in order: nothing depends on
// threads or addresses.
#include "tandem/backends/cpu/kernels/gemm.h"

#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kShallow = 64;            // blocks of k up to this leave the panels of B in the first cache
constexpr int64_t kBlockPanels = 16;        // a block of C is at most so many panels high and wide
constexpr int64_t kWantedBlocks = 16;       // blocks shrink until there are so many,
constexpr int64_t kSmallestBlock = 100000;  // but not below so many multiply-adds
constexpr int64_t kInPlace = 49152;         // operands up to this size are not worth packing again
constexpr int64_t kPackGrain = 16384;       // elements packed by one chunk

/// Of a >= 0. A small product is one of everything: it would spend its time on divisions.
int64_t ceil_div(int64_t a, int64_t b) { return a <= b ? a > 0 : (a + b - 1) / b; }

// ---- packing ----------------------------------------------------------------------------------------------

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

/// Element (i, k) lies at from[i * along + k * depth]; i < count <= kWidth, the rest of a panel row is zero.
template <int kWidth, class T, class S>
void pack_strided(T* to, const S* from, int64_t along, int64_t depth, int64_t count, int64_t kc) {
  if (count == kWidth && along == 1) {
    for (int64_t k = 0; k < kc; ++k)
      for (int i = 0; i < kWidth; ++i) to[k * kWidth + i] = static_cast<T>(from[k * depth + i]);
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
  for (; i < kWidth; ++i)
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

// ---- the register tile ------------------------------------------------------------------------------------

template <class T>
struct TileSums {
  Vec<T> at[Tile<T>::rows][Tile<T>::vectors];
};

/// The sum over k of a panel of A times a panel of B.
template <class T>
[[gnu::always_inline]] inline TileSums<T> multiply_panels(const T* a, int64_t a_step, const T* b,
                                                          int64_t b_step, int64_t kc) {
  constexpr int kL = kLanes<T>, kRows = Tile<T>::rows, kVectors = Tile<T>::vectors;
  TileSums<T> sums{};
#pragma GCC unroll 4
  for (int64_t k = 0; k < kc; ++k, a += a_step, b += b_step) {
    Vec<T> bv[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) bv[v] = load(b + v * kL);
#if defined(__ARM_NEON)
    Vec<T> av[kRows / kL];
#pragma GCC unroll 16
    for (int r = 0; r < kRows / kL; ++r) av[r] = load(a + r * kL);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v)
        sums.at[r][v] = fma(bv[v], splat<T>(av[r / kL][r % kL]), sums.at[r][v]);
#else
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> ar = splat<T>(a[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums.at[r][v] = fma(bv[v], ar, sums.at[r][v]);
    }
#endif
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
template <class S, class T = Accumulator<S>>
[[gnu::always_inline]] inline void store_tile(const TileSums<T>& sums, const Destination<S>& to, int64_t rows,
                                              int64_t columns) {
  constexpr int kL = kLanes<T>, kRows = Tile<T>::rows, kVectors = Tile<T>::vectors,
                kColumns = Tile<T>::columns;
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

template <class S, class T = Accumulator<S>>
[[gnu::noinline]] void run_tile(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t kc,
                                const Destination<S>& to, int64_t rows, int64_t columns) {
  store_tile<S>(multiply_panels<T>(a, a_step, b, b_step, kc), to, rows, columns);
}

// ---- panels of one block of k -----------------------------------------------------------------------------

/// Panels of one operand for one block of k, packed or in place.
template <class T, int kWidth>
struct Panels {
  const PanelSource<T>& source;
  int64_t size;  // rows of A or columns of B
  T* packed;
  int64_t k0, kc;

  int64_t count() const { return ceil_div(size, kWidth); }
  int64_t full() const { return size / kWidth; }
  bool in_place(int64_t panel) const { return source.direct && panel < full(); }
  const T* at(int64_t panel) const {
    return in_place(panel) ? source.direct + panel * kWidth + k0 * source.direct_step
                           : packed + panel * kWidth * kc;
  }
  int64_t step(int64_t panel) const { return in_place(panel) ? source.direct_step : kWidth; }
  void pack(int64_t panel) const {
    if (!in_place(panel)) source.pack(source.context, packed + panel * kWidth * kc, panel * kWidth, k0, kc);
  }
};

/// How many panels of A and of B make a block of C.
struct BlockShape {
  int64_t a, b;
};
template <class T>
BlockShape block_shape(int64_t a_panels, int64_t b_panels, int64_t kc) {
  BlockShape block{a_panels < kBlockPanels ? a_panels : kBlockPanels,
                   b_panels < kBlockPanels ? b_panels : kBlockPanels};
  const int64_t tile = Tile<T>::rows * Tile<T>::columns * kc;
  while (ceil_div(a_panels, block.a) * ceil_div(b_panels, block.b) < kWantedBlocks &&
         block.a * block.b * tile >= 2 * kSmallestBlock && block.a * block.b > 1)
    (block.a > block.b ? block.a : block.b) = ((block.a > block.b ? block.a : block.b) + 1) / 2;
  return block;
}

}  // namespace

/// Packing and multiplying are two parallel steps per block of k: all panels stand before any is read. A task of the
/// second step owns a block of C. The blocks of C, and with them the tiles, are cut by the sizes, but a sum would be
/// the same in any tile.
template <class S>
void gemm_panels(int64_t m, int64_t n, int64_t k, const PanelSource<Accumulator<S>>& a_source,
                 const PanelSource<Accumulator<S>>& b_source, S* c, int64_t leading, Bias<S> bias) {
  using T = Accumulator<S>;
  constexpr int kRows = Tile<T>::rows, kColumns = Tile<T>::columns;
  if (m == 0 || n == 0) return;
  const int64_t depth = depth_of_block(k), depth_blocks = k > 0 ? ceil_div(k, depth) : 1;
  const int64_t a_panels = ceil_div(m, kRows), b_panels = ceil_div(n, kColumns);
  // A panel of A is read in whole vectors: room for the last one.
  T* a_packed = scratch_of<T>(ScratchSlot::gemm_a, a_panels * kRows * depth + kLanes<T>);
  T* b_packed = scratch_of<T>(ScratchSlot::gemm_b, b_panels * kColumns * depth);
  // f32 and f64 keep the sums of earlier blocks of k in C itself. 16-bit types keep them in f32 beside it and round
  // once, after the last block.
  T* partial;
  if constexpr (std::is_same_v<S, T>)
    partial = c;
  else
    partial = depth_blocks > 1 ? scratch_of<T>(ScratchSlot::gemm_c, m * leading) : nullptr;
  const BlockShape block = block_shape<T>(a_panels, b_panels, depth);
  const int64_t blocks_down = ceil_div(a_panels, block.a), blocks_across = ceil_div(b_panels, block.b);

  for (int64_t part = 0; part < depth_blocks; ++part) {
    const int64_t k0 = part * depth, kc = k - k0 < depth ? k - k0 : depth;
    const Panels<T, kRows> a{a_source, m, a_packed, k0, kc};
    const Panels<T, kColumns> b{b_source, n, b_packed, k0, kc};

    // Panels in place need no packing, but for the last one where it is not full.
    const int64_t a_first = a_source.direct ? a.full() : 0, b_first = b_source.direct ? b.full() : 0;
    const int64_t a_grain = 1 + kPackGrain / (kRows * (kc + 1)),
                  b_grain = 1 + kPackGrain / (kColumns * (kc + 1));
    const int64_t a_chunks = ceil_div(a_panels - a_first, a_grain);
    parallel_for(a_chunks + ceil_div(b_panels - b_first, b_grain), [&](int64_t chunk) {
      if (chunk < a_chunks) {
        const int64_t begin = a_first + chunk * a_grain;
        for (int64_t p = begin; p < begin + a_grain && p < a_panels; ++p) a.pack(p);
      } else {
        const int64_t begin = b_first + (chunk - a_chunks) * b_grain;
        for (int64_t p = begin; p < begin + b_grain && p < b_panels; ++p) b.pack(p);
      }
    });

    parallel_for(blocks_down * blocks_across, [&](int64_t chunk) {
      const int64_t a_begin = chunk % blocks_down * block.a, b_begin = chunk / blocks_down * block.b;
      const int64_t a_end = a_begin + block.a < a_panels ? a_begin + block.a : a_panels;
      const int64_t b_end = b_begin + block.b < b_panels ? b_begin + block.b : b_panels;
      const auto tile = [&](int64_t p, int64_t q) {
        const int64_t i = p * kRows, j = q * kColumns, at = i * leading + j;
        const Destination<S> to{partial ? partial + at : nullptr,
                                c + at,
                                leading,
                                bias.row ? bias.row + i : nullptr,
                                bias.column ? bias.column + j : nullptr,
                                part > 0,
                                part + 1 == depth_blocks};
        run_tile<S>(a.at(p), a.step(p), b.at(q), b.step(q), kc, to, m - i < kRows ? m - i : kRows,
                    n - j < kColumns ? n - j : kColumns);
      };
      if (kc <= kShallow) {  // the time goes into C: along its rows
        for (int64_t p = a_begin; p < a_end; ++p)
          for (int64_t q = b_begin; q < b_end; ++q) tile(p, q);
      } else {
        for (int64_t q = b_begin; q < b_end; ++q)
          for (int64_t p = a_begin; p < a_end; ++p) tile(p, q);
      }
    });
  }
}

template void gemm_panels(int64_t, int64_t, int64_t, const PanelSource<double>&, const PanelSource<double>&,
                          double*, int64_t, Bias<double>);
template void gemm_panels(int64_t, int64_t, int64_t, const PanelSource<float>&, const PanelSource<float>&,
                          float*, int64_t, Bias<float>);
template void gemm_panels(int64_t, int64_t, int64_t, const PanelSource<float>&, const PanelSource<float>&,
                          BFloat16*, int64_t, Bias<BFloat16>);
template void gemm_panels(int64_t, int64_t, int64_t, const PanelSource<float>&, const PanelSource<float>&,
                          Float16*, int64_t, Bias<Float16>);

namespace {

/// An operand that is small, or read by few panels of the other, is left where it lies: packing would cost more than
/// it saves.
template <class S>
void run_panels(const GemmCall& call) {
  using T = Accumulator<S>;
  const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
  if (gemm_in_place<S>(call)) return;
  const Matrix<S> a = call.a.as<S>(), b = call.b.as<S>();
  const StridedPanels<Tile<T>::rows, S> a_panels{a.data, a.row, a.column, m};
  const StridedPanels<Tile<T>::columns, S> b_panels{b.data, b.column, b.row, n};
  gemm_panels<S>(m, n, k, a_panels.source(m * k <= kInPlace || n <= 2 * Tile<T>::columns),
                 b_panels.source(n * k <= kInPlace || m <= 2 * Tile<T>::rows), static_cast<S*>(call.c),
                 call.leading, call.bias<S>());
}

class PanelsGemm final : public GemmImplementation {
 public:
  std::string name() const override { return "panels"; }
  const char* can(const GemmProblem& p) const override {
    return is_floating(p.dtype) ? nullptr : "it takes floating types only.";
  }
  bool is_fixed() const override { return true; }
  void run(const GemmCall& call) const override {
    visit_floating(call.problem.dtype, [&](auto zero) { run_panels<decltype(zero)>(call); });
  }
};

}  // namespace

const GemmImplementation& panels_gemm() {
  static constexpr PanelsGemm row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
