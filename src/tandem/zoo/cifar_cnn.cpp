// The convolutional networks for CIFAR-10 and CIFAR-100.
#include "tandem/zoo/cifar_cnn.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

Tensor Cifar10Cnn::forward(const Tensor& x) {
  Tensor h = drop1(max_pool2d(relu(conv2(relu(conv1(x))))));  // (N, 32, 16, 16)
  h = drop2(max_pool2d(relu(conv4(relu(conv3(h))))));         // (N, 64, 8, 8)
  return fc2(drop3(relu(fc1(flatten(h, 1)))));
}

Tensor Cifar100Cnn::forward(const Tensor& x) {
  Tensor h = drop1(max_pool2d(relu(conv2(relu(conv1(x))))));  // (N, 128, 16, 16)
  h = drop2(max_pool2d(relu(conv4(relu(conv3(h))))));         // (N, 256, 8, 8)
  h = drop3(max_pool2d(relu(conv6(relu(conv5(h))))));         // (N, 512, 4, 4)
  return fc2(drop4(relu(fc1(flatten(h, 1)))));
}

}  // namespace tandem::zoo
