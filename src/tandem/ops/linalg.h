// Linear algebra of f32 and f64 matrices: the last two axes, batched over those before. Gradients are PyTorch's; those of
// qr, svd and eigh exist where the factors do not jump (full rank, distinct singular or eigenvalues). A matrix that cannot
// be factored is refused by an Error that names the element of the batch; on a GPU the ops wait for that answer.
#pragma once

#include <span>

#include "tandem/core/op.h"

namespace tandem {

/// A = L · Lᵀ, L lower triangular with a positive diagonal (or A = Uᵀ · U). Reads the lower triangle of a.
Tensor cholesky(const Tensor& a, bool upper = false);
/// X with a · X = b: a (…, n, n), b (…, n, k) or a vector (n); leading axes broadcast.
Tensor solve(const Tensor& a, const Tensor& b);

struct TriangularSolveOptions {
  bool upper = false;          ///< which triangle of a is read
  bool left = true;            ///< a · X = b, else X · a = b
  bool unit_diagonal = false;  ///< the diagonal counts as ones and is not read
};
/// X with a · X = b for triangular a. A zero on the diagonal gives infinities, as in PyTorch.
Tensor triangular_solve(const Tensor& a, const Tensor& b, TriangularSolveOptions options = {});

Tensor inverse(const Tensor& a);
/// The determinant, (…). Its gradient needs an invertible matrix.
Tensor det(const Tensor& a);
struct SlogDet {
  Tensor sign;       ///< -1, 0 or 1
  Tensor logabsdet;  ///< log |det|, -inf where it is 0
};
SlogDet slogdet(const Tensor& a);

/// a (…, m, n) = q (…, m, k) · r (…, k, n), k = min(m, n); q has orthonormal columns, r is upper triangular, with
/// LAPACK's signs.
struct Qr {
  Tensor q, r;
};
Qr qr(const Tensor& a);
/// a (…, m, n) = u (…, m, k) · diag(s) · vh (…, k, n); s (…, k) falls. The sign of each pair of vectors is free.
struct Svd {
  Tensor u, s, vh;
};
Svd svd(const Tensor& a);
/// a symmetric (its lower triangle is read) = vectors · diag(values) · vectorsᵀ; values (…, n) rise.
struct Eigh {
  Tensor values, vectors;
};
Eigh eigh(const Tensor& a);

/// The x that makes |a · x - b| least, the shortest where there are many. a (…, m, n) of full rank, b (…, m, k) or (m).
Tensor lstsq(const Tensor& a, const Tensor& b);
/// The Moore-Penrose inverse; singular values up to rcond times the largest count as 0 (below 0: max(m, n) · epsilon).
Tensor pinv(const Tensor& a, double rcond = -1);

struct TriangularSolveAttrs {
  bool upper = false, unit = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("upper", &TriangularSolveAttrs::upper), field("unit", &TriangularSolveAttrs::unit));
  }
};
// All take contiguous inputs; equal leading axes. f32 or f64.
OpDef& op_cholesky();          // in a; out l, zeros above the diagonal
OpDef& op_solve();             // in a (…, n, n), b (…, n, k); out x (…, n, k)
OpDef& op_triangular_solve();  // the same; TriangularSolveAttrs
OpDef& op_inverse();           // in a; out a⁻¹
OpDef& op_det();               // in a; out (…)
OpDef& op_slogdet();           // in a; out sign, log |det|
OpDef& op_qr();                // in a; out q, r
OpDef& op_svd();               // in a; out u, s, vh
OpDef& op_eigh();              // in a; out values, vectors

/// What the kernels throw: status[i] != 0 means that element i of the batch failed at that column (from 1).
void check_not_positive(std::span<const int> status);              // cholesky
void check_singular(const char* op, std::span<const int> status);  // solve, inverse
/// svd and eigh. Kernels look for values that are not finite first: no iteration over them is sure to end.
inline constexpr int kNotFinite = -1;
void check_converged(const char* op, std::span<const int> status);

}  // namespace tandem
