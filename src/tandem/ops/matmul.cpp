#include "tandem/ops/matmul.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/core/region.h"
#include "tandem/ops/define.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void infer_matmul(InferArgs& args) {
  const Dims &a = args.in[0].shape(), &b = args.in[1].shape();
  const int r = a.rank();
  TD_CHECK((r == 2 || r == 3) && b.rank() == r,
           "matmul: the op takes two matrices, or two batches of matrices; got a ", a, " and b ", b,
           ". reshape() them.");
  TD_CHECK(
      a[r - 1] == b[r - 2] && (r == 2 || a[0] == b[0]),
      "matmul: the last size of a must equal the second-to-last size of b, and the batches must be equal; "
      "got a ",
      a, " and b ", b, ". transpose() or expand() one of them.");
  TD_CHECK(args.in[0].dtype() == args.in[1].dtype() && args.in[0].dtype() != DType::boolean,
           "matmul: both types must be equal and not bool; got ", args.in[0].dtype(), " and ",
           args.in[1].dtype(), ". cast() one of them.");
  Dims shape = a;
  shape[r - 1] = b[r - 1];
  args.add(shape, args.in[0].dtype());
}

Tensors grad_matmul(const GradArgs& a) {
  return {a.needs[0] ? matmul(a.grad[0], transpose(a.in[1])) : Tensor(),
          a.needs[1] ? matmul(transpose(a.in[0]), a.grad[0]) : Tensor()};
}

void infer_linear(InferArgs& args) {
  const Dims &x = args.in[0].shape(), &w = args.in[1].shape();
  TD_CHECK(x.rank() == 2, "linear: the op takes x as a matrix (rows, in); got x ", x, ". reshape() it.");
  TD_CHECK(w.rank() == 2 && x[1] == w[1],
           "linear: the last size of x must equal the second size of weight (out, in); got x ", x,
           " and weight ", w, ".");
  if (args.in.size() > 2)
    TD_CHECK(args.in[2].shape() == Dims{w[0]},
             "linear: the bias must have one element for each output; got bias ", args.in[2].shape(),
             " for weight ", w, ".");
  for (const Tensor& t : args.in)
    TD_CHECK(t.dtype() == args.in[0].dtype() && t.dtype() != DType::boolean,
             "linear: all types must be equal and not bool; got ", args.in[0].dtype(), " and ", t.dtype(),
             ". cast() one of them.");
  args.add({x[0], w[0]}, args.in[0].dtype());
}

Tensors grad_linear(const GradArgs& a) {
  Tensors out{a.needs[0] ? matmul(a.grad[0], a.in[1]) : Tensor(),
              a.needs[1] ? matmul(transpose(a.grad[0]), a.in[0]) : Tensor()};
  if (a.needs.size() > 2) out.push_back(a.needs[2] ? sum(a.grad[0], {0}) : Tensor());
  return out;
}

int64_t matmul_flops(const KernelArgs& args) {
  return 2 * args.out[0].size() * args.in[0].shape[args.in[0].rank - 1];
}

}  // namespace

OpDef& op_matmul() {
  static OpDef& op = define(OpDef{.name = "matmul",
                                  .about = "matrix products",
                                  .inputs = {"a", "b"},
                                  .outputs = {"y"},
                                  .infer = infer_matmul,
                                  .gradient = grad_matmul,
                                  .saves_inputs = 0b11,
                                  .precision = Precision::low,
                                  .takes_strided = true,
                                  .flops = matmul_flops});
  return op;
}

OpDef& op_linear() {
  static OpDef& op = define(OpDef{.name = "linear",
                                  .about = "x times the transposed weight, and a bias",
                                  .inputs = {"x", "weight", "bias?"},
                                  .outputs = {"y"},
                                  .infer = infer_linear,
                                  .gradient = grad_linear,
                                  .saves_inputs = 0b11,
                                  .precision = Precision::low,
                                  .flops = linear_flops});
  return op;
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (autocast_is_on())
    return as_one_op(
        Precision::low, [&](const Tensor& a, const Tensor& b) { return matmul(a, b); }, a, b);
  TD_CHECK(a.defined() && b.defined(), "matmul: both inputs must be tensors; got an undefined handle.");
  TD_CHECK(a.rank() >= 1 && b.rank() >= 1, "matmul: both inputs need at least one axis; got ", a.shape(),
           " and ", b.shape(), ".");
  // Vectors become matrices, and lose the extra axis again at the end.
  const Tensor left = a.rank() == 1 ? unsqueeze(a, 0) : a, right = b.rank() == 1 ? unsqueeze(b, 1) : b;
  const Dim inner = left.shape().back(), found = right.shape()[right.rank() - 2];
  if (inner != found) {
    const bool transposed_fits = b.rank() >= 2 && right.shape().back() == inner;
    throw Error(
        str("matmul: the last size of a must equal the second-to-last size of b; got a ", a.shape(),
            " and b ", b.shape(), ".",
            transposed_fits ? str(" transpose(b) has shape ", transpose(b).shape(), " and would fit.") : ""));
  }
  Tensor out;
  if (left.rank() == 2 && right.rank() == 2) {
    out = apply1(op_matmul(), {left, right});
  } else {
    Dims batch_a = left.shape(), batch_b = right.shape();
    for (Dims* d : {&batch_a, &batch_b}) {
      d->erase(d->rank() - 1);
      d->erase(d->rank() - 1);
    }
    for (int i = 1; i <= std::min(batch_a.rank(), batch_b.rank()); ++i) {
      const Dim x = batch_a[batch_a.rank() - i], y = batch_b[batch_b.rank() - i];
      TD_CHECK(x == y || x == 1 || y == 1, "matmul: the batch axes must be equal or 1; got a ", a.shape(),
               " and b ", b.shape(), ".");
    }
    const Dims batch = broadcast_shapes("matmul", batch_a, batch_b);
    const Dim count = size_of(batch), rows = left.shape()[left.rank() - 2], columns = right.shape().back();
    const auto batched = [&](const Tensor& t, Dim r, Dim c) {
      Dims full = batch;
      full.push_back(r);
      full.push_back(c);
      return reshape(expand(t, full), {count, r, c});
    };
    Dims shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    out = reshape(apply1(op_matmul(), {batched(left, rows, inner), batched(right, inner, columns)}), shape);
  }
  if (b.rank() == 1) out = squeeze(out, -1);
  if (a.rank() == 1) out = squeeze(out, b.rank() == 1 ? -1 : -2);
  return out;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  TD_CHECK(x.defined() && weight.defined(), "linear: x and weight must be tensors; got an undefined handle.");
  TD_CHECK(x.rank() >= 1 && weight.rank() == 2, "linear: x needs an axis and weight two; got x ", x.shape(),
           " and weight ", weight.shape(), ".");
  const Dim features = x.shape().back();
  Dims rows{features ? x.size() / features : 0, features};
  if (!features) rows[0] = size_of(Dims(std::span(x.shape().begin(), static_cast<size_t>(x.rank() - 1))));
  const Tensor flat = x.rank() == 2 ? x : reshape(x, rows);
  LinearHook* const hook = linear_hook();
  const Tensor out = hook && hook->takes(flat, weight, bias) ? hook->linear(flat, weight, bias)
                     : bias.defined()                        ? apply1(op_linear(), {flat, weight, bias})
                                                             : apply1(op_linear(), {flat, weight});
  if (x.rank() == 2) return out;
  Dims shape = x.shape();
  shape[shape.rank() - 1] = weight.shape()[0];
  return reshape(out, shape);
}

namespace {
void check_ranks(const char* op, const Tensor& a, const Tensor& b, int rank, const char* what) {
  TD_CHECK(a.defined() && b.defined(), op, ": both inputs must be tensors; got an undefined handle.");
  TD_CHECK(a.rank() == rank && b.rank() == rank, op, ": both inputs must be ", what, "; got ", a.shape(),
           " and ", b.shape(), ".");
}

Tensor add_product(const char* op, const Tensor& c, const Tensor& a, const Tensor& b, AddmmOptions options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::low,
        [&](const Tensor& c, const Tensor& a, const Tensor& b) { return add_product(op, c, a, b, options); },
        c, a, b);
  TD_CHECK(c.defined(), op, ": c must be a tensor; got an undefined handle.");
  TD_CHECK(c.dtype() == a.dtype(), op, ": all types must be equal; got ", c.dtype(), " and ", a.dtype(),
           ". cast() one of them.");
  Tensor product = matmul(a, b);
  TD_CHECK(broadcast_shapes(op, c.shape(), product.shape()) == product.shape(), op,
           ": c must broadcast to the product; got c ", c.shape(), " for a product ", product.shape(), ".");
  const Operand alpha = factor_for(op, "alpha", options.alpha, c),
                beta = factor_for(op, "beta", options.beta, c);
  if (alpha.number() != 1) product = product * alpha;
  if (beta.number() == 0) return product;  // c is not read: it may hold anything
  return product + (beta.number() == 1 ? c : c * beta);
}
}  // namespace

Tensor dot(const Tensor& a, const Tensor& b) {
  check_ranks("dot", a, b, 1, "vectors");
  TD_CHECK(a.size() == b.size(), "dot: both vectors must have one size; got ", a.shape(), " and ", b.shape(),
           ".");
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  check_ranks("outer", a, b, 1, "vectors");
  return mul(unsqueeze(a, 1), b);
}

/// Element i: a[i+1] · b[i+2] - a[i+2] · b[i+1], counted round.
Tensor cross(const Tensor& a, const Tensor& b, int64_t wanted_axis) {
  TD_CHECK(a.defined() && b.defined(), "cross: a and b must be tensors; got an undefined handle.");
  TD_CHECK(a.rank() == b.rank(), "cross: a and b must have one number of axes; got ", a.shape(), " and ",
           b.shape(), ". unsqueeze() an axis that is missing.");
  const int axis = normal_axis("cross", wanted_axis, a.rank());
  TD_CHECK(a.shape()[axis] == 3 && b.shape()[axis] == 3,
           "cross: a and b must have three elements along axis ", axis, "; got ", a.shape(), " and ",
           b.shape(), ".");
  broadcast_shapes("cross", a.shape(), b.shape());
  const auto from = [&](const Tensor& x, Dim i) {
    return concat({slice(x, axis, i, 3), slice(x, axis, 0, i)}, axis);
  };
  return from(a, 1) * from(b, 2) - from(a, 2) * from(b, 1);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, AddmmOptions options) {
  check_ranks("addmm", a, b, 2, "matrices");
  return add_product("addmm", c, a, b, options);
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, AddmmOptions options) {
  check_ranks("baddbmm", a, b, 3, "batches of matrices");
  return add_product("baddbmm", c, a, b, options);
}

Tensor kron(const Tensor& a, const Tensor& b) {
  TD_CHECK(a.defined() && b.defined(), "kron: both inputs must be tensors; got an undefined handle.");
  const int rank = std::max(a.rank(), b.rank());
  TD_CHECK(2 * rank <= kMaxRank, "kron: both inputs may have at most ", kMaxRank / 2, " axes; got ",
           a.shape(), " and ", b.shape(), ".");
  Dims spread_a, spread_b, shape;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const Dim x = ia < 0 ? 1 : a.shape()[ia], y = ib < 0 ? 1 : b.shape()[ib];
    spread_a.push_back(x);
    spread_a.push_back(1);
    spread_b.push_back(1);
    spread_b.push_back(y);
    shape.push_back(times_capped(x, y));
  }
  return reshape(mul(reshape(a, spread_a), reshape(b, spread_b)), shape);
}

}  // namespace tandem
