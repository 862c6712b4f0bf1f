// The convolutional networks that DLBench trains on CIFAR: pairs of 3×3 convolutions that keep the size, each with
// ReLU, then a 2×2 max pool and dropout; then two dense layers with dropout between.
#pragma once

#include <array>

#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 3, 32, 32) -> logits (N, classes). 32, 32, 64 and 64 channels, then 512 units.
class Cifar10Cnn : public nn::Module {
 public:
  explicit Cifar10Cnn(std::array<double, 3> dropout = {0.25, 0.25, 0.5}, int64_t classes = 10)
      : drop1(this, "drop1", dropout[0]),
        drop2(this, "drop2", dropout[1]),
        drop3(this, "drop3", dropout[2]),
        fc2(this, "fc2", 512, classes) {}
  Tensor forward(const Tensor& x) override;

  nn::Conv2d conv1{this, "conv1", 3, 32, 3, {.padding = 1}};
  nn::Conv2d conv2{this, "conv2", 32, 32, 3, {.padding = 1}};
  nn::Dropout drop1;
  nn::Conv2d conv3{this, "conv3", 32, 64, 3, {.padding = 1}};
  nn::Conv2d conv4{this, "conv4", 64, 64, 3, {.padding = 1}};
  nn::Dropout drop2;
  nn::Linear fc1{this, "fc1", 64 * 8 * 8, 512};
  nn::Dropout drop3;
  nn::Linear fc2;
};

/// x (N, 3, 32, 32) -> logits (N, classes). Twice 128, 256 and 512 channels, then 1024 units.
class Cifar100Cnn : public nn::Module {
 public:
  explicit Cifar100Cnn(std::array<double, 4> dropout = {0.1, 0.25, 0.5, 0.5}, int64_t classes = 100)
      : drop1(this, "drop1", dropout[0]),
        drop2(this, "drop2", dropout[1]),
        drop3(this, "drop3", dropout[2]),
        drop4(this, "drop4", dropout[3]),
        fc2(this, "fc2", 1024, classes) {}
  Tensor forward(const Tensor& x) override;

  nn::Conv2d conv1{this, "conv1", 3, 128, 3, {.padding = 1}};
  nn::Conv2d conv2{this, "conv2", 128, 128, 3, {.padding = 1}};
  nn::Dropout drop1;
  nn::Conv2d conv3{this, "conv3", 128, 256, 3, {.padding = 1}};
  nn::Conv2d conv4{this, "conv4", 256, 256, 3, {.padding = 1}};
  nn::Dropout drop2;
  nn::Conv2d conv5{this, "conv5", 256, 512, 3, {.padding = 1}};
  nn::Conv2d conv6{this, "conv6", 512, 512, 3, {.padding = 1}};
  nn::Dropout drop3;
  nn::Linear fc1{this, "fc1", 512 * 4 * 4, 1024};
  nn::Dropout drop4;
  nn::Linear fc2;
};

}  // namespace tandem::zoo
