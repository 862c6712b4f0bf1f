// "thin": products of a few vectors with a large matrix (inference on one sample, one output column). The matrix is
// read once, straight through, and never packed: by dot products where k is its adjacent axis, by sums of
// scaled rows where the other axis is. k goes to the lanes of a 16-byte vector in turn, which are folded at the end of a
// block of k. gemm_in_place() reads the matrix by rows too, but with one chain a block, as gemm_panels does.
#include <algorithm>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int kFew = 4;              // vectors at most, where sums are taken in lanes
constexpr int kFewRows = 8;          // where they are chains
constexpr int64_t kGrain = 1 << 15;  // elements of the matrix that a chunk reads, about
constexpr int64_t kStripe = 256;  // columns that are summed together, in pieces that the first cache holds;
constexpr int64_t kNarrowStripe = 64;  // where there are few of them, so that there is work for more threads
constexpr int64_t kPage = 4096;   // rows that are a multiple of it apart crowd into few places of the cache
constexpr int64_t kShallow = 16;  // k from which lanes are worth their folding

template <class T>
inline constexpr int kSumLanes = 16 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int64_t kSumBlock = kLongestBlock* kSumLanes<T>;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

// ---- dot products -----------------------------------------------------------------------------------------

constexpr int kLines = 4;  // at once

/// A vector of 16 bytes at every level, so that the lanes are the same everywhere.
template <class T>
struct ShortVec {
  typedef T type __attribute__((vector_size(16)));
  typedef T unaligned __attribute__((vector_size(16), aligned(alignof(T)), may_alias));

  /// Which lanes are not before `first`.
  [[gnu::always_inline]] static auto lanes_from(int64_t first) {
    if constexpr (sizeof(T) == 4)
      return type{0, 1, 2, 3} >= static_cast<T>(first);
    else
      return type{0, 1} >= static_cast<T>(first);
  }

  [[gnu::always_inline]] static type load(const T* p) { return *reinterpret_cast<const unaligned*>(p); }
  [[gnu::always_inline]] static type fma(type a, type b, type c) {
#if defined(__FMA__)
    if constexpr (sizeof(T) == 4)
      return _mm_fmadd_ps(a, b, c);
    else
      return _mm_fmadd_pd(a, b, c);
#elif defined(__ARM_NEON)
    return TD_ISA::fma(a, b, c);
#else
    return a * b + c;
#endif
  }
};

/// The products of kVectors vectors, k apart, with kLines lines over one block of k: out[v * kLines + j].
/// Element p of a block goes to lane p % kSumLanes, the rest to the last lanes; by_rows sums in the same lanes and
/// folds them alike. So the bits do not depend on how the matrix lies.
template <class T, int kVectors>
void dot_lines(const T* x, int64_t k, const T* const* lines, int64_t begin, int64_t end, T* out) {
  using V = ShortVec<T>;
  constexpr int kL = kSumLanes<T>, kSteps = 4;
  typename V::type sums[kVectors][kLines] = {};
  int64_t p = begin;
  for (; p + kSteps * kL <= end; p += kSteps * kL) {
    typename V::type xs[kVectors][kSteps];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
      for (int s = 0; s < kSteps; ++s) xs[v][s] = V::load(x + v * k + p + s * kL);
#pragma GCC unroll 16
    for (int j = 0; j < kLines; ++j)
#pragma GCC unroll 16
      for (int s = 0; s < kSteps; ++s) {
        const typename V::type y = V::load(lines[j] + p + s * kL);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[v][j] = V::fma(xs[v][s], y, sums[v][j]);
      }
  }
  for (; p < end; p += kL) {
    // What is left of k goes to the last lanes: a vector that ends there holds it so.
    const int64_t at = p + kL <= end ? p : end - kL;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
      for (int j = 0; j < kLines; ++j) {
        const typename V::type sum = V::fma(V::load(x + v * k + at), V::load(lines[j] + at), sums[v][j]);
        sums[v][j] = V::lanes_from(p - at) ? sum : sums[v][j];
      }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
    for (int j = 0; j < kLines; ++j) {
      const typename V::type sum = sums[v][j];
      T total;
      if constexpr (kL == 4)
        total = (sum[0] + sum[2]) + (sum[1] + sum[3]);
      else
        total = sum[0] + sum[1];
      out[v * kLines + j] = begin ? out[v * kLines + j] + total : total;
    }
}

/// The matrix's lines lie with k adjacent, or are copied to lie so.
template <class T>
void by_dots(const Thin<T>& p, const T* vectors) {
  parallel_ranges(
      p.lines, ceil_div(kGrain / (p.k + 1) + 1, kLines) * kLines, [&](int64_t begin, int64_t end) {
        const T* lines[kLines];
        T* copy = p.matrix.column != 1 ? scratch_of<T>(ScratchSlot::gemm_b, kLines * p.k) : nullptr;
        for (int64_t j = begin; j < end; j += kLines) {
          for (int64_t i = 0; i < kLines; ++i) {  // beyond the end the last line again, for nothing
            const T* line = p.matrix.data + (j + i < end ? j + i : end - 1) * p.matrix.row;
            lines[i] = copy ? copy + i * p.k : line;
            if (copy)
              for (int64_t q = 0; q < p.k; ++q) copy[i * p.k + q] = line[q * p.matrix.column];
          }
          for (int64_t v = 0; v < p.vectors; v += 2) {
            const bool two = v + 1 < p.vectors;
            T out[2 * kLines] = {};
            for (int64_t k0 = 0; k0 < p.k; k0 += kSumBlock<T>)
              (two ? dot_lines<T, 2> : dot_lines<T, 1>)(vectors + v * p.k, p.k, lines, k0,
                                                        std::min(k0 + kSumBlock<T>, p.k), out);
            for (int64_t i = 0; i < kLines && j + i < end; ++i) {
              p.put(v, j + i, out[i]);
              if (two) p.put(v + 1, j + i, out[kLines + i]);
            }
          }
        }
      });
}

template <int kCount>
using Count = std::integral_constant<int, kCount>;

// ---- sums of rows -----------------------------------------------------------------------------------------

/// sums[v][r % kSums][column] += x[v][r] · rows[r][column] for kRows rows in order. Sums of adjacent lanes are `width` apart,
/// those of adjacent vectors `vector_step`. The last vector of columns begins at `last` where it would not be whole.
template <class T, int kSums, int kVectors, int kRows>
[[gnu::noinline]] void add_rows(const T* x, int64_t k, const T* rows, int64_t step, int64_t last, T* sums,
                                int64_t width, int64_t vector_step, int64_t count) {
  constexpr int kL = kLanes<T>;
  // Sixteen factors are kept as lanes of vectors where the instruction takes one of these.
  constexpr bool kByLane = kRows == 16 && kVectorRegisters == 32 && kVectorBytes == 16;
  constexpr int kEach = kByLane ? kL : 1;
  Vec<T> factors[kVectors][kRows / kEach];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += kEach)
      factors[v][r / kEach] = kByLane ? load(x + v * k + r) : splat<T>(x[v * k + r]);
  const auto piece = [&](int64_t j, int64_t to) __attribute__((always_inline)) {
    Vec<T> at[kVectors][kSums];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
      for (int l = 0; l < kSums; ++l) at[v][l] = load(sums + v * vector_step + l * width + to);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> row = load(rows + r * step + j);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const Vec<T> factor = kByLane ? splat<T>(factors[v][r / kEach][r % kEach]) : factors[v][r / kEach];
        at[v][r % kSums] = fma(row, factor, at[v][r % kSums]);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 16
      for (int l = 0; l < kSums; ++l) store(sums + v * vector_step + l * width + to, at[v][l]);
  };
  int64_t j = 0;
  for (; j + kL <= count; j += kL) piece(j, j);
  if (j < count) piece(last, j);
}

constexpr int kTogether = 4;  // vectors of columns in registers

/// out[j] (+)= the sum over rows k0 … end of x · rows, in kSums lanes, for kTogether vectors of columns. For registers that
/// hold a cache line: of shorter ones so few columns would be read of each row that memory is slow.
template <class T, int kSums>
void add_columns(const T* x, const T* rows, int64_t step, int64_t k0, int64_t end, T* out) {
  constexpr int kL = kLanes<T>;
  Vec<T> sums[kSums][kTogether] = {};
  const auto add = [&](int64_t q, int lane) __attribute__((always_inline)) {
    const Vec<T> factor = splat<T>(x[q]);
#pragma GCC unroll 16
    for (int v = 0; v < kTogether; ++v)
      sums[lane][v] = fma(load(rows + q * step + v * kL), factor, sums[lane][v]);
  };
  int64_t q = k0;
  for (; q + kSums <= end; q += kSums)
#pragma GCC unroll 16
    for (int lane = 0; lane < kSums; ++lane) add(q + lane, lane);
#pragma GCC unroll 16
  for (int lane = 0; lane < kSums; ++lane)  // the rest goes to the last lanes
    if (end - kSums + lane >= q) add(end - kSums + lane, lane);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      for (int v = 0; v < kTogether; ++v) sums[lane][v] += sums[lane + half][v];
  for (int v = 0; v < kTogether; ++v) {
    T* const to = out + v * kL;
    store(to, k0 ? load(to) + sums[0][v] : sums[0][v]);
  }
}

/// The matrix's lines lie side by side: element (line j, k) at data[k * column + j]; there is at least a vector of them.
/// The blocks of `depth` are summed in kSums lanes and added in order. How the columns are cut into stripes and how many
/// rows are added at once shows in no sum.
template <class T, int kSums>
void by_rows(const Thin<T>& p, const T* x, int64_t depth) {
  constexpr int kL = kLanes<T>;
  // Stripes may follow the number of threads, since no sum crosses a column.
  const int64_t share = ceil_div(p.lines, threads() * kNarrowStripe) * kNarrowStripe;
  const int64_t width = std::min(share, p.vectors <= 2 ? 2 * kStripe : kStripe);
  const bool crowded = p.matrix.column * static_cast<int64_t>(sizeof(T)) % kPage == 0;
  parallel_for(ceil_div(p.lines, width), [&](int64_t stripe) {
    const int64_t begin = stripe * width, count = p.lines - begin < width ? p.lines - begin : width;
    const int64_t last = p.lines - kL - begin, vector_step = kSums * width;
    T sums[kSums == 1 ? kFewRows * kStripe : kFew * kSums * kStripe], total[kFewRows * kStripe];
    const auto add = [&](auto lanes, auto vectors, auto rows, int64_t v, int64_t q, int64_t lane = 0) {
      add_rows<T, decltype(lanes)::value, decltype(vectors)::value, decltype(rows)::value>(
          x + v * p.k + q, p.k, p.matrix.data + q * p.matrix.column + begin, p.matrix.column, last,
          sums + v * vector_step + lane * width, width, vector_step, count);
    };
    if (kVectorBytes == 64 && p.vectors == 1 && count % (kTogether * kL) == 0) {
      for (int64_t j = 0; j < count; j += kTogether * kL) {
        for (int64_t k0 = 0; k0 < p.k; k0 += depth)
          add_columns<T, kSums>(x, p.matrix.data + begin + j, p.matrix.column, k0, std::min(k0 + depth, p.k),
                                total + j);
        for (int64_t i = j; i < j + kTogether * kL; ++i) p.put(0, begin + i, total[i]);
      }
      return;
    }
    constexpr Count<kSums> all{};
    for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
      const int64_t end = k0 + depth < p.k ? k0 + depth : p.k, whole = end - (end - k0) % kSums;
      std::fill(sums, sums + p.vectors * vector_step, T(0));
      int64_t q = k0;
      if (p.vectors == 1 && !crowded)
        for (; q + 16 <= end; q += 16) add(all, Count<1>{}, Count<16>{}, 0, q);
      if (p.vectors > 1)
        for (; q + 8 <= end; q += 8) {  // a piece of eight rows serves all vectors
          int64_t v = 0;
          for (; v + 2 <= p.vectors; v += 2) {
            if constexpr (kSums > 1) {
              add(all, Count<2>{}, Count<8>{}, v, q);
            } else {
              add(all, Count<2>{}, Count<4>{}, v, q);
              add(all, Count<2>{}, Count<4>{}, v, q + 4);
            }
          }
          for (int64_t i = 0; v < p.vectors && i < 8; i += 4) add(all, Count<1>{}, Count<4>{}, v, q + i);
        }
      for (; q + 4 <= end; q += 4)
        for (int64_t v = 0; v < p.vectors; ++v) add(all, Count<1>{}, Count<4>{}, v, q);
      for (; q < end; ++q)  // the rest goes to the last lanes
        for (int64_t v = 0; v < p.vectors; ++v)
          add(Count<1>{}, Count<1>{}, Count<1>{}, v, q, q < whole ? (q - k0) % kSums : q - (end - kSums));
      for (int64_t v = 0; v < p.vectors; ++v) {
        T* own = sums + v * vector_step;
        for (int64_t half = kSums / 2; half > 0; half /= 2)
          for (int64_t j = 0; j < half * width; ++j) own[j] += own[j + half * width];
        for (int64_t j = 0; j < width; ++j)
          total[v * width + j] = k0 ? total[v * width + j] + own[j] : own[j];
      }
    }
    // The last, partial vector was read from `last` on, so as not to pass the end of a row. Its sums lie from
    // in_place on, for columns last … of the stripe: those from in_place on are taken from there.
    const int64_t in_place = count / kL * kL;
    for (int64_t v = 0; v < p.vectors; ++v) {
      for (int64_t j = 0; j < in_place; ++j) p.put(v, begin + j, total[v * width + j]);
      for (int64_t j = in_place; j < count; ++j) p.put(v, begin + j, total[v * width + in_place + j - last]);
    }
  });
}

/// The smaller side is the vectors: rows of A, or columns of B where A is the large one.
template <class S>
Thin<S> thin_of(const GemmCall& call) {
  const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
  const Matrix<S> a = call.a.as<S>(),
                  columns{call.b.as<S>().data, call.b.column, call.b.row};  // B transposed
  const Bias<S> bias = call.bias<S>();
  S* c = static_cast<S*>(call.c);
  return m <= n ? Thin<S>{m, n, k, a, columns, c, call.leading, 1, bias.row, bias.column}
                : Thin<S>{n, m, k, columns, a, c, 1, call.leading, bias.column, bias.row};
}
/// Whether the matrix's lines lie side by side, a vector of them or more.
template <class S>
bool lies_by_rows(const Thin<S>& p) {
  return p.matrix.row == 1 && p.matrix.column != 1 && p.lines >= kLanes<S>;
}
/// The vectors one after the other, k adjacent.
template <class S>
const S* dense_vectors(const Thin<S>& p) {
  if (p.vector.column == 1 && (p.vectors == 1 || p.vector.row == p.k)) return p.vector.data;
  S* copy = scratch_of<S>(ScratchSlot::gemm_a, p.vectors * p.k);
  for (int64_t v = 0; v < p.vectors; ++v)
    for (int64_t q = 0; q < p.k; ++q)
      copy[v * p.k + q] = p.vector.data[v * p.vector.row + q * p.vector.column];
  return copy;
}

template <class S>
void run_thin(const GemmCall& call) {
  const Thin<S> p = thin_of<S>(call);
  if (lies_by_rows(p))
    by_rows<S, kSumLanes<S>>(p, dense_vectors(p), kSumBlock<S>);
  else
    by_dots(p, dense_vectors(p));
}

class ThinGemm final : public GemmImplementation {
 public:
  std::string name() const override { return "thin"; }
  const char* can(const GemmProblem& p) const override {
    if (p.m > kFew && p.n > kFew) return "it takes up to 4 rows or up to 4 columns only.";
    if (p.k < kShallow) return "it takes sums of 16 or more products only.";
    if (p.dtype != DType::f32 && p.dtype != DType::f64) return "it takes f32 and f64 only.";
    return nullptr;
  }
  bool pays(const GemmProblem& p) const override { return p.m * p.n * p.k >= kGrain; }
  void run(const GemmCall& call) const override {
    call.problem.dtype == DType::f64 ? run_thin<double>(call) : run_thin<float>(call);
  }
};

}  // namespace

const GemmImplementation& thin_gemm() {
  static constexpr ThinGemm row;
  return row;
}

template <class S>
bool gemm_in_place(const GemmCall& call) {
  if constexpr (!std::is_same_v<S, Accumulator<S>>) {
    return false;  // 16-bit elements are converted while they are packed
  } else {
    const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
    if ((m > kFewRows && n > kFewRows) || m * n * k < kGrain) return false;
    const Thin<S> p = thin_of<S>(call);
    if (!lies_by_rows(p)) return false;
    by_rows<S, 1>(p, dense_vectors(p), depth_of_block(k));
    return true;
  }
}

template bool gemm_in_place<double>(const GemmCall&);
template bool gemm_in_place<float>(const GemmCall&);
template bool gemm_in_place<BFloat16>(const GemmCall&);
template bool gemm_in_place<Float16>(const GemmCall&);

}  // namespace tandem::cpu::TD_ISA
