// Products of middle size: C, or the blocks of k, are cut into as many pieces as there are threads, and a piece's panels are read where
// they lie or packed by the thread that computes it, into memory of its own. Packed panels that threads share would have to
// go from one processor's cache to the others' at every call, which takes longer than packing them twice. How the
// product is cut may follow the number of threads: every element of C is one chain a block of k, as in gemm_panels.
#include <algorithm>

#include "tandem/backends/cpu/kernels/gemm_tile.h"
#include "tandem/backends/cpu/kernels/packing.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kLargest = 600000;         // elements of A and B: beyond this panels are worth sharing
constexpr int64_t kLargestResult = 1 << 20;  // of C: a larger one is written along its rows
constexpr int64_t kSmallestPiece = 200000;   // multiply-adds that are worth a thread
constexpr int64_t kInPlace = 49152;          // an operand up to this size is not worth packing,
constexpr int64_t kFewPanels = 4;            // nor one that so few panels of the other read
constexpr int64_t kFewestRows = 5;           // of a panel of A that fill enough of a tile
constexpr int64_t kDeepest = 1024;           // rows of B that are read across: each is a page of memory
// Rows of A are read in place where an instruction takes a factor for all lanes from memory.
#if defined(__ARM_NEON)
constexpr bool kByRows = false;
#else
constexpr bool kByRows = true;
#endif

template <class S>
class Grid {
 public:
  using T = Accumulator<S>;
  static constexpr int kRows = Tile<T>::rows, kColumns = Tile<T>::columns;

  explicit Grid(const GemmCall& call)
      : m_(call.problem.m),
        n_(call.problem.n),
        k_(call.problem.k),
        a_(call.a.as<S>()),
        b_(call.b.as<S>()),
        cut_(cut()),
        sums_(m_, n_, parts_, cut_.splits > 1, static_cast<S*>(call.c), call.leading, call.bias<S>()) {}

  void run() const {
    parallel_for(cut_.down * cut_.across * cut_.splits, [&](int64_t piece) { compute(piece); });
    sums_.finish();
  }

 private:
  /// Into down × across blocks of C, each `high` panels of A times `wide` panels of B, and `splits` of k.
  struct Cut {
    int64_t splits = 1, down = 1, across = 1, high = 0, wide = 0;
  };

  /// The one with the least time for the slowest piece, roughly, counted in multiply-adds of a vector.
  Cut cut() const {
    const int64_t tile = kRows * Tile<T>::vectors * depth_;
    const int64_t most = std::clamp<int64_t>(
        a_panels_ * b_panels_ * parts_ * kRows * kColumns * depth_ / kSmallestPiece, 1, threads_here());
    Cut best;
    int64_t least = -1;
    const auto look_at = [&](int64_t splits, int64_t across) {
      const int64_t down = std::clamp<int64_t>(most / (across * splits), 1, a_panels_);
      const int64_t high = ceil_div(a_panels_, down), wide = ceil_div(b_panels_, across);
      const int64_t rounds = ceil_div(down * across * splits, most);
      const int64_t packed = (a_in_place(wide) ? 0 : high * kRows) + (b_in_place(high) ? 0 : wide * kColumns);
      const int64_t time = rounds * ceil_div(parts_, splits) * (high * wide * tile + packed * depth_) +
                           (splits > 1 ? m_ * n_ * parts_ / 2 : 0);
      if (least >= 0 && time >= least) return;
      least = time;
      best = {splits, ceil_div(a_panels_, high), ceil_div(b_panels_, wide), high, wide};
    };
    for (int64_t across = 1; across <= most && across <= b_panels_; ++across) {
      look_at(1, across);
      if (parts_ > 1) look_at(parts_, across);
    }
    return best;
  }

  bool a_by_rows() const { return kByRows && std::is_same_v<S, T> && a_.column == 1; }
  bool a_in_place(int64_t wide) const {
    return a_by_rows() ||
           (std::is_same_v<S, T> && a_.row == 1 && (m_ * k_ <= kInPlace || wide <= kFewPanels));
  }
  bool b_in_place(int64_t high) const {
    return std::is_same_v<S, T> && b_.column == 1 && (n_ * k_ <= kInPlace || high <= kFewPanels);
  }

  void compute(int64_t piece) const {
    const int64_t cell = piece % (cut_.down * cut_.across), split = piece / (cut_.down * cut_.across);
    const int64_t a_begin = cell % cut_.down * cut_.high, b_begin = cell / cut_.down * cut_.wide;
    const int64_t a_end = std::min(a_begin + cut_.high, a_panels_),
                  b_end = std::min(b_begin + cut_.wide, b_panels_);
    // A panel of A is read in whole vectors: room for the last one.
    T* const a_packed = scratch_of<T>(ScratchSlot::gemm_a, (a_end - a_begin) * kRows * depth_ + kLanes<T>);
    T* const b_packed = scratch_of<T>(ScratchSlot::gemm_b, (b_end - b_begin) * kColumns * depth_);
    const bool a_lies = a_in_place(cut_.wide), b_lies = b_in_place(cut_.high);
    for (int64_t part = split; part < parts_; part += cut_.splits) {
      const int64_t k0 = part * depth_, kc = std::min(depth_, k_ - k0);
      const auto rows_of = [&](int64_t p) -> TileRows<T> {
        if constexpr (std::is_same_v<S, T>)
          if (a_lies && (p + 1) * kRows <= m_)
            return {a_.data + p * kRows * a_.row + k0 * a_.column, a_by_rows() && a_.row != 1 ? a_.row : 1,
                    a_.column};
        return {a_packed + (p - a_begin) * kRows * kc, 1, kRows};
      };
      // The last panel of B may lie in place where it ends with a vector.
      const auto b_lies_at = [&](int64_t q) {
        return b_lies && ((q + 1) * kColumns <= n_ || (n_ - q * kColumns) % kLanes<T> == 0);
      };
      for (int64_t p = a_begin; p < a_end; ++p)
        if (!a_lies || (p + 1) * kRows > m_)
          pack_strided<kRows>(a_packed + (p - a_begin) * kRows * kc,
                              a_.data + p * kRows * a_.row + k0 * a_.column, a_.row, a_.column,
                              std::min<int64_t>(kRows, m_ - p * kRows), kc);
      for (int64_t q = b_begin; q < b_end; ++q) {
        T* const own = b_packed + (q - b_begin) * kColumns * kc;
        const int64_t columns = std::min<int64_t>(kColumns, n_ - q * kColumns);
        const S* const from = b_.data + q * kColumns * b_.column + k0 * b_.row;
        const T* panel = own;
        int64_t step = kColumns;
        if (!b_lies_at(q)) {
          pack_strided<kColumns>(own, from, b_.column, b_.row, columns, kc);
        } else if constexpr (std::is_same_v<S, T>) {
          panel = from;
          step = b_.row;
        }
        for (int64_t p = a_begin; p < a_end; ++p)
          run_tile<S>(rows_of(p), panel, step, kc, sums_.at(p * kRows, q * kColumns, part),
                      std::min<int64_t>(kRows, m_ - p * kRows), columns);
      }
    }
  }

  const int64_t m_, n_, k_;
  const Matrix<S> a_, b_;
  const int64_t depth_ = depth_of_block(k_), parts_ = ceil_div(k_, depth_);
  const int64_t a_panels_ = ceil_div(m_, kRows), b_panels_ = ceil_div(n_, kColumns);
  const Cut cut_;
  const PartialSums<S> sums_;
};

}  // namespace

template <class S>
bool gemm_grid(const GemmCall& call) {
  const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
  if (m == 0 || n == 0 || k == 0 || (m + n) * k > kLargest || m * n > kLargestResult) return false;
  Grid<S>(call).run();
  return true;
}

template <class S>
bool gemm_one_panel(const GemmCall& call) {
  const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
  if (!kByRows || !std::is_same_v<S, Accumulator<S>> || call.a.column != 1 || call.b.column != 1 ||
      m < kFewestRows || m > Tile<S>::rows || k > kDeepest || m * n * k < kSmallestPiece)
    return false;
  Grid<S>(call).run();
  return true;
}

#define TD_INSTANTIATE(S) \
  template bool gemm_grid<S>(const GemmCall&); \
  template bool gemm_one_panel<S>(const GemmCall&);
TD_INSTANTIATE(double)
TD_INSTANTIATE(float)
TD_INSTANTIATE(BFloat16)
TD_INSTANTIATE(Float16)
#undef TD_INSTANTIATE

}  // namespace tandem::cpu::TD_ISA
