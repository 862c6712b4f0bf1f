// Matrix products for the CPU: C (m, n) = A (m, k) · B (k, n) [+ bias], the same bits for any number of
// threads and at any address. Operands are read panel by panel through a PanelSource, so that a convolution
// can hand over an image instead of a matrix.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/backends/cpu/thread_memory.h"
#include "tandem/core/dtype.h"
#include "tandem/core/implementations.h"

namespace tandem::cpu::TD_ISA {

/// The register tile: rows × columns sums stay in registers over a whole block of k.
template <class T>
struct Tile {
  static constexpr int rows = kVectorRegisters == 32 ? 8 : kVectorBytes == 32 ? 6 : 4;
  static constexpr int vectors = kVectorRegisters == 32 ? 3 : 2;
  static constexpr int columns = vectors * kLanes<T>;
};

/// A matrix with any strides, counted in elements.
template <class S>
struct Matrix {
  const S* data;
  int64_t row;     // from one row to the next
  int64_t column;  // from one column to the next
};

/// Where panels of an operand come from. A panel holds Tile::rows rows of A, or Tile::columns columns of B,
/// over a range of k, as [k][row or column].
template <class T>
struct PanelSource {
  /// Writes the panel that begins at row or column `first`, for k0 <= k < k0 + kc; zeros beyond the edge.
  void (*pack)(const void* context, T* to, int64_t first, int64_t k0, int64_t kc);
  const void* context;
  const T* direct = nullptr;  // where full panels already lie in memory that way: element (k = 0, first = 0),
  int64_t direct_step = 0;    // and the distance from one k to the next
};

/// Added once to the finished sums: one value per row (m of them), one per column (n), or neither.
template <class S>
struct Bias {
  const S* row = nullptr;
  const S* column = nullptr;
};

/// k is cut into equal blocks of at most kLongestBlock; an element of C is one chain of fused multiply-adds a block.
inline constexpr int64_t kLongestBlock = 512;
inline int64_t depth_of_block(int64_t k) {
  if (k <= kLongestBlock) return k;
  const int64_t blocks = (k + kLongestBlock - 1) / kLongestBlock;
  return (k + blocks - 1) / blocks;
}

/// One product. Neither strides nor addresses are part of it: bits may not depend on them.
struct GemmProblem {
  int64_t m, n, k;
  DType dtype;
  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};
/// A matrix of the problem's type, with any strides.
struct AnyMatrix {
  const void* data;
  int64_t row, column;

  template <class S>
  Matrix<S> as() const {
    return {static_cast<const S*>(data), row, column};
  }
};
struct GemmCall {
  GemmProblem problem;
  AnyMatrix a, b;
  void* c;
  int64_t leading;  // from one row of C to the next; its columns are adjacent
  const void *row_bias = nullptr, *column_bias = nullptr;

  template <class S>
  Bias<S> bias() const {
    return {static_cast<const S*>(row_bias), static_cast<const S*>(column_bias)};
  }
};
/// The list of these is in gemm_list.cpp. Sums are kept in Accumulator<S> and rounded once, after the bias.
using GemmImplementation = Implementation<GemmProblem, GemmCall>;
std::span<const GemmImplementation* const> gemm_rows();

/// A product inside another kernel, by rule. S: double, float, BFloat16, Float16.
template <class S>
void gemm(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, int64_t leading,
          Bias<S> bias = {}) {
  const GemmCall call{{m, n, k, dtype_of<S>()},
                      {a.data, a.row, a.column},
                      {b.data, b.row, b.column},
                      c,
                      leading,
                      bias.row,
                      bias.column};
  Implementations<GemmProblem, GemmCall>(gemm_rows()).by_rule(ChoiceMode::heuristic, call.problem).run(call);
}

/// Products with up to eight rows or columns, where the other operand's memory lies so that it can be read once, without
/// packing: with the bits of gemm_panels. False where it does not.
template <class S>
bool gemm_in_place(const GemmCall& call);
/// Products with rows or columns for up to two vectors, where the other operand lies with k adjacent, likewise.
template <class S>
bool gemm_narrow(const GemmCall& call);

/// Products of a size where threads that share packed panels would wait for each other's memory: each thread has a block of C,
/// or of k, and packs what it needs itself. With the bits of gemm_panels; false where the product is larger.
template <class S>
bool gemm_grid(const GemmCall& call);
/// Likewise products with rows for one tile where nothing needs packing, of any width.
template <class S>
bool gemm_one_panel(const GemmCall& call);

/// A product of operands of any make, by blocks of panels.
template <class S>
void gemm_panels(int64_t m, int64_t n, int64_t k, const PanelSource<Accumulator<S>>& a,
                 const PanelSource<Accumulator<S>>& b, S* c, int64_t leading, Bias<S> bias = {});

template <class T>
T* scratch_of(ScratchSlot slot, int64_t count) {
  return static_cast<T*>(thread_scratch(slot, static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace tandem::cpu::TD_ISA
