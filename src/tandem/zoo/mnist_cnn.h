// The convolutional network that is often trained on MNIST: 32 and 64 channels of 3×3 without padding, a 2×2 max
// pool, dropout, 128 units, dropout, 10 units.
#pragma once

#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 1, 28, 28) -> logits (N, classes).
class MnistCnn : public nn::Module {
 public:
  explicit MnistCnn(double dropout1 = 0.25, double dropout2 = 0.5, int64_t classes = 10)
      : drop1(this, "drop1", dropout1), drop2(this, "drop2", dropout2), fc2(this, "fc2", 128, classes) {}
  Tensor forward(const Tensor& x) override;

  nn::Conv2d conv1{this, "conv1", 1, 32, 3};
  nn::Conv2d conv2{this, "conv2", 32, 64, 3};
  nn::Dropout drop1;
  nn::Linear fc1{this, "fc1", 64 * 12 * 12, 128};
  nn::Dropout drop2;
  nn::Linear fc2;
};

}  // namespace tandem::zoo
