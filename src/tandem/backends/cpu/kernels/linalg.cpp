// Factorisations of f32 and f64 matrices. A single matrix is worked on in blocks, whose products (gemm) use all threads; a
// batch is spread over the threads, one matrix each. The order of arithmetic depends on the sizes only.
#include "tandem/ops/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kBlock = 64;          // columns factored before the rest is updated
constexpr int64_t kPanel = 32;          // of QR
constexpr int64_t kParallel = 1 << 16;  // elements of a step that are worth a second thread

/// x · y in two vectors of partial sums.
template <class T>
T dot(const T* x, const T* y, int64_t n) {
  constexpr int kL = kLanes<T>;
  Vec<T> even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kL <= n; i += 2 * kL) {
    even = fma(load(x + i), load(y + i), even);
    odd = fma(load(x + i + kL), load(y + i + kL), odd);
  }
  T total = sum<T>(even + odd);
  for (; i < n; ++i) total += x[i] * y[i];
  return total;
}

template <class T>
void subtract_scaled(T* y, T factor, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

/// A rectangle inside a row-major matrix.
template <class T>
struct Block {
  T* data;
  int64_t stride;
  T* row(int64_t i) const { return data + i * stride; }
  Block at(int64_t i, int64_t j) const { return {data + i * stride + j, stride}; }
  Matrix<T> plain() const { return {data, stride, 1}; }
  Matrix<T> transposed() const { return {data, 1, stride}; }
};

/// c (m, n) -= a (m, k) · b (k, n).
template <class T>
void subtract_product(Block<T> c, int64_t m, int64_t n, int64_t k, Matrix<T> a, Matrix<T> b) {
  if (m == 0 || n == 0 || k == 0) return;
  std::vector<T> product(static_cast<size_t>(m * n));
  gemm<T>(m, n, k, a, b, product.data(), n);
  parallel_ranges(m, 1 + kParallel / n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) subtract_scaled(c.row(i), T(1), product.data() + i * n, n);
  });
}

template <class T>
void transpose_into(const T* from, int64_t rows, int64_t columns, T* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

// ---- Cholesky

/// The lower triangle of a becomes L; 0, or the order of the first leading block that is not positive definite.
/// Block column by block column: what the columns before give to all rows is taken off by one product, then the
/// diagonal block is factored row by row, then the rows below it, which need nothing of each other.
template <class T>
int cholesky_in_place(T* data, int64_t n) {
  const Block<T> a{data, n};
  for (int64_t k = 0; k < n; k += kBlock) {
    const int64_t width = std::min(kBlock, n - k), end = k + width;
    subtract_product(a.at(k, k), n - k, width, k, a.at(k, 0).plain(), a.at(k, 0).transposed());
    const auto finish_row = [&](int64_t i, int64_t stop) {  // entries k … stop-1 of row i of L
      T* row = a.row(i) + k;
      for (int64_t j = k; j < stop; ++j)
        row[j - k] = (row[j - k] - dot(row, a.row(j) + k, j - k)) / a.row(j)[j];
    };
    for (int64_t i = k; i < end; ++i) {
      finish_row(i, i);
      T* row = a.row(i);
      const T rest = row[i] - dot(row + k, row + k, i - k);
      if (!(rest > T(0))) return static_cast<int>(i + 1);
      row[i] = std::sqrt(rest);
    }
    parallel_ranges(n - end, 1 + kParallel / (kBlock * kBlock), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) finish_row(end + i, end);
    });
  }
  for (int64_t i = 0; i < n; ++i) std::fill(a.row(i) + i + 1, a.row(i) + n, T(0));
  return 0;
}

// ---- LU and triangular systems

/// x (n, columns) := a⁻¹ · x for triangular a.
/// Block row by block row, in the direction in which the unknowns come out. Within a block the columns of x, which
/// need nothing of each other, are spread over the threads.
template <class T>
void solve_triangular(Block<T> a, int64_t n, bool upper, bool unit, T* x, int64_t columns) {
  const Block<T> out{x, columns};
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t begin = (upper ? blocks - 1 - step : step) * kBlock, end = std::min(begin + kBlock, n);
    if (upper)
      subtract_product(out.at(begin, 0), end - begin, columns, n - end, a.at(begin, end).plain(),
                       out.at(end, 0).plain());
    else
      subtract_product(out.at(begin, 0), end - begin, columns, begin, a.at(begin, 0).plain(), out.plain());
    const int64_t grain = 1 + kParallel / (kBlock * kBlock);
    parallel_ranges(columns, grain < 16 ? 16 : grain, [&](int64_t c0, int64_t c1) {
      for (int64_t s = 0; s < end - begin; ++s) {
        const int64_t i = upper ? end - 1 - s : begin + s;
        T* row = out.row(i) + c0;
        for (int64_t j = upper ? i + 1 : begin; j < (upper ? end : i); ++j)
          subtract_scaled(row, a.row(i)[j], out.row(j) + c0, c1 - c0);
        if (!unit)
          for (int64_t c = 0; c < c1 - c0; ++c) row[c] /= a.row(i)[i];
      }
    });
  }
}

/// a becomes L (below the diagonal, ones on it) and U of P · a; rows[i] says which row of a came to place i. Returns
/// 0 or 1 + the first column without a pivot; `odd` tells whether the permutation is.
/// The panel of kBlock columns is factored (rows are exchanged in full), then the rows of U beside it are made,
/// then the rest is updated by one product. Of equal pivots the first row wins, so that the order is determined.
template <class T>
int lu_in_place(T* data, int64_t n, std::vector<int64_t>& rows, bool& odd) {
  const Block<T> a{data, n};
  rows.resize(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  odd = false;
  int status = 0;
  for (int64_t k = 0; k < n; k += kBlock) {
    const int64_t end = std::min(k + kBlock, n);
    for (int64_t j = k; j < end; ++j) {
      int64_t pivot = j;
      for (int64_t i = j + 1; i < n; ++i)
        if (std::abs(a.row(i)[j]) > std::abs(a.row(pivot)[j])) pivot = i;
      if (pivot != j) {
        std::swap_ranges(a.row(j), a.row(j) + n, a.row(pivot));
        std::swap(rows[static_cast<size_t>(j)], rows[static_cast<size_t>(pivot)]);
        odd = !odd;
      }
      const T* top = a.row(j);
      // The column is zero from here down: nothing to eliminate, and the determinant is 0.
      if (top[j] == T(0)) {
        if (status == 0) status = static_cast<int>(j + 1);
        continue;
      }
      for (int64_t i = j + 1; i < n; ++i) {
        T* row = a.row(i);
        row[j] /= top[j];
        subtract_scaled(row + j + 1, row[j], top + j + 1, end - j - 1);
      }
    }
    parallel_ranges(n - end, 256, [&](int64_t c0, int64_t c1) {  // the rows of U beside the block
      for (int64_t i = k + 1; i < end; ++i)
        for (int64_t j = k; j < i; ++j)
          subtract_scaled(a.row(i) + end + c0, a.row(i)[j], a.row(j) + end + c0, c1 - c0);
    });
    subtract_product(a.at(end, end), n - end, n - end, end - k, a.at(end, k).plain(), a.at(k, end).plain());
  }
  return status;
}

// ---- QR

/// Turns x (n values, `stride` apart) into beta · e0 by I - tau · v · vᵀ with v[0] = 1; x[1 …] becomes v[1 …], x[0]
/// beta. LAPACK's choice of sign.
template <class T>
T reflect(T* x, int64_t n, int64_t stride) {
  // Divided by the largest number before squaring, and summed in f64: no overflow, and no loss of tiny columns.
  double largest = 0;
  for (int64_t i = 1; i < n; ++i) largest = std::max(largest, static_cast<double>(std::abs(x[i * stride])));
  if (largest == 0) return T(0);
  double squares = 0;
  const double alpha = static_cast<double>(x[0]), scale = std::max(largest, std::abs(alpha));
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i * stride]) / scale;
    squares += v * v;
  }
  const double beta = std::copysign(scale * std::sqrt(squares), -alpha);
  for (int64_t i = 1; i < n; ++i)
    x[i * stride] = static_cast<T>(static_cast<double>(x[i * stride]) / (alpha - beta));
  x[0] = static_cast<T>(beta);
  return static_cast<T>((beta - alpha) / beta);
}

/// The reflections of one panel as I - V · T · Vᵀ.
template <class T>
struct Reflections {
  int64_t rows, count;
  std::vector<T> v;  // (rows, count), ones on the diagonal, zeros above
  std::vector<T> t;  // (count, count) upper triangular

  Reflections(Block<T> panel, int64_t m, int64_t n, const T* tau)
      : rows(m), count(n), v(static_cast<size_t>(m * n)), t(static_cast<size_t>(n * n)) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < std::min(i + 1, n); ++j)
        v[static_cast<size_t>(i * n + j)] = i == j ? T(1) : panel.row(i)[j];
    std::vector<T> products(static_cast<size_t>(n * n));
    gemm<T>(n, n, m, {v.data(), 1, n}, {v.data(), n, 1}, products.data(), n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < j; ++i) {
        T total = 0;
        for (int64_t p = i; p < j; ++p)
          total += t[static_cast<size_t>(i * n + p)] * products[static_cast<size_t>(p * n + j)];
        t[static_cast<size_t>(i * n + j)] = -tau[j] * total;
      }
      t[static_cast<size_t>(j * n + j)] = tau[j];
    }
  }
  /// c (rows, n) := (I - V · T · Vᵀ) · c, or with Tᵀ.
  void apply(Block<T> c, int64_t n, bool transposed) const {
    if (n == 0) return;
    std::vector<T> projected(static_cast<size_t>(count * n)), turned(projected.size());
    gemm<T>(count, n, rows, {v.data(), 1, count}, {c.data, c.stride, 1}, projected.data(), n);
    const Matrix<T> middle = transposed ? Matrix<T>{t.data(), 1, count} : Matrix<T>{t.data(), count, 1};
    gemm<T>(count, n, count, middle, {projected.data(), n, 1}, turned.data(), n);
    subtract_product<T>(c, rows, n, count, {v.data(), count, 1}, {turned.data(), n, 1});
  }
};

/// a (m, n) becomes R with the reflections below it; q (m, min(m, n)) is made where asked for.
template <class T>
void qr_in_place(T* data, int64_t m, int64_t n, T* q) {
  const int64_t k = std::min(m, n);
  const Block<T> a{data, n};
  std::vector<T> tau(static_cast<size_t>(k)), row(static_cast<size_t>(kPanel));
  for (int64_t j0 = 0; j0 < k; j0 += kPanel) {
    const int64_t width = std::min(kPanel, k - j0), end = j0 + width;
    for (int64_t j = j0; j < end; ++j) {
      // v[0] = 1 is not stored. row = tau · vᵀ · (the rest of the panel), which is then taken off as v · row.
      const T factor = tau[static_cast<size_t>(j)] = reflect(a.row(j) + j, m - j, n);
      const int64_t rest = end - j - 1;
      std::copy(a.row(j) + j + 1, a.row(j) + end, row.begin());
      for (int64_t i = j + 1; i < m; ++i) subtract_scaled(row.data(), -a.row(i)[j], a.row(i) + j + 1, rest);
      for (int64_t c = 0; c < rest; ++c) row[static_cast<size_t>(c)] *= factor;
      subtract_scaled(a.row(j) + j + 1, T(1), row.data(), rest);
      for (int64_t i = j + 1; i < m; ++i) subtract_scaled(a.row(i) + j + 1, a.row(i)[j], row.data(), rest);
    }
    if (end < n)
      Reflections<T>(a.at(j0, j0), m - j0, width, tau.data() + j0).apply(a.at(j0, end), n - end, true);
  }
  if (!q) return;
  // Q is the product of all reflections applied to the identity, from the last panel to the first, so that each meets
  // only the part that is not the identity any more.
  std::fill(q, q + m * k, T(0));
  for (int64_t i = 0; i < k; ++i) q[i * k + i] = T(1);
  for (int64_t j0 = (k - 1) / kPanel * kPanel; k > 0 && j0 >= 0; j0 -= kPanel)
    Reflections<T>(a.at(j0, j0), m - j0, std::min(kPanel, k - j0), tau.data() + j0)
        .apply(Block<T>{q, k}.at(j0, j0), k - j0, false);
}

// ---- singular values

/// Turns rows x and y by the angle (c, s): (c·x - s·y, s·x + c·y).
template <class T>
void rotate(T* x, T* y, T c, T s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/// The n rows of w (length n) become orthogonal by rotations of pairs, which v (n, n) takes part in. A row that has
/// shrunk to nothing beside the others (epsilon squared) becomes zero. False where it does not end.
/// One-sided Jacobi: the angle that makes x and y orthogonal is the one that makes the 2×2 matrix (xx, cross; cross,
/// yy) diagonal; of its two the smaller is taken. Pairs run in a fixed order until a whole sweep turns nothing.
template <class T>
bool orthogonalise(T* w, T* v, int64_t n) {
  const double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());
  const double tolerance = epsilon * std::sqrt(static_cast<double>(n));
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(dot(w + i * n, w + i * n, n));
  const double nothing = squares * epsilon * epsilon * epsilon * epsilon;
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (int64_t p = 0; p + 1 < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        T *x = w + p * n, *y = w + q * n;
        const double cross = static_cast<double>(dot(x, y, n)), xx = static_cast<double>(dot(x, x, n)),
                     yy = static_cast<double>(dot(y, y, n));
        if (xx <= nothing) std::fill(x, x + n, T(0));
        if (yy <= nothing) std::fill(y, y + n, T(0));
        if (xx <= nothing || yy <= nothing || std::abs(cross) <= tolerance * std::sqrt(xx) * std::sqrt(yy))
          continue;
        turned = true;
        const double zeta = (yy - xx) / (2 * cross);
        const double t = std::copysign(1., zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t);
        rotate(x, y, static_cast<T>(c), static_cast<T>(c * t), n);
        rotate(v + p * n, v + q * n, static_cast<T>(c), static_cast<T>(c * t), n);
      }
    if (!turned) return true;
  }
  return false;
}

/// Puts into row `row` of w a unit vector that is orthogonal to the rows before it.
template <class T>
void complete_row(T* w, int64_t row, int64_t n) {
  T* out = w + row * n;
  for (int64_t e = 0; e < n; ++e) {
    std::fill(out, out + n, T(0));
    out[e] = T(1);
    // Twice, since one pass leaves rounding errors as large as what may remain.
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t r = 0; r < row; ++r) subtract_scaled(out, dot(out, w + r * n, n), w + r * n, n);
    const T length = std::sqrt(dot(out, out, n));
    if (length * length * static_cast<T>(2 * n) < T(1)) continue;  // some e leaves at least 1 / sqrt(n)
    for (int64_t i = 0; i < n; ++i) out[i] /= length;
    return;
  }
}

/// a (m, n), m >= n, = u (m, n) · diag(s) · vt (n, n).
/// A tall matrix is first brought to its square factor R by QR; u is then Q times the left vectors of R. Zero
/// singular values have no left vector of their own: any that complete the basis will do.
template <class T>
bool svd_tall(const T* a, int64_t m, int64_t n, T* u, T* s, T* vt) {
  double largest = 0;  // scaled to about 1, so that squares neither overflow nor vanish
  for (int64_t i = 0; i < m * n; ++i) {
    if (!std::isfinite(a[i])) return false;
    largest = std::max(largest, static_cast<double>(std::abs(a[i])));
  }
  const T scale = largest > 0 ? static_cast<T>(std::exp2(std::floor(std::log2(largest)))) : T(1);
  const size_t square = static_cast<size_t>(n * n);
  std::vector<T> r(static_cast<size_t>(m * n)), q, w(square), v(square);
  for (int64_t i = 0; i < m * n; ++i) r[static_cast<size_t>(i)] = a[i] / scale;
  if (m > n) {
    q.resize(static_cast<size_t>(m * n));
    qr_in_place(r.data(), m, n, q.data());
    for (int64_t i = 0; i < n; ++i) std::fill(r.begin() + i * n, r.begin() + i * n + i, T(0));
  }
  transpose_into(r.data(), n, n, w.data());  // rows of w are columns of the square factor
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i * n + i)] = T(1);
  if (!orthogonalise(w.data(), v.data(), n)) return false;
  std::vector<T> length(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    length[static_cast<size_t>(i)] = std::sqrt(dot(w.data() + i * n, w.data() + i * n, n));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return length[static_cast<size_t>(x)] > length[static_cast<size_t>(y)];
  });
  std::vector<T> left(square);  // rows are the left vectors of the square factor
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = order[static_cast<size_t>(i)];
    const T norm = length[static_cast<size_t>(from)];
    s[i] = norm * scale;
    std::copy(v.begin() + from * n, v.begin() + from * n + n, vt + i * n);
    if (norm > std::numeric_limits<T>::min())
      for (int64_t j = 0; j < n; ++j)
        left[static_cast<size_t>(i * n + j)] = w[static_cast<size_t>(from * n + j)] / norm;
    else
      complete_row(left.data(), i, n);
  }
  if (m > n)
    gemm<T>(m, n, n, {q.data(), n, 1}, {left.data(), 1, n}, u, n);
  else
    transpose_into(left.data(), n, n, u);
  return true;
}

// ---- symmetric eigenvalues

/// a (n, n), its lower triangle, becomes tridiagonal: d its diagonal, e what stands beside it; q (n, n) gets the
/// orthogonal matrix, a = q · tridiagonal · qᵀ.
template <class T>
void tridiagonalise(T* data, int64_t n, std::vector<double>& d, std::vector<double>& e, T* q) {
  const Block<T> a{data, n};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) a.row(i)[j] = a.row(j)[i];
  const size_t size = static_cast<size_t>(n);
  d.assign(size, 0);
  e.assign(size, 0);
  std::vector<T> tau(size), p(size), vectors(static_cast<size_t>(n * n));  // row k of vectors: reflection k
  const int64_t grain = 1 + kParallel / (n + 1);
  // Reflection k clears column k below the place beside the diagonal: A := A - v · wᵀ - w · vᵀ, with p = tau · A · v
  // and w = p - tau / 2 · (pᵀ · v) · v, which ends in p. Both halves of the matrix are kept, so that rows are
  // contiguous.
  for (int64_t k = 0; k + 2 < n; ++k) {
    const int64_t rest = n - k - 1;
    const Block<T> lower = a.at(k + 1, k + 1);
    T* v = vectors.data() + k * n;
    for (int64_t i = 0; i < rest; ++i) v[i] = a.row(k + 1 + i)[k];
    const T factor = tau[static_cast<size_t>(k)] = reflect(v, rest, 1);
    e[static_cast<size_t>(k)] = static_cast<double>(v[0]);
    v[0] = T(1);
    if (factor == T(0)) continue;
    parallel_ranges(rest, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) p[static_cast<size_t>(i)] = factor * dot(lower.row(i), v, rest);
    });
    subtract_scaled(p.data(), factor / T(2) * dot(p.data(), v, rest), v, rest);
    parallel_ranges(rest, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = lower.row(i);
        const T x = v[i], y = p[static_cast<size_t>(i)];
        for (int64_t j = 0; j < rest; ++j) row[j] -= x * p[static_cast<size_t>(j)] + y * v[j];
      }
    });
  }
  for (int64_t i = 0; i < n; ++i) d[static_cast<size_t>(i)] = static_cast<double>(a.row(i)[i]);
  if (n >= 2) e[size - 2] = static_cast<double>(a.row(n - 1)[n - 2]);
  std::fill(q, q + n * n, T(0));
  for (int64_t i = 0; i < n; ++i) q[i * n + i] = T(1);
  // From the last to the first: reflection k only meets rows and columns from k + 1 on.
  for (int64_t k = n - 3; k >= 0; --k) {
    const int64_t rest = n - k - 1;
    const T factor = tau[static_cast<size_t>(k)];
    if (factor == T(0)) continue;
    const Block<T> lower = Block<T>{q, n}.at(k + 1, k + 1);
    const T* v = vectors.data() + k * n;
    std::fill(p.begin(), p.begin() + rest, T(0));
    for (int64_t i = 0; i < rest; ++i) subtract_scaled(p.data(), -v[i], lower.row(i), rest);
    parallel_ranges(rest, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) subtract_scaled(lower.row(i), factor * v[i], p.data(), rest);
    });
  }
}

/// Rows i and i + 1 of the vectors turn by (c, s).
struct Turn {
  int64_t i;
  double c, s;
};

/// All turns of a step at once, over strips of columns: one pass through memory, and each column's turns in order.
template <class T>
void apply_turns(const std::vector<Turn>& turns, T* rows, int64_t n) {
  constexpr int64_t kColumns = 256;
  parallel_ranges(n, kColumns, [&](int64_t begin, int64_t end) {
    for (const Turn& t : turns)
      rotate(rows + t.i * n + begin, rows + (t.i + 1) * n + begin, static_cast<T>(t.c), static_cast<T>(t.s),
             end - begin);
  });
}

/// Implicit QL steps with Wilkinson's shift until e is zero; rows of `vectors` are turned along.
/// In f64 for either type; `vectors` turns in T. An eigenvalue usually takes two or three steps; 80 without an end is
/// a failure.
template <class T>
bool diagonalise(std::vector<double>& d, std::vector<double>& e, T* vectors, int64_t n) {
  const double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon()) / 8;
  const auto at = [](std::vector<double>& v, int64_t i) -> double& { return v[static_cast<size_t>(i)]; };
  std::vector<Turn> turns;
  for (int64_t first = 0; first < n; ++first) {
    for (int step = 0;; ++step) {
      int64_t last = first;  // the block first … last does not fall apart
      while (last + 1 < n &&
             std::abs(at(e, last)) > epsilon * (std::abs(at(d, last)) + std::abs(at(d, last + 1))))
        ++last;
      if (last == first) break;
      if (step == 80) return false;
      const double half = (at(d, first + 1) - at(d, first)) / (2 * at(e, first));
      // The shift is the eigenvalue of the first 2×2 block that is nearer to its corner.
      double bulge =
          at(d, last) - at(d, first) + at(e, first) / (half + std::copysign(std::hypot(half, 1.), half));
      double s = 1, c = 1, moved = 0;
      bool split = false;
      turns.clear();
      for (int64_t i = last - 1; i >= first && !split; --i) {
        const double f = s * at(e, i), b = c * at(e, i), r = std::hypot(f, bulge);
        at(e, i + 1) = r;
        split = r == 0;
        if (split) {
          at(d, i + 1) -= moved;
          at(e, last) = 0;
          break;
        }
        s = f / r;
        c = bulge / r;
        const double g = at(d, i + 1) - moved, h = (at(d, i) - g) * s + 2 * c * b;
        moved = s * h;
        at(d, i + 1) = g + moved;
        bulge = c * h - b;
        turns.push_back({i, c, s});
      }
      apply_turns(turns, vectors, n);
      if (split) continue;
      at(d, first) -= moved;
      at(e, first) = bulge;
      at(e, last) = 0;
    }
  }
  return true;
}

/// Vectors are turned as rows, which are contiguous, and leave as columns. Values ascend; of equal ones the first
/// stays first.
template <class T>
bool eigh_one(const T* a, int64_t n, T* values, T* vectors) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      if (!std::isfinite(a[i * n + j])) return false;
  std::vector<T> work(a, a + n * n), q(work.size()), rows(work.size());
  std::vector<double> d, e;
  tridiagonalise(work.data(), n, d, e, q.data());
  transpose_into(q.data(), n, n, rows.data());
  if (!diagonalise(d, e, rows.data(), n)) return false;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return d[static_cast<size_t>(x)] < d[static_cast<size_t>(y)];
  });
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    values[j] = static_cast<T>(d[static_cast<size_t>(from)]);
    for (int64_t i = 0; i < n; ++i) vectors[i * n + j] = rows[static_cast<size_t>(from * n + i)];
  }
  return true;
}

// ---- kernels

int64_t batch_of(const Buffer& a, int axes) {
  int64_t batch = 1;
  for (int i = 0; i < a.rank - axes; ++i) batch *= a.shape[i];
  return batch;
}

/// Calls body(element type, i) for each matrix of the batch and returns what it answered.
template <class F>
std::vector<int> each_matrix(const Buffer& a, F&& body) {
  std::vector<int> status(static_cast<size_t>(batch_of(a, 2)));
  const auto run = [&](auto zero) {
    parallel_for(static_cast<int64_t>(status.size()),
                 [&](int64_t i) { status[static_cast<size_t>(i)] = body(zero, i); });
  };
  if (a.dtype == DType::f32)
    run(float{});
  else
    run(double{});
  return status;
}

void cholesky(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t n = a.shape[a.rank - 1];
  check_not_positive(each_matrix(a, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    T* out = args.out[0].as<T>() + i * n * n;
    std::copy_n(a.as<T>() + i * n * n, n * n, out);
    return cholesky_in_place(out, n);
  }));
}

/// out (n, columns) = a⁻¹ · right; put_row(i, to) writes row i of `right`. A singular a leaves out unwritten.
template <class T, class F>
int solve_by_lu(const T* a, int64_t n, T* out, int64_t columns, F&& put_row) {
  std::vector<T> lu(a, a + n * n);
  std::vector<int64_t> rows;
  bool odd;
  if (const int status = lu_in_place(lu.data(), n, rows, odd)) return status;
  for (int64_t i = 0; i < n; ++i) put_row(rows[static_cast<size_t>(i)], out + i * columns);
  solve_triangular<T>({lu.data(), n}, n, false, true, out, columns);
  solve_triangular<T>({lu.data(), n}, n, true, false, out, columns);
  return 0;
}

void solve(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1];
  const int64_t n = a.shape[a.rank - 1], columns = b.shape[b.rank - 1];
  check_singular("solve", each_matrix(a, [&](auto zero, int64_t i) {
                   using T = decltype(zero);
                   const T* right = b.as<T>() + i * n * columns;
                   return solve_by_lu(
                       a.as<T>() + i * n * n, n, args.out[0].as<T>() + i * n * columns, columns,
                       [&](int64_t row, T* to) { std::copy_n(right + row * columns, columns, to); });
                 }));
}

void inverse(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t n = a.shape[a.rank - 1];
  check_singular("inverse", each_matrix(a, [&](auto zero, int64_t i) {
                   using T = decltype(zero);
                   return solve_by_lu(a.as<T>() + i * n * n, n, args.out[0].as<T>() + i * n * n, n,
                                      [&](int64_t row, T* to) {
                                        std::fill(to, to + n, T(0));
                                        to[row] = T(1);
                                      });
                 }));
}

void triangular_solve(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1];
  const auto& attrs = args.attributes<TriangularSolveAttrs>();
  const int64_t n = a.shape[a.rank - 1], columns = b.shape[b.rank - 1];
  each_matrix(a, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    T* out = args.out[0].as<T>() + i * n * columns;
    std::copy_n(b.as<T>() + i * n * columns, n * columns, out);
    solve_triangular<T>({a.as<T>() + i * n * n, n}, n, attrs.upper, attrs.unit, out, columns);
    return 0;
  });
}

/// The product over the diagonal of U in f64, its sign turned where the permutation is odd; or the sign and the
/// logarithm of its size. A singular matrix gives 0, or sign 0 and -infinity.
template <bool kLog>
void determinant(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t n = a.shape[a.rank - 1];
  each_matrix(a, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    std::vector<T> lu(a.as<T>() + i * n * n, a.as<T>() + (i + 1) * n * n);
    std::vector<int64_t> rows;
    bool odd;
    lu_in_place(lu.data(), n, rows, odd);
    double sign = odd ? -1 : 1, product = 1, logarithm = 0;
    for (int64_t k = 0; k < n; ++k) {
      const double x = static_cast<double>(lu[static_cast<size_t>(k * n + k)]);
      product *= x;
      sign = x == 0 ? 0 : x < 0 ? -sign : sign;
      logarithm += std::log(std::abs(x));
    }
    if constexpr (kLog) {
      args.out[0].as<T>()[i] = static_cast<T>(sign);
      args.out[1].as<T>()[i] = static_cast<T>(logarithm);
    } else {
      args.out[0].as<T>()[i] = static_cast<T>(odd ? -product : product);
    }
    return 0;
  });
}

void qr(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t m = a.shape[a.rank - 2], n = a.shape[a.rank - 1], k = std::min(m, n);
  each_matrix(a, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    std::vector<T> work(a.as<T>() + i * m * n, a.as<T>() + (i + 1) * m * n);
    qr_in_place(work.data(), m, n, args.out[0].as<T>() + i * m * k);
    T* r = args.out[1].as<T>() + i * k * n;
    for (int64_t y = 0; y < k; ++y)
      for (int64_t x = 0; x < n; ++x) r[y * n + x] = x < y ? T(0) : work[static_cast<size_t>(y * n + x)];
    return 0;
  });
}

void svd(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t m = a.shape[a.rank - 2], n = a.shape[a.rank - 1], k = std::min(m, n);
  check_converged("svd", each_matrix(a, [&](auto zero, int64_t i) {
                    using T = decltype(zero);
                    const T* from = a.as<T>() + i * m * n;
                    if (!std::all_of(from, from + m * n, [](T x) { return std::isfinite(x); }))
                      return kNotFinite;
                    T *u = args.out[0].as<T>() + i * m * k, *s = args.out[1].as<T>() + i * k,
                      *vh = args.out[2].as<T>() + i * k * n;
                    if (m >= n) return svd_tall(from, m, n, u, s, vh) ? 0 : 1;
                    std::vector<T> turned(static_cast<size_t>(m * n)), v(turned.size()),
                        ut(static_cast<size_t>(m * m));
                    transpose_into(from, m, n, turned.data());
                    const bool ended = svd_tall(turned.data(), n, m, v.data(), s, ut.data());
                    transpose_into(v.data(), n, m, vh);
                    transpose_into(ut.data(), m, m, u);
                    return ended ? 0 : 1;
                  }));
}

void eigh(const KernelArgs& args) {
  const Buffer& a = args.in[0];
  const int64_t n = a.shape[a.rank - 1];
  check_converged(
      "eigh", each_matrix(a, [&](auto zero, int64_t i) {
        using T = decltype(zero);
        const T* from = a.as<T>() + i * n * n;
        for (int64_t row = 0; row < n; ++row)  // the rest of the matrix is never read
          for (int64_t column = 0; column <= row; ++column)
            if (!std::isfinite(from[row * n + column])) return kNotFinite;
        return eigh_one(from, n, args.out[0].as<T>() + i * n, args.out[1].as<T>() + i * n * n) ? 0 : 1;
      }));
}

}  // namespace

void register_linalg_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_cholesky().kernels[cpu] = cholesky;
  op_solve().kernels[cpu] = solve;
  op_triangular_solve().kernels[cpu] = triangular_solve;
  op_inverse().kernels[cpu] = inverse;
  op_det().kernels[cpu] = determinant<false>;
  op_slogdet().kernels[cpu] = determinant<true>;
  op_qr().kernels[cpu] = qr;
  op_svd().kernels[cpu] = svd;
  op_eigh().kernels[cpu] = eigh;
}

}  // namespace tandem::cpu::TD_ISA
