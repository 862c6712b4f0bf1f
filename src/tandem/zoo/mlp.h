// A multi-layer perceptron for images of digits: 784, 256, 128 and 10 units, with ReLU between.
#pragma once

#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 1, 28, 28) or (N, 784) -> logits (N, classes).
class Mlp : public nn::Module {
 public:
  explicit Mlp(int64_t classes = 10) : fc3(this, "fc3", 128, classes) {}
  Tensor forward(const Tensor& x) override;

  nn::Linear fc1{this, "fc1", 784, 256};
  nn::Linear fc2{this, "fc2", 256, 128};
  nn::Linear fc3;
};

}  // namespace tandem::zoo
