// Products with few rows or few columns whose other operand lies with k adjacent, as the weights of a layer do: the few are packed
// as one panel, and the lines of the other operand are read where they are, once, each number for a whole vector of products. Each thread packs
// the few for itself, since what another one wrote would come from its cache line by line. Every element is one chain of fused multiply-adds a block of k, as in gemm_panels.
#include <algorithm>

#include "tandem/backends/cpu/kernels/packing.h"
#include "tandem/backends/cpu/kernels/row_products.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kSmallestPiece = 1 << 14;  // products of a number with a vector that are worth a thread
constexpr int64_t kDeepest = 1 << 16;        // k for which every thread packs a panel

template <class T>
struct Narrow {
  int64_t few, lines, k;
  Matrix<T> panel;  // (few, k)
  Matrix<T> line;   // (lines, k), k adjacent
  T* c;
  int64_t few_stride, line_stride;  // from one to the next in C
  const T *few_bias, *line_bias;
};

template <class T, int kCount>
void run(const Narrow<T>& p) {
  constexpr int kWidth = kCount * kLanes<T>, kRows = kRowsOfTile<kCount>;
  const int64_t pieces = std::clamp<int64_t>(p.lines * p.k * kCount / kSmallestPiece, 1, threads_here());
  const int64_t share = blocks_in(blocks_in(p.lines, kRows), pieces) * kRows;
  parallel_for(blocks_in(p.lines, share), [&](int64_t piece) {
    const int64_t begin = piece * share, end = std::min(begin + share, p.lines);
    T* const packed = scratch_of<T>(ScratchSlot::gemm_a, kWidth * p.k);
    pack_strided<kWidth>(packed, p.panel.data, p.panel.row, p.panel.column, p.few, p.k);
    T sums[kRows * kWidth];
    for (int64_t first = begin; first < end; first += kRows) {
      const int64_t lines = std::min<int64_t>(kRows, end - first);
      Rows<T, kCount>::run(p.line.data + first * p.line.row, p.line.row, lines, p.k, packed, sums, kWidth,
                           kLanes<T>);
      for (int64_t i = 0; i < lines; ++i) {
        T* const to = p.c + (first + i) * p.line_stride;
        const T bias = p.line_bias ? p.line_bias[first + i] : T(0);
        for (int64_t j = 0; j < p.few; ++j) {
          T x = sums[i * kWidth + j];
          if (p.line_bias) x += bias;
          if (p.few_bias) x += p.few_bias[j];
          to[j * p.few_stride] = x;
        }
      }
    }
  });
}

}  // namespace

template <class S>
bool gemm_narrow(const GemmCall& call) {
  if constexpr (!std::is_same_v<S, Accumulator<S>>) {
    return false;  // 16-bit elements are converted while they are packed
  } else {
    const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
    if (std::min(m, n) > 2 * kLanes<S> || std::max(m, n) < kRowsOfTile<1> || k == 0 || k > kDeepest)
      return false;
    const Matrix<S> a = call.a.as<S>(), b = call.b.as<S>();
    const Bias<S> bias = call.bias<S>();
    S* const c = static_cast<S*>(call.c);
    const Matrix<S> columns{b.data, b.column, b.row};
    const Narrow<S> p = m <= n ? Narrow<S>{m, n, k, a, columns, c, call.leading, 1, bias.row, bias.column}
                               : Narrow<S>{n, m, k, columns, a, c, 1, call.leading, bias.column, bias.row};
    if (p.line.column != 1) return false;
    p.few <= kLanes<S> ? run<S, 1>(p) : run<S, 2>(p);
    return true;
  }
}

template bool gemm_narrow<double>(const GemmCall&);
template bool gemm_narrow<float>(const GemmCall&);
template bool gemm_narrow<BFloat16>(const GemmCall&);
template bool gemm_narrow<Float16>(const GemmCall&);

}  // namespace tandem::cpu::TD_ISA
