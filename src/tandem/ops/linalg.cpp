#include "tandem/ops/linalg.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

// ---- pieces of the gradient rules

/// bool (n, m): is the row's number at least the column's plus `below`?
Tensor lower_mask(const Tensor& x, int64_t below) {
  const Tensor rows = unsqueeze(arange(x.size(-2), DType::i64, x.device()), 1);
  return greater_equal(rows, arange(x.size(-1), DType::i64, x.device()) + below);
}
Tensor lower_part(const Tensor& x, int64_t below = 0) { return where(lower_mask(x, below), x, 0); }
Tensor upper_part(const Tensor& x, int64_t above = 0) { return transpose(lower_part(transpose(x), above)); }
Tensor identity(Dim n, const Tensor& like) {
  const Tensor i = arange(n, DType::i64, like.device());
  return cast(equal(unsqueeze(i, 1), i), like.dtype());
}
/// (…, n) -> (…, n, n)
Tensor diagonal_matrix(const Tensor& x) { return unsqueeze(x, -1) * identity(x.size(-1), x); }
Tensor scale_columns(const Tensor& x, const Tensor& by) { return x * unsqueeze(by, -2); }
Tensor scale_rows(const Tensor& x, const Tensor& by) { return x * unsqueeze(by, -1); }

Tensor or_zeros(const Tensor& grad, const Tensor& like) { return grad.defined() ? grad : zeros_like(like); }

Dims leading(const Dims& shape, int drop) {
  return Dims(std::span<const Dim>(shape.data(), static_cast<size_t>(shape.rank() - drop)));
}

// ---- inference

void check_matrix(const char* op, const Tensor& a) {
  TD_CHECK(a.defined(), op, ": the input must be a tensor; got an undefined handle.");
  TD_CHECK(a.rank() >= 2, op, ": a matrix has two axes; got shape ", a.shape(), ".");
  TD_CHECK(a.dtype() == DType::f32 || a.dtype() == DType::f64, op,
           ": the element type must be f32 or f64; got ", a.dtype(), ". cast() it.");
}
void check_square(const char* op, const Tensor& a) {
  check_matrix(op, a);
  TD_CHECK(a.size(-1) == a.size(-2), op, ": the matrix must be square; got shape ", a.shape(), ".");
}

void infer_same(InferArgs& args) {
  check_square(args.op, args.in[0]);
  args.add(args.in[0].shape(), args.in[0].dtype());
}
/// a (…, n, n) and b (…, n, k).
void infer_solve(InferArgs& args) {
  const Tensor &a = args.in[0], &b = args.in[1];
  check_square(args.op, a);
  bool fits = a.rank() == b.rank() && a.dtype() == b.dtype();
  for (int i = 0; fits && i < a.rank() - 1; ++i) fits = a.shape()[i] == b.shape()[i];
  TD_CHECK(fits, args.op, ": b must have a's type and its sizes on all axes but the last; got a ",
           describe(a), " and b ", describe(b), ". expand() or cast() one of them.");
  args.add(b.shape(), b.dtype());
}
void infer_triangular_solve(InferArgs& args) {
  args.attributes<TriangularSolveAttrs>();
  infer_solve(args);
}

void infer_det(InferArgs& args) {
  check_square(args.op, args.in[0]);
  args.add(leading(args.in[0].shape(), 2), args.in[0].dtype());
}
void infer_slogdet(InferArgs& args) {
  infer_det(args);
  args.add(leading(args.in[0].shape(), 2), args.in[0].dtype());
}
void infer_qr(InferArgs& args) {
  check_matrix(args.op, args.in[0]);
  Dims q = args.in[0].shape(), r = q;
  const int rank = q.rank();
  q[rank - 1] = r[rank - 2] = std::min(q[rank - 2], q[rank - 1]);
  args.add(q, args.in[0].dtype());
  args.add(r, args.in[0].dtype());
}
void infer_svd(InferArgs& args) {
  check_matrix(args.op, args.in[0]);
  Dims u = args.in[0].shape(), vh = u, s = leading(u, 1);
  const int rank = u.rank();
  const Dim k = std::min(u[rank - 2], u[rank - 1]);
  u[rank - 1] = vh[rank - 2] = s[rank - 2] = k;
  args.add(u, args.in[0].dtype());
  args.add(s, args.in[0].dtype());
  args.add(vh, args.in[0].dtype());
}
void infer_eigh(InferArgs& args) {
  check_square(args.op, args.in[0]);
  args.add(leading(args.in[0].shape(), 1), args.in[0].dtype());
  args.add(args.in[0].shape(), args.in[0].dtype());
}

// ---- gradient rules

Tensors grad_cholesky(const GradArgs& a) {
  const Tensor& l = a.out[0];
  const Tensor p = lower_part(matmul(transpose(l), a.grad[0]));
  const Tensor twice = p + transpose(lower_part(p, 1));  // the symmetric matrix with that lower part
  // L⁻ᵀ · twice · L⁻¹, by two triangular solves
  const Tensor left = triangular_solve(transpose(l), twice, {.upper = true});
  return {triangular_solve(l, left, {.left = false}) * 0.5};
}

Tensors grad_solve(const GradArgs& a) {
  const Tensor right = solve(transpose(a.in[0]), a.grad[0]);
  return {a.needs[0] ? -matmul(right, transpose(a.out[0])) : Tensor(), right};
}

Tensors grad_triangular_solve(const GradArgs& a) {
  const auto& attrs = a.attributes.as<TriangularSolveAttrs>();
  const Tensor right =
      triangular_solve(transpose(a.in[0]), a.grad[0], {.upper = !attrs.upper, .unit_diagonal = attrs.unit});
  if (!a.needs[0]) return {Tensor(), right};
  const Tensor whole = -matmul(right, transpose(a.out[0]));
  return {attrs.upper ? upper_part(whole, attrs.unit) : lower_part(whole, attrs.unit), right};
}

Tensors grad_inverse(const GradArgs& a) {
  const Tensor t = transpose(a.out[0]);
  return {-matmul(matmul(t, a.grad[0]), t)};
}

Tensors grad_det(const GradArgs& a) {
  const Tensor scale = unsqueeze(unsqueeze(a.grad[0] * a.out[0], -1), -1);
  return {scale * transpose(inverse(a.in[0]))};
}

Tensors grad_slogdet(const GradArgs& a) {
  if (!a.grad[1].defined()) return {Tensor()};  // the sign is constant
  return {unsqueeze(unsqueeze(a.grad[1], -1), -1) * transpose(inverse(a.in[0]))};
}

/// x · R⁻ᵀ for upper triangular R.
Tensor by_inverse_transpose(const Tensor& x, const Tensor& r) {
  return triangular_solve(transpose(r), x, {.left = false});
}

Tensors grad_qr(const GradArgs& a) {
  const Tensor &q = a.out[0], &r = a.out[1];
  Tensor gq = or_zeros(a.grad[0], q), gr = or_zeros(a.grad[1], r);
  const Dim m = q.size(-2), n = r.size(-1);
  Tensor first = r, rest;
  if (m < n) {  // the columns beyond the square part are q · (their part of r)
    const Tensor later = slice(r, -1, m, n), g_later = slice(gr, -1, m, n);
    first = slice(r, -1, 0, m);
    gr = slice(gr, -1, 0, m);
    rest = matmul(q, g_later);
    gq = gq + matmul(matmul(q, later), transpose(g_later));
  }
  const Tensor s = matmul(first, transpose(gr)) - matmul(transpose(gq), q);
  const Tensor symmetric = lower_part(s) + transpose(lower_part(s, 1));
  const Tensor square = by_inverse_transpose(gq + matmul(q, symmetric), first);
  return {m < n ? concat({square, rest}, -1) : square};
}

Tensors grad_svd(const GradArgs& a) {
  const Tensor &u = a.out[0], &s = a.out[1], &vh = a.out[2];
  const Tensor &gu = a.grad[0], &gs = a.grad[1], &gvh = a.grad[2];
  Tensor inner = gs.defined() ? diagonal_matrix(gs) : Tensor(), left, right;
  const auto add_to = [](Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  if (gu.defined() || gvh.defined()) {
    const Tensor across = unsqueeze(s, -2), down = unsqueeze(s, -1);
    const Tensor gap = (across - down) * (across + down) + identity(s.size(-1), s);
    const auto turned = [&](const Tensor& x) { return (x - transpose(x)) / gap; };
    if (gu.defined()) {
      const Tensor p = matmul(transpose(u), gu);
      add_to(inner, scale_columns(turned(p), s));
      if (u.size(-2) > s.size(-1)) left = scale_columns(gu - matmul(u, p), 1.0 / s);
    }
    if (gvh.defined()) {
      const Tensor p = matmul(vh, transpose(gvh));
      add_to(inner, scale_rows(turned(p), s));
      if (vh.size(-1) > s.size(-1)) right = scale_rows(gvh - matmul(transpose(p), vh), 1.0 / s);
    }
  }
  Tensor result = matmul(u, inner);
  if (left.defined()) result = result + left;
  result = matmul(result, vh);
  if (right.defined()) result = result + matmul(u, right);
  return {result};
}

Tensors grad_eigh(const GradArgs& a) {
  const Tensor &w = a.out[0], &v = a.out[1];
  Tensor inner;
  if (a.grad[1].defined()) {
    const Tensor one = identity(w.size(-1), w);
    const Tensor gap = unsqueeze(w, -2) - unsqueeze(w, -1) + one;
    inner = matmul(transpose(v), a.grad[1]) * (1.0 - one) / gap;
  }
  if (a.grad[0].defined())
    inner = inner.defined() ? inner + diagonal_matrix(a.grad[0]) : diagonal_matrix(a.grad[0]);
  return {matmul(matmul(v, inner), transpose(v))};
}

/// What the records of the family share.
OpDef linalg(OpDef d) {
  d.effects.refuses = true;  // a matrix that is singular, or not positive definite
  d.precision = Precision::full;
  d.waits = true;
  return d;
}

/// a and b with equal leading axes; a vector b becomes a column.
struct Pair {
  Tensor a, b;
  bool vector;
};
Pair broadcast_pair(const char* op, const Tensor& a, const Tensor& b, bool left) {
  check_square(op, a);
  TD_CHECK(b.defined() && b.rank() >= 1, op, ": b must be a vector or a matrix; got ",
           b.defined() ? str("shape ", b.shape()) : std::string("an undefined handle"), ".");
  TD_CHECK(a.dtype() == b.dtype(), op, ": both types must be equal; got ", a.dtype(), " and ", b.dtype(),
           ". cast() one of them.");
  const bool vector = b.rank() == 1;
  Tensor right = vector ? unsqueeze(b, left ? 1 : 0) : b;
  TD_CHECK(right.size(left ? -2 : -1) == a.size(-1), op, ": b must have ",
           left ? "as many rows" : "as many columns", " as a; got a ", a.shape(), " and b ", b.shape(), ".");
  const Dims batch = broadcast_shapes(op, leading(a.shape(), 2), leading(right.shape(), 2));
  const auto stretched = [&](const Tensor& x) {
    Dims shape = batch;
    shape.push_back(x.size(-2));
    shape.push_back(x.size(-1));
    return expand(x, shape);
  };
  return {stretched(a), stretched(right), vector};
}

std::string which(std::span<const int> status, size_t i) {
  return status.size() > 1 ? str(" of element ", i, " of the batch") : std::string();
}

}  // namespace

void check_not_positive(std::span<const int> status) {
  for (size_t i = 0; i < status.size(); ++i)
    TD_CHECK(status[i] == 0, "cholesky: the matrix must be positive definite; got a leading block of order ",
             status[i], which(status, i),
             " that is not. Check that it is symmetric, or add a small multiple of the identity.");
}
void check_singular(const char* op, std::span<const int> status) {
  for (size_t i = 0; i < status.size(); ++i)
    TD_CHECK(status[i] == 0, op, ": the matrix must be invertible; got a zero pivot in column ",
             status[i] - 1, which(status, i),
             ". Use lstsq() or pinv(), or add a small multiple of the identity.");
}
void check_converged(const char* op, std::span<const int> status) {
  for (size_t i = 0; i < status.size(); ++i) {
    TD_CHECK(status[i] != kNotFinite, op,
             ": the values must be finite; got NaN or infinite elements in the matrix", which(status, i),
             ". Look for them with set_anomaly_mode(true).");
    TD_CHECK(status[i] == 0, op, ": the iteration must end; it did not for the matrix", which(status, i),
             ". Scale the matrix, or use f64.");
  }
}

OpDef& op_cholesky() {
  static OpDef& op = define(linalg({.name = "cholesky",
                                    .about = "the lower triangular l with l l^T = a",
                                    .inputs = {"a"},
                                    .outputs = {"l"},
                                    .infer = infer_same,
                                    .gradient = grad_cholesky,
                                    .saves_outputs = 1}));
  return op;
}
OpDef& op_solve() {
  static OpDef& op = define(linalg({.name = "solve",
                                    .about = "the x with a x = b",
                                    .inputs = {"a", "b"},
                                    .outputs = {"x"},
                                    .infer = infer_solve,
                                    .gradient = grad_solve,
                                    .saves_inputs = 1,
                                    .saves_outputs = 1}));
  return op;
}
OpDef& op_triangular_solve() {
  static OpDef& op = define(linalg({.name = "triangular_solve",
                                    .about = "the x with a x = b, a being triangular",
                                    .inputs = {"a", "b"},
                                    .outputs = {"x"},
                                    .infer = infer_triangular_solve,
                                    .gradient = grad_triangular_solve,
                                    .saves_inputs = 1,
                                    .saves_outputs = 1}));
  return op;
}
OpDef& op_inverse() {
  static OpDef& op = define(linalg({.name = "inverse",
                                    .about = "the inverse of a matrix",
                                    .inputs = {"a"},
                                    .outputs = {"y"},
                                    .infer = infer_same,
                                    .gradient = grad_inverse,
                                    .saves_outputs = 1}));
  return op;
}
OpDef& op_det() {
  static OpDef& op = define(linalg({.name = "det",
                                    .about = "the determinant of a matrix",
                                    .inputs = {"a"},
                                    .outputs = {"y"},
                                    .infer = infer_det,
                                    .gradient = grad_det,
                                    .saves_inputs = 1,
                                    .saves_outputs = 1}));
  return op;
}
OpDef& op_slogdet() {
  static OpDef& op = define(linalg({.name = "slogdet",
                                    .about = "the sign and the logarithm of the determinant",
                                    .inputs = {"a"},
                                    .outputs = {"sign", "logabsdet"},
                                    .infer = infer_slogdet,
                                    .gradient = grad_slogdet,
                                    .saves_inputs = 1}));
  return op;
}
OpDef& op_qr() {
  static OpDef& op = define(linalg({.name = "qr",
                                    .about = "an orthogonal times an upper triangular matrix",
                                    .inputs = {"a"},
                                    .outputs = {"q", "r"},
                                    .infer = infer_qr,
                                    .gradient = grad_qr,
                                    .saves_outputs = 0b11}));
  return op;
}
OpDef& op_svd() {
  static OpDef& op = define(linalg({.name = "svd",
                                    .about = "the singular values and vectors of a matrix",
                                    .inputs = {"a"},
                                    .outputs = {"u", "s", "vh"},
                                    .infer = infer_svd,
                                    .gradient = grad_svd,
                                    .saves_outputs = 0b111}));
  return op;
}
OpDef& op_eigh() {
  static OpDef& op = define(linalg({.name = "eigh",
                                    .about = "the eigenvalues and eigenvectors of a symmetric matrix",
                                    .inputs = {"a"},
                                    .outputs = {"values", "vectors"},
                                    .infer = infer_eigh,
                                    .gradient = grad_eigh,
                                    .saves_outputs = 0b11}));
  return op;
}

Tensor cholesky(const Tensor& a, bool upper) {
  const Tensor l = apply1(op_cholesky(), {a});
  return upper ? transpose(l) : l;
}

Tensor solve(const Tensor& a, const Tensor& b) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a, const Tensor& b) { return solve(a, b); }, a, b);
  const Pair p = broadcast_pair("solve", a, b, true);
  const Tensor x = apply1(op_solve(), {p.a, p.b});
  return p.vector ? squeeze(x, -1) : x;
}

Tensor triangular_solve(const Tensor& a, const Tensor& b, TriangularSolveOptions options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a, const Tensor& b) { return triangular_solve(a, b, options); }, a,
        b);
  const Pair p = broadcast_pair("triangular_solve", a, b, options.left);
  const auto run = [&](const Tensor& m, const Tensor& right, bool upper) {
    return apply1(op_triangular_solve(), {m, right}, TriangularSolveAttrs{upper, options.unit_diagonal});
  };
  const Tensor x = options.left ? run(p.a, p.b, options.upper)
                                : transpose(run(transpose(p.a), transpose(p.b), !options.upper));
  return p.vector ? squeeze(x, options.left ? -1 : -2) : x;
}

Tensor inverse(const Tensor& a) { return apply1(op_inverse(), {a}); }
Tensor det(const Tensor& a) { return apply1(op_det(), {a}); }
SlogDet slogdet(const Tensor& a) {
  const Tensors out = apply(op_slogdet(), {&a, 1});
  return {out[0], out[1]};
}
Qr qr(const Tensor& a) {
  const Tensors out = apply(op_qr(), {&a, 1});
  return {out[0], out[1]};
}
Svd svd(const Tensor& a) {
  const Tensors out = apply(op_svd(), {&a, 1});
  return {out[0], out[1], out[2]};
}
Eigh eigh(const Tensor& a) {
  const Tensors out = apply(op_eigh(), {&a, 1});
  return {out[0], out[1]};
}

Tensor lstsq(const Tensor& a, const Tensor& b) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a, const Tensor& b) { return lstsq(a, b); }, a, b);
  check_matrix("lstsq", a);
  TD_CHECK(b.defined() && b.rank() >= 1 && b.dtype() == a.dtype(),
           "lstsq: b must be a vector or a matrix of a's type; got ",
           b.defined() ? describe(b) : std::string("an undefined handle"), " for ", describe(a), ".");
  const bool vector = b.rank() == 1;
  const Tensor right = vector ? unsqueeze(b, 1) : b;
  TD_CHECK(right.size(-2) == a.size(-2), "lstsq: b must have as many rows as a; got a ", a.shape(), " and b ",
           b.shape(), ".");
  Tensor x;
  if (a.size(-2) >= a.size(-1)) {
    const Qr f = qr(a);
    x = triangular_solve(f.r, matmul(transpose(f.q), right), {.upper = true});
  } else {
    const Qr f = qr(transpose(a));
    x = matmul(f.q, triangular_solve(transpose(f.r), right));
  }
  return vector ? squeeze(x, -1) : x;
}

Tensor pinv(const Tensor& a, double rcond) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a) { return pinv(a, rcond); }, a);
  check_matrix("pinv", a);
  const Dim largest = std::max(a.size(-1), a.size(-2));
  if (a.size() == 0) return clone(transpose(a));
  if (rcond < 0) rcond = static_cast<double>(largest) * spacing_at_1(a.dtype());
  const Svd f = svd(a);
  const Tensor used = greater(f.s, max(f.s, {f.s.rank() - 1}, true) * rcond);
  const Tensor inverted = where(used, 1.0 / where(used, f.s, 1), 0);
  return matmul(scale_columns(transpose(f.vh), inverted), transpose(f.u));
}

}  // namespace tandem
