// Packing, blocks and threads of bf16 products. k is cut into equal blocks; for each, both operands are packed into
// panels, then fixed blocks of C are computed in parallel, and the blocks of k are added in order.
#include "tandem/backends/cpu/gemm_bf16.h"

#include <algorithm>
#include <cstring>

#include "tandem/backends/cpu/thread_memory.h"
#include "tandem/core/threads.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kLongestBlock = 1024;     // of k
constexpr int64_t kBlockRows = 128;         // of a block of C, at most,
constexpr int64_t kBlockColumns = 192;      // about
constexpr int64_t kWantedBlocks = 16;       // blocks shrink until there are so many,
constexpr int64_t kSmallestBlock = 400000;  // but not below so many multiply-adds
constexpr int64_t kPackedColumns = 96;      // rows of A or columns of B that one chunk packs
constexpr int64_t kPackedDepth = 64;  // over so many k at a time, so that what it reads stays in the cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; }

template <class T>
T* scratch_of(ScratchSlot slot, int64_t count) {
  return static_cast<T*>(thread_scratch(slot, static_cast<size_t>(count) * sizeof(T)));
}

// ---- packing ----------------------------------------------------------------------------------------------

typedef uint16_t Four __attribute__((vector_size(8)));
typedef uint16_t UnalignedFour __attribute__((vector_size(8), aligned(2), may_alias));

/// to[i * kDepth + k] = from[k * step + i] for four i and kDepth or, where that is more, four k.
template <int kDepth>
[[gnu::always_inline]] inline void interleave(BFloat16* to, const BFloat16* from, int64_t step) {
  const auto row = [&](int k) -> Four { return *reinterpret_cast<const UnalignedFour*>(from + k * step); };
  const auto put = [&](int64_t at, Four v) { *reinterpret_cast<UnalignedFour*>(to + at) = v; };
  const auto low = [](Four a, Four b) { return __builtin_shuffle(a, b, Four{0, 4, 1, 5}); };
  const auto high = [](Four a, Four b) { return __builtin_shuffle(a, b, Four{2, 6, 3, 7}); };
  const Four a = row(0), b = row(1);
  if constexpr (kDepth == 2) {
    put(0, low(a, b));
    put(4, high(a, b));
  } else {
    const auto halves = [](Four x, Four y, bool second) {
      return second ? __builtin_shuffle(x, y, Four{2, 3, 6, 7}) : __builtin_shuffle(x, y, Four{0, 1, 4, 5});
    };
    const Four c = row(2), d = row(3);
    put(0, halves(low(a, b), low(c, d), false));
    put(kDepth, halves(low(a, b), low(c, d), true));
    put(2 * kDepth, halves(high(a, b), high(c, d), false));
    put(3 * kDepth, halves(high(a, b), high(c, d), true));
  }
}

/// One operand: element (i, k) lies at data[i * along + k * step]; i is a row of A or a column of B.
struct Operand {
  const BFloat16* data;
  int64_t along, step, size, k;
  int width, depth;  // of a panel
};

/// Writes k0 <= k < k0 + kc of the panel that begins at `first`, zeros beyond the edges; kc is a multiple of kDepth.
template <int kDepth>
void pack_panel(BFloat16* to, const Operand& o, int64_t first, int64_t k0, int64_t kc) {
  constexpr int kRows = kDepth == 2 ? 2 : 4;  // that interleave() takes
  const int64_t count = std::min<int64_t>(o.size - first, o.width), valid = std::min(o.k - k0, kc);
  if (count < o.width || valid < kc) std::memset(static_cast<void*>(to), 0, sizeof(*to) * o.width * kc);
  const BFloat16* from = o.data + first * o.along + k0 * o.step;
  const auto place = [&](int64_t i, int64_t k) {
    return to + k / kDepth * kDepth * o.width + i * kDepth + k % kDepth;
  };
  const auto one_by_one = [&](int64_t i, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) *place(i, k) = from[i * o.along + k * o.step];
  };
  if (o.step == 1) {
    const int64_t whole = valid / kDepth * kDepth;
    for (int64_t k = 0; k < whole; k += kDepth)
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(place(i, k), from + i * o.along + k, sizeof(*to) * kDepth);
    for (int64_t i = 0; i < count; ++i) one_by_one(i, whole, valid);
  } else if (o.along == 1) {
    const int64_t whole = valid / kRows * kRows, fours = count / 4 * 4;
    for (int64_t k = 0; k < whole; k += kRows) {
      BFloat16* row = place(0, k);
      for (int64_t i = 0; i < fours; i += 4)
        interleave<kDepth>(row + i * kDepth, from + k * o.step + i, o.step);
    }
    for (int64_t i = 0; i < count; ++i) one_by_one(i, i < fours ? whole : 0, valid);
  } else {
    for (int64_t i = 0; i < count; ++i) one_by_one(i, 0, valid);
  }
}

/// Packs `chunk` (panels_of_chunk() panels) for a block of k whose panels lie `depth` elements deep in `packed`.
int64_t panels_of_chunk(const Operand& o) { return std::max<int64_t>(1, kPackedColumns / o.width); }
void pack_chunk(BFloat16* packed, const Operand& o, int64_t chunk, int64_t k0, int64_t depth) {
  const auto pack = o.depth == 2 ? pack_panel<2> : o.depth == 4 ? pack_panel<4> : pack_panel<32>;
  const int64_t begin = chunk * panels_of_chunk(o), panels = ceil_div(o.size, o.width);
  const int64_t end = std::min(begin + panels_of_chunk(o), panels);
  for (int64_t k = 0; k < depth; k += kPackedDepth)
    for (int64_t p = begin; p < end; ++p)
      pack(packed + (p * depth + k) * o.width, o, p * o.width, k0 + k, std::min(kPackedDepth, depth - k));
}

// ---- tiles ------------------------------------------------------------------------------------------------

/// What happens to the sums of one block of k.
struct Stage {
  Bf16Destination c;
  float* partial;  // the sums of earlier blocks; the same memory as c.sums where there is one
  int64_t partial_leading;
  bool add, last;

  /// Takes the tile (rows, columns) whose corner is at (i, j); its rows are `width` apart.
  void finish(float* tile, int width, int64_t i, int64_t j, int64_t rows, int64_t columns) const {
    for (int64_t r = 0; r < rows; ++r, tile += width) {
      float* sums = partial + (i + r) * partial_leading + j;
      if (add)
        for (int64_t q = 0; q < columns; ++q) tile[q] = sums[q] + tile[q];
      if (last && c.row_bias) {
        const float bias = c.row_bias[i + r];
        for (int64_t q = 0; q < columns; ++q) tile[q] += bias;
      }
      if (last && c.column_bias)
        for (int64_t q = 0; q < columns; ++q) tile[q] += static_cast<float>(c.column_bias[j + q]);
      if (last && c.rounded) {
        BFloat16* to = c.rounded + (i + r) * c.leading + j;
        for (int64_t q = 0; q < columns; ++q) to[q] = BFloat16(tile[q]);
      } else {
        std::memcpy(sums, tile, sizeof(float) * static_cast<size_t>(columns));
      }
    }
  }
};

/// How many panels of A and of B make a block of C.
struct BlockShape {
  int64_t a, b;
};
BlockShape block_shape(const Bf16Kernel& kernel, int64_t a_panels, int64_t b_panels, int64_t depth) {
  BlockShape block{std::min(a_panels, kBlockRows / kernel.rows),
                   std::min(b_panels, kBlockColumns / kernel.columns)};
  const int64_t tile = int64_t{kernel.rows} * kernel.columns * depth;
  while (ceil_div(a_panels, block.a) * ceil_div(b_panels, block.b) < kWantedBlocks &&
         block.a * block.b * tile >= 2 * kSmallestBlock && block.a * block.b > 1) {
    int64_t& longer = block.a > block.b ? block.a : block.b;
    longer = (longer + 1) / 2;
  }
  return block;
}

}  // namespace

void gemm_bf16(const Bf16Kernel& kernel, int64_t m, int64_t n, int64_t k, const Bf16Matrix& a_matrix,
               const Bf16Matrix& b_matrix, const Bf16Destination& c) {
  if (m == 0 || n == 0) return;
  const Operand a{a_matrix.data, a_matrix.row, a_matrix.column, m, k, kernel.rows, kernel.a_depth};
  const Operand b{b_matrix.data, b_matrix.column, b_matrix.row, n, k, kernel.columns, kernel.b_depth};
  const int64_t k_blocks = std::max<int64_t>(1, ceil_div(k, kLongestBlock));
  const int64_t longest = round_up(ceil_div(k, k_blocks), kernel.k_step);
  const int64_t a_panels = ceil_div(m, kernel.rows), b_panels = ceil_div(n, kernel.columns);
  BFloat16* a_packed = scratch_of<BFloat16>(ScratchSlot::gemm_a, a_panels * kernel.rows * longest);
  BFloat16* b_packed = scratch_of<BFloat16>(ScratchSlot::gemm_b, b_panels * kernel.columns * longest);
  Stage stage{c, c.sums, c.leading, false, false};
  if (c.rounded) {
    stage.partial = k_blocks > 1 ? scratch_of<float>(ScratchSlot::gemm_c, m * n) : nullptr;
    stage.partial_leading = k_blocks > 1 ? n : 0;
  }
  const BlockShape block = block_shape(kernel, a_panels, b_panels, longest);
  const int64_t blocks_down = ceil_div(a_panels, block.a), blocks_across = ceil_div(b_panels, block.b);
  const int64_t a_chunks = ceil_div(a_panels, panels_of_chunk(a)),
                b_chunks = ceil_div(b_panels, panels_of_chunk(b));

  for (int64_t part = 0; part < k_blocks; ++part) {
    const int64_t k0 = part * longest;
    const int64_t depth = std::max<int64_t>(0, std::min(longest, round_up(k - k0, kernel.k_step)));
    stage.add = part > 0 || (c.add && c.sums);
    stage.last = part + 1 == k_blocks;
    parallel_for(a_chunks + b_chunks, [&](int64_t chunk) {
      if (chunk < a_chunks)
        pack_chunk(a_packed, a, chunk, k0, depth);
      else
        pack_chunk(b_packed, b, chunk - a_chunks, k0, depth);
    });
    parallel_for(blocks_down * blocks_across, [&](int64_t chunk) {
      const int64_t a_begin = chunk % blocks_down * block.a, b_begin = chunk / blocks_down * block.b;
      const int64_t a_end = std::min(a_begin + block.a, a_panels),
                    b_end = std::min(b_begin + block.b, b_panels);
      alignas(64) float tile[kBf16TileSize];
      if (kernel.enter) kernel.enter();
      for (int64_t q = b_begin; q < b_end; ++q)
        for (int64_t p = a_begin; p < a_end; ++p) {
          kernel.multiply(a_packed + p * kernel.rows * depth, b_packed + q * kernel.columns * depth, depth,
                          tile);
          const int64_t i = p * kernel.rows, j = q * kernel.columns;
          stage.finish(tile, kernel.columns, i, j, std::min<int64_t>(kernel.rows, m - i),
                       std::min<int64_t>(kernel.columns, n - j));
        }
      if (kernel.leave) kernel.leave();
    });
  }
}

}  // namespace tandem::cpu
