// LAMB: what it does with Adam's direction.
#include "tandem/optim/lamb.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"

namespace tandem::optim {

Tensor Lamb::step(size_t i, const Tensor& value, const Tensor& gradient) {
  Tensor way = direction(i, gradient) / bias(i);
  if (options(i).weight_decay != 0 && options(i).decoupled) way = way + value * options(i).weight_decay;
  const Tensor size = sqrt(sum(value * value));
  const Tensor length = sqrt(sum(way * way));
  const Tensor there = greater(length, 0);  // a division by 0 is never made, not even to be thrown away
  const Tensor ratio =
      where(logical_and(there, greater(size, 0)), size / where(there, length, ones_like(length)), 1.0);
  return value - way * (ratio * lr_tensor(group_of(i)));
}

}  // namespace tandem::optim
