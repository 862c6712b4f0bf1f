// How a kernel walks over strided buffers: the axes that all operands share, merged where possible, with
// divisions turned into multiplications. Indices fit 31 bits; larger tensors are cut into pieces on the host.
#pragma once

#include <cstdint>

#include "tandem/core/shape.h"

namespace tandem::cuda {

/// n / divisor for n below 2^31 by a multiplication.
struct FastDivide {
  uint32_t divisor = 1, magic = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    magic = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

/// N operands over one index space of `size` elements, row-major.
template <int N>
struct Layout {
  uint32_t size = 0;
  int rank = 1;
  FastDivide sizes[kMaxRank];
  int64_t strides[N][kMaxRank] = {};

  /// True where element i of every operand lies at i · strides[·][0].
  bool is_flat() const { return rank == 1; }

  __device__ __forceinline__ void offsets(uint32_t i, int64_t (&out)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] = 0;
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const uint32_t q = sizes[d].divide(i);
      const uint32_t r = i - q * sizes[d].divisor;
      i = q;
#pragma unroll
      for (int n = 0; n < N; ++n) out[n] += static_cast<int64_t>(r) * strides[n][d];
    }
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += static_cast<int64_t>(i) * strides[n][0];
  }
  __device__ __forceinline__ int64_t offset(uint32_t i) const {
    int64_t out[N];
    offsets(i, out);
    return out[0];
  }
};

/// Merges axes and prepares the divisions. The number of elements must be below 2^31 and not 0.
template <int N>
Layout<N> make_layout(int rank, const int64_t* shape, const int64_t* const (&strides)[N]) {
  Layout<N> layout;
  int64_t sizes[kMaxRank];
  int used = 0;
  for (int d = 0; d < rank; ++d) {
    if (shape[d] == 1) continue;
    bool merges = used > 0;
    for (int n = 0; n < N && merges; ++n) merges = layout.strides[n][used - 1] == strides[n][d] * shape[d];
    if (!merges) {
      sizes[used] = 1;
      ++used;
    }
    sizes[used - 1] *= shape[d];
    for (int n = 0; n < N; ++n) layout.strides[n][used - 1] = strides[n][d];
  }
  if (used == 0) sizes[used++] = 1;
  layout.rank = used;
  int64_t size = 1;
  for (int d = 0; d < used; ++d) {
    layout.sizes[d] = FastDivide(static_cast<uint32_t>(sizes[d]));
    size *= sizes[d];
  }
  layout.size = static_cast<uint32_t>(size);
  return layout;
}

/// Calls f(layout, offsets) for pieces of at most 2^30 elements that together cover the index space; offsets
/// are to be added to the operands' pointers, in elements. Does nothing for an empty space.
template <int N, class F>
void in_pieces(int rank, const int64_t* shape, const int64_t* const (&strides)[N], const F& f) {
  int64_t sizes[kMaxRank];
  int64_t total = 1;
  for (int d = 0; d < rank; ++d) {
    sizes[d] = shape[d];
    total *= shape[d];
  }
  if (total == 0) return;
  const auto run = [&](auto&& self, const int64_t(&base)[N], int64_t count) -> void {
    if (count <= int64_t{1} << 30) {
      f(make_layout<N>(rank, sizes, strides), base);
      return;
    }
    int axis = 0;
    for (int d = 1; d < rank; ++d)
      if (sizes[d] > sizes[axis]) axis = d;
    const int64_t whole = sizes[axis], half = whole / 2;
    int64_t second[N];
    for (int n = 0; n < N; ++n) second[n] = base[n] + half * strides[n][axis];
    sizes[axis] = half;
    self(self, base, count / whole * half);
    sizes[axis] = whole - half;
    self(self, second, count / whole * (whole - half));
    sizes[axis] = whole;
  };
  const int64_t zero[N] = {};
  run(run, zero, total);
}

}  // namespace tandem::cuda
