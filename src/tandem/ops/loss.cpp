#include "tandem/ops/loss.h"

#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem {

Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  TD_CHECK(logits.defined() && target.defined() && logits.rank() == 2 && target.rank() == 1 &&
               logits.shape()[0] == target.shape()[0],
           "cross_entropy: logits must be (N, classes) and target (N); got ", describe(logits), " and ",
           describe(target), ".");
  TD_CHECK(target.dtype() == DType::i64 || target.dtype() == DType::i32,
           "cross_entropy: the target must be i64 or i32; got ", describe(target), ". cast() it first.");
  const Tensor picked = gather(log_softmax(logits, 1), 1, reshape(target, {target.size(), 1}));
  return neg(mean(picked));
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target) {
  const Tensor difference = prediction - target;
  return mean(difference * difference);
}

}  // namespace tandem
