// Products of a few vectors with a large matrix (inference on one sample, one output column). The matrix is
// read once, straight through, and never packed: by dot products where k is its adjacent axis, by sums of
// scaled rows where the other axis is.
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int kFew = 4;              // vectors at most, where dot products are formed
constexpr int kFewRows = 8;          // where rows are added up
constexpr int64_t kGrain = 1 << 15;  // elements of the matrix that a chunk reads, about
constexpr int64_t kStripe = 256;  // columns that are summed together, in pieces that the first cache holds;
constexpr int64_t kNarrowStripe = 64;  // where there are few of them, so that there is work for more threads

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

template <int kCount>
using Count = std::integral_constant<int, kCount>;

/// out[v] += x[v][r] · row r, for kRows rows in order; x and out are k and kStripe apart from one vector to the next.
template <class T, int kVectors, int kRows>
void add_rows(const T* x, int64_t k, const T* rows, int64_t step, T* out, int64_t count) {
  constexpr int kL = kLanes<T>;
  Vec<T> factors[kVectors][kRows];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) factors[v][r] = splat<T>(x[v * k + r]);
  int64_t j = 0;
  for (; j + kL <= count; j += kL) {
    Vec<T> sums[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[v] = load(out + v * kStripe + j);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> row = load(rows + r * step + j);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[v] = fma(factors[v][r], row, sums[v]);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(out + v * kStripe + j, sums[v]);
  }
  for (; j < count; ++j)  // lane by lane, rounded the same way
    for (int v = 0; v < kVectors; ++v) {
      Vec<T> sum = splat<T>(out[v * kStripe + j]);
      for (int r = 0; r < kRows; ++r) sum = fma(factors[v][r], splat<T>(rows[r * step + j]), sum);
      out[v * kStripe + j] = sum[0];
    }
}

/// The matrix's lines lie side by side: element (line j, k) at data[k * column + j]. The sums are those of gemm_panels:
/// one chain a block of k, and the blocks added in order.
template <class T>
void by_rows(const Thin<T>& p, const T* x) {
  const int64_t width = p.lines >= 4 * kStripe ? kStripe : kNarrowStripe;
  const int64_t depth = depth_of_block(p.k);
  parallel_for((p.lines + width - 1) / width, [&](int64_t stripe) {
    const int64_t begin = stripe * width, count = p.lines - begin < width ? p.lines - begin : width;
    T out[kFewRows * kStripe], total[kFewRows * kStripe];
    const auto add = [&](auto rows, int64_t v, auto vectors, int64_t q) {
      add_rows<T, decltype(vectors)::value, decltype(rows)::value>(
          x + v * p.k + q, p.k, p.matrix.data + q * p.matrix.column + begin, p.matrix.column,
          out + v * kStripe, count);
    };
    for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
      const int64_t end = k0 + depth < p.k ? k0 + depth : p.k;
      for (int64_t v = 0; v < p.vectors; ++v)
        for (int64_t j = 0; j < count; ++j) out[v * kStripe + j] = T(0);
      for (int64_t q = k0; q < end;) {  // eight rows at a time, so that a piece of them serves all vectors
        const bool many = q + 8 <= end;
        int64_t v = 0;
        for (; v + 2 <= p.vectors; v += 2) {
          if (many) {
            add(Count<4>{}, v, Count<2>{}, q);
            add(Count<4>{}, v, Count<2>{}, q + 4);
          } else {
            add(Count<1>{}, v, Count<2>{}, q);
          }
        }
        if (v < p.vectors) {
          if (many)
            add(Count<8>{}, v, Count<1>{}, q);
          else
            add(Count<1>{}, v, Count<1>{}, q);
        }
        q += many ? 8 : 1;
      }
      for (int64_t v = 0; v < p.vectors; ++v)
        for (int64_t j = v * kStripe; j < v * kStripe + count; ++j)
          total[j] = k0 ? total[j] + out[j] : out[j];
    }
    for (int64_t v = 0; v < p.vectors; ++v)
      for (int64_t j = 0; j < count; ++j) p.put(v, begin + j, total[v * kStripe + j]);
  });
}

}  // namespace

template <class S>
bool gemm_thin(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, int64_t leading,
               Bias<S> bias) {
  if constexpr (!std::is_same_v<S, Accumulator<S>>) {
    return false;  // 16-bit elements are converted while they are packed
  } else {
    if ((m > kFewRows && n > kFewRows) || m * n * k < kGrain) return false;
    const Matrix<S> columns{b.data, b.column, b.row};  // B transposed
    const Thin<S> p = m <= n ? Thin<S>{m, n, k, a, columns, c, leading, 1, bias.row, bias.column}
                             : Thin<S>{n, m, k, columns, a, c, 1, leading, bias.column, bias.row};
    const bool dots = p.matrix.column == 1;
    if (dots ? p.vectors > kFew : p.matrix.row != 1) return false;
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
