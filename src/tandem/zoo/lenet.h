// LeNet-5 as trained on MNIST: convolutions of 6 and 16 channels, each with ReLU and a 2×2 max pool, then 120,
// 84 and 10 units.
#pragma once

#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 1, 28, 28) -> logits (N, classes).
class LeNet : public nn::Module {
 public:
  explicit LeNet(int64_t classes = 10) : fc3(this, "fc3", 84, classes) {}
  Tensor forward(const Tensor& x) override;

  nn::Conv2d conv1{this, "conv1", 1, 6, 5, {.padding = 2}};
  nn::Conv2d conv2{this, "conv2", 6, 16, 5};
  nn::Linear fc1{this, "fc1", 16 * 5 * 5, 120};
  nn::Linear fc2{this, "fc2", 120, 84};
  nn::Linear fc3;
};

}  // namespace tandem::zoo
