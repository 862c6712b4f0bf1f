// "panels": the blocked matrix product. k is cut into equal blocks, both operands are packed into panels
// (unless they already lie that way), and fixed blocks of C are computed in parallel. Every element of C is
// one chain of fused multiply-adds a block of k, and the blocks are added in order: nothing depends on
// threads or addresses.
#include "tandem/backends/cpu/kernels/gemm.h"

#include "tandem/backends/cpu/kernels/gemm_tile.h"
#include "tandem/backends/cpu/kernels/packing.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kShallow = 64;            // blocks of k up to this leave the panels of B in the first cache
constexpr int64_t kBlockPanels = 16;        // a block of C is at most so many panels high and wide
constexpr int64_t kWantedBlocks = 16;       // blocks shrink until there are so many,
constexpr int64_t kSmallestBlock = 100000;  // but not below so many multiply-adds
constexpr int64_t kInPlace = 49152;         // operands up to this size are not worth packing again
constexpr int64_t kPackGrain = 16384;       // elements packed by one chunk
constexpr int64_t kPackedRoom = 5 << 19;    // elements up to which all blocks of k are packed at once
constexpr int64_t kSumsRoom = 1 << 20;      // sums of blocks of k that are computed side by side

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
  void pack(int64_t begin, int64_t end) const {
    for (int64_t panel = begin; panel < end && panel < count(); ++panel)
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
  // As even as can be: threads would wait for each other where the last blocks are small.
  return {ceil_div(a_panels, ceil_div(a_panels, block.a)), ceil_div(b_panels, ceil_div(b_panels, block.b))};
}

/// Blocks of C, each with all panels that it needs, are computed in parallel. Panels that one block alone reads are packed by
/// who computes it; all others stand before any block is begun. Where there are few blocks of C, those of k are computed in parallel, too,
/// and added up afterwards. How C and the work are cut shows in no sum.
template <class S>
class BlockedGemm {
 public:
  using T = Accumulator<S>;
  static constexpr int kRows = Tile<T>::rows, kColumns = Tile<T>::columns;

  BlockedGemm(int64_t m, int64_t n, int64_t k, const PanelSource<T>& a, const PanelSource<T>& b, S* c,
              int64_t leading, Bias<S> bias)
      : m_(m),
        n_(n),
        k_(k),
        a_source_(a),
        b_source_(b),
        sums_(m, n, parts_, side_by_side_, c, leading, bias) {
    // A panel of A is read in whole vectors: room for the last one.
    a_packed_ = scratch_of<T>(ScratchSlot::gemm_a, a_panels_ * kRows * depth_ * parts_at_once_ + kLanes<T>);
    b_packed_ = scratch_of<T>(ScratchSlot::gemm_b, b_panels_ * kColumns * depth_ * parts_at_once_);
  }

  void run() const {
    for (int64_t first = 0; first < parts_; first += parts_at_once_) {
      pack_shared(first);
      if (side_by_side_) {
        parallel_for(blocks_ * parts_, [&](int64_t task) { multiply(task % blocks_, task / blocks_); });
      } else {
        parallel_for(blocks_, [&](int64_t block) {
          for (int64_t part = first; part < first + parts_at_once_; ++part) multiply(block, part);
        });
      }
    }
    sums_.finish();
  }

 private:
  int64_t first_k(int64_t part) const { return part * depth_; }
  int64_t depth_of(int64_t part) const { return k_ - first_k(part) < depth_ ? k_ - first_k(part) : depth_; }
  Panels<T, kRows> a_panels(int64_t part) const {
    return {a_source_, m_, a_packed_ + part % parts_at_once_ * a_panels_ * kRows * depth_, first_k(part),
            depth_of(part)};
  }
  Panels<T, kColumns> b_panels(int64_t part) const {
    return {b_source_, n_, b_packed_ + part % parts_at_once_ * b_panels_ * kColumns * depth_, first_k(part),
            depth_of(part)};
  }
  bool owns_a() const { return across_ == 1; }
  bool owns_b() const { return down_ == 1; }

  /// What more than one block reads. Panels in place need no packing, but for the last one where it is not full.
  void pack_shared(int64_t first) const {
    const int64_t a_first = owns_a() ? a_panels_ : a_source_.direct ? m_ / kRows : 0;
    const int64_t b_first = owns_b() ? b_panels_ : b_source_.direct ? n_ / kColumns : 0;
    const int64_t a_grain = 1 + kPackGrain / (kRows * (depth_ + 1)),
                  b_grain = 1 + kPackGrain / (kColumns * (depth_ + 1));
    const int64_t a_chunks = ceil_div(a_panels_ - a_first, a_grain),
                  chunks = a_chunks + ceil_div(b_panels_ - b_first, b_grain);
    parallel_for(chunks * parts_at_once_, [&](int64_t task) {
      const int64_t part = first + task / chunks, chunk = task % chunks;
      if (chunk < a_chunks) {
        const int64_t begin = a_first + chunk * a_grain;
        a_panels(part).pack(begin, begin + a_grain);
      } else {
        const int64_t begin = b_first + (chunk - a_chunks) * b_grain;
        b_panels(part).pack(begin, begin + b_grain);
      }
    });
  }

  void multiply(int64_t block, int64_t part) const {
    const int64_t a_begin = block % down_ * block_.a, b_begin = block / down_ * block_.b;
    const int64_t a_end = a_begin + block_.a < a_panels_ ? a_begin + block_.a : a_panels_;
    const int64_t b_end = b_begin + block_.b < b_panels_ ? b_begin + block_.b : b_panels_;
    const Panels<T, kRows> a = a_panels(part);
    const Panels<T, kColumns> b = b_panels(part);
    if (owns_a()) a.pack(a_begin, a_end);
    if (owns_b()) b.pack(b_begin, b_end);
    const auto tile = [&](int64_t p, int64_t q) {
      run_tile<S>({a.at(p), 1, a.step(p)}, b.at(q), b.step(q), a.kc, sums_.at(p * kRows, q * kColumns, part),
                  m_ - p * kRows < kRows ? m_ - p * kRows : kRows,
                  n_ - q * kColumns < kColumns ? n_ - q * kColumns : kColumns);
    };
    if (a.kc <= kShallow) {  // the time goes into C: along its rows
      for (int64_t p = a_begin; p < a_end; ++p)
        for (int64_t q = b_begin; q < b_end; ++q) tile(p, q);
    } else {
      for (int64_t q = b_begin; q < b_end; ++q)
        for (int64_t p = a_begin; p < a_end; ++p) tile(p, q);
    }
  }

  const int64_t m_, n_, k_;
  const PanelSource<T>&a_source_, &b_source_;
  const int64_t depth_ = depth_of_block(k_), parts_ = k_ > 0 ? ceil_div(k_, depth_) : 1;
  const int64_t a_panels_ = ceil_div(m_, kRows), b_panels_ = ceil_div(n_, kColumns);
  const int64_t parts_at_once_ =
      (a_panels_ * kRows + b_panels_ * kColumns) * depth_ * parts_ <= kPackedRoom ? parts_ : 1;
  const BlockShape block_ = block_shape<T>(a_panels_, b_panels_, depth_);
  const int64_t down_ = ceil_div(a_panels_, block_.a), across_ = ceil_div(b_panels_, block_.b),
                blocks_ = down_ * across_;
  const bool side_by_side_ =  // blocks of k are
      parts_ > 1 && parts_at_once_ == parts_&& blocks_ < kWantedBlocks&& m_* n_* parts_ <= kSumsRoom;
  const PartialSums<S> sums_;
  T *a_packed_, *b_packed_;
};

}  // namespace

template <class S>
void gemm_panels(int64_t m, int64_t n, int64_t k, const PanelSource<Accumulator<S>>& a,
                 const PanelSource<Accumulator<S>>& b, S* c, int64_t leading, Bias<S> bias) {
  if (m > 0 && n > 0) BlockedGemm<S>(m, n, k, a, b, c, leading, bias).run();
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
  if (gemm_narrow<S>(call) || gemm_one_panel<S>(call) || gemm_in_place<S>(call) || gemm_grid<S>(call)) return;
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
