// LeNet-5.
#include "tandem/zoo/lenet.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

Tensor LeNet::forward(const Tensor& x) {
  Tensor h = max_pool2d(relu(conv1(x)));  // (N, 6, 14, 14)
  h = max_pool2d(relu(conv2(h)));         // (N, 16, 5, 5)
  h = relu(fc1(flatten(h, 1)));
  return fc3(relu(fc2(h)));
}

}  // namespace tandem::zoo
