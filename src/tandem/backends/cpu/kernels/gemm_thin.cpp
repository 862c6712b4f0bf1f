// Products of a few vectors with a large matrix (inference on one sample, one output column). The matrix is
// read once, straight through, and never packed: by dot products where k is its adjacent axis, by sums of
// scaled rows where the other axis is.
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int kFew = 4;              // vectors at most
constexpr int64_t kGrain = 1 << 15;  // elements of the matrix that a chunk reads, about
constexpr int kStripe =
    8 * kVectorBytes / 4;  // columns that are summed together (a multiple of all lane counts)

/// The problem with its roles made equal: out(v, j) at c[v * vector_stride + j * matrix_stride] is the product
/// of vector v with line j of the matrix.
template <class S>
struct Thin {
  int64_t vectors, lines, k;
  Matrix<S> vector;  // (vectors, k)
  Matrix<S> matrix;  // (lines, k)
  S* c;
  int64_t vector_stride, matrix_stride;
  const S* vector_bias;
  const S* line_bias;

  void put(int64_t v, int64_t j, Accumulator<S> x) const {
    if (vector_bias) x += static_cast<Accumulator<S>>(vector_bias[v]);
    if (line_bias) x += static_cast<Accumulator<S>>(line_bias[j]);
    c[v * vector_stride + j * matrix_stride] = static_cast<S>(x);
  }
};

/// kLines dot products of one vector, all with k adjacent, each in two interleaved vectors of partial sums.
template <class T, int kLines>
void dot_lines(const T* x, const T* lines, int64_t stride, int64_t k, T* out) {
  constexpr int kL = kLanes<T>;
  Vec<T> sums[kLines][2] = {};
  int64_t p = 0;
  for (; p + 2 * kL <= k; p += 2 * kL)
#pragma GCC unroll 16
    for (int j = 0; j < kLines; ++j) {
      sums[j][0] = fma(load(x + p), load(lines + j * stride + p), sums[j][0]);
      sums[j][1] = fma(load(x + p + kL), load(lines + j * stride + p + kL), sums[j][1]);
    }
#pragma GCC unroll 16
  for (int j = 0; j < kLines; ++j) {
    T total = sum<T>(sums[j][0] + sums[j][1]);
    for (int64_t q = p; q < k; ++q) total += x[q] * lines[j * stride + q];
    out[j] = total;
  }
}

/// The matrix's lines lie with k adjacent.
template <class T>
void by_dots(const Thin<T>& p, const T* vectors) {
  parallel_ranges(p.lines, 1 + kGrain / (p.k + 1), [&](int64_t begin, int64_t end) {
    T out[4];
    for (int64_t j = begin; j < end; j += 4) {
      const int64_t count = end - j < 4 ? end - j : 4;
      for (int64_t v = 0; v < p.vectors; ++v) {
        const T* line = p.matrix.data + j * p.matrix.row;
        if (count == 4)
          dot_lines<T, 4>(vectors + v * p.k, line, p.matrix.row, p.k, out);
        else
          for (int64_t i = 0; i < count; ++i)
            dot_lines<T, 1>(vectors + v * p.k, line + i * p.matrix.row, 0, p.k, out + i);
        for (int64_t i = 0; i < count; ++i) p.put(v, j + i, out[i]);
      }
    }
  });
}

/// The matrix's lines lie side by side: element (line j, k) at data[k * column + j].
template <class T>
void by_rows(const Thin<T>& p, const T* x) {
  constexpr int kL = kLanes<T>, kVectors = kStripe / kL;
  parallel_for((p.lines + kStripe - 1) / kStripe, [&](int64_t stripe) {
    const int64_t begin = stripe * kStripe, count = p.lines - begin < kStripe ? p.lines - begin : kStripe;
    const T* at = p.matrix.data + begin;
    T out[kStripe] = {};
    if (count == kStripe) {
      Vec<T> sums[kVectors] = {};
      for (int64_t q = 0; q < p.k; ++q, at += p.matrix.column)
#pragma GCC unroll 32
        for (int v = 0; v < kVectors; ++v) sums[v] = fma(splat<T>(x[q]), load(at + v * kL), sums[v]);
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) store(out + v * kL, sums[v]);
    } else {
      for (int64_t q = 0; q < p.k; ++q, at += p.matrix.column)
        for (int64_t j = 0; j < count; ++j) out[j] += x[q] * at[j];
    }
    for (int64_t j = 0; j < count; ++j) p.put(0, begin + j, out[j]);
  });
}

}  // namespace

template <class S>
bool gemm_thin(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, int64_t leading,
               Bias<S> bias) {
  if constexpr (!std::is_same_v<S, Accumulator<S>>) {
    return false;  // 16-bit elements are converted while they are packed
  } else {
    if ((m > kFew && n > kFew) || m * n * k < kGrain) return false;
    const Matrix<S> columns{b.data, b.column, b.row};  // B transposed
    const Thin<S> p = m <= kFew ? Thin<S>{m, n, k, a, columns, c, leading, 1, bias.row, bias.column}
                                : Thin<S>{n, m, k, columns, a, c, 1, leading, bias.column, bias.row};
    const bool dots = p.matrix.column == 1;
    if (!dots && (p.matrix.row != 1 || p.vectors != 1)) return false;
    S* vectors = scratch_of<S>(ScratchSlot::gemm_a, p.vectors * k);
    for (int64_t v = 0; v < p.vectors; ++v)
      for (int64_t q = 0; q < k; ++q)
        vectors[v * k + q] = p.vector.data[v * p.vector.row + q * p.vector.column];
    if (dots)
      by_dots(p, vectors);
    else
      by_rows(p, vectors);
    return true;
  }
}

template bool gemm_thin(int64_t, int64_t, int64_t, Matrix<double>, Matrix<double>, double*, int64_t,
                        Bias<double>);
template bool gemm_thin(int64_t, int64_t, int64_t, Matrix<float>, Matrix<float>, float*, int64_t,
                        Bias<float>);
template bool gemm_thin(int64_t, int64_t, int64_t, Matrix<BFloat16>, Matrix<BFloat16>, BFloat16*, int64_t,
                        Bias<BFloat16>);
template bool gemm_thin(int64_t, int64_t, int64_t, Matrix<Float16>, Matrix<Float16>, Float16*, int64_t,
                        Bias<Float16>);

}  // namespace tandem::cpu::TD_ISA
