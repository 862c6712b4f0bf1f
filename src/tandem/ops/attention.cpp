#include "tandem/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/ops/create.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem {

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  TD_CHECK(q.defined() && k.defined() && v.defined(), kName,
           ": q, k and v must be tensors; got an undefined handle.");
  const int rank = q.rank();
  bool fits = rank >= 2 && k.rank() == rank && v.rank() == rank;
  for (int axis = 0; fits && axis < rank - 2; ++axis)
    fits = k.size(axis) == q.size(axis) && v.size(axis) == q.size(axis);
  TD_CHECK(fits && k.size(-1) == q.size(-1) && v.size(-2) == k.size(-2), kName,
           ": q must be (…, T, d), k (…, S, d) and v (…, S, e), with equal leading axes; got q ", q.shape(),
           ", k ", k.shape(), " and v ", v.shape(), ".");
  TD_CHECK(k.size(-2) >= 1 && q.size(-1) >= 1, kName,
           ": there must be at least one key, of at least one element; got k ", k.shape(), ".");
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  check_shapes(q, k, v);
  const Dim queries = q.size(-2), keys = k.size(-2);
  const double scale = options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(q.size(-1)));
  TD_CHECK(std::isfinite(scale), kName, ": the scale must be a finite number; got ", scale, ".");
  Tensor taken, k_read = k, v_read = v;  // taken: bool, which keys a query takes; all where it is undefined
  if (options.lengths.defined()) {
    TD_CHECK(q.rank() >= 3, kName, ": lengths need a first axis of samples; got q ", q.shape(),
             ". unsqueeze() it.");
    const Tensor within = within_lengths(kName, options.lengths, k.size(0), keys, 1);
    Dims shape = Dims::filled(q.rank(), 1);
    shape[0] = k.size(0);
    shape[q.rank() - 1] = keys;
    taken = reshape(within, shape);
    // A weight of 0 times a NaN would be NaN, here and in the gradient of q.
    const Tensor rows = transpose(taken);
    k_read = where(rows, k, 0.0);
    v_read = where(rows, v, 0.0);
  }
  if (options.causal) {
    const Tensor before = less_equal(unsqueeze(arange(keys, DType::i64, q.device()), 0),
                                     unsqueeze(arange(queries, DType::i64, q.device()), 1));  // (T, S)
    taken = taken.defined() ? logical_and(taken, before) : before;
  }
  Tensor scores = matmul(q * scale, transpose(k_read));
  if (taken.defined()) scores = where(taken, scores, -std::numeric_limits<double>::infinity());
  return matmul(softmax(scores), v_read);
}

}  // namespace tandem
