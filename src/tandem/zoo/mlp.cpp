// The multi-layer perceptron.
#include "tandem/zoo/mlp.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = x.rank() == 2 ? x : flatten(x, 1);
  h = relu(fc1(h));
  return fc3(relu(fc2(h)));
}

}  // namespace tandem::zoo
