// The convolutional network for MNIST.
#include "tandem/zoo/mnist_cnn.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

Tensor MnistCnn::forward(const Tensor& x) {
  Tensor h = relu(conv2(relu(conv1(x))));  // (N, 64, 24, 24)
  h = drop1(max_pool2d(h));                // (N, 64, 12, 12)
  h = drop2(relu(fc1(flatten(h, 1))));
  return fc2(h);
}

}  // namespace tandem::zoo
