// The convolutional network that DLBench trains on SVHN: eight blocks of a 3×3 convolution that keeps the size (48,
// 64, 128, 160 and four times 192 channels), ReLU, a 2×2 max pool and dropout; then 512 units, dropout and the classes.
//
// The pools' strides alternate 2 and 1, as in the network that it comes from (Goodfellow et al. 2013), where every
// second layer keeps the size. A pool of stride 1 does so by taking each pixel with its right, lower and lower right
// neighbours; beyond the last row and column there are none. Sizes are 16, 16, 8, 8, 4, 4, 2, 2. In PyTorch:
// F.max_pool2d(x, 2, stride=1, padding=1)[:, :, 1:, 1:]; in TensorFlow: padding "SAME". The paper does not give the
// width of the first dense layer: 512 is ours, as in cifar10_cnn.
#pragma once

#include <memory>
#include <vector>

#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 3, 32, 32) -> logits (N, classes). Layers conv1 … conv8, fc1 and fc2.
class SvhnCnn : public nn::Module {
 public:
  explicit SvhnCnn(double block_dropout = 0.2, double dense_dropout = 0.5, int64_t classes = 10);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::shared_ptr<nn::Conv2d>> convs_;
  std::vector<std::shared_ptr<nn::Dropout>> drops_;  // the last is between the dense layers
  std::shared_ptr<nn::Linear> fc1_, fc2_;
};

}  // namespace tandem::zoo
