// Matrix products for the CPU: C (m, n) = A (m, k) · B (k, n) [+ bias], the same bits for any number of
// threads and at any address. Operands are read panel by panel through a PanelSource, so that a convolution
// can hand over an image instead of a matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/backends/cpu/thread_memory.h"

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

/// Added once to the finished sums: one value a row (m of them), one a column (n), or neither.
template <class S>
struct Bias {
  const S* row = nullptr;
  const S* column = nullptr;
};

/// k is cut into equal blocks of at most kLongestBlock; an element of C is one chain of fused multiply-adds a block.
inline constexpr int64_t kLongestBlock = 512;
inline int64_t depth_of_block(int64_t k) {
  const int64_t blocks = k > 0 ? (k + kLongestBlock - 1) / kLongestBlock : 1;
  return (k + blocks - 1) / blocks;
}

/// Sums are kept in Accumulator<S> and rounded once, after the bias. `leading` is the distance between rows of
/// C, whose columns are adjacent. S: double, float, BFloat16 (by bf16_kernel() where there is one), Float16.
template <class S>
void gemm(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, int64_t leading,
          Bias<S> bias = {});

/// Products with a few rows or a few columns, which read a large matrix once: without packing it. False where
/// the shape is none of these, or where gemm_panels is to give the same bits. gemm() asks it first.
template <class S>
bool gemm_thin(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, int64_t leading,
               Bias<S> bias);

/// The same with operands of any make.
template <class S>
void gemm_panels(int64_t m, int64_t n, int64_t k, const PanelSource<Accumulator<S>>& a,
                 const PanelSource<Accumulator<S>>& b, S* c, int64_t leading, Bias<S> bias = {});

template <class T>
T* scratch_of(ScratchSlot slot, int64_t count) {
  return static_cast<T*>(thread_scratch(slot, static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace tandem::cpu::TD_ISA
