// ResNet-18 (He et al. 2015), with the layers, sizes and names of torchvision's: a 7×7 stem of stride 2 and a 3×3 max
// pool, four stages of two blocks with 64, 128, 256 and 512 channels, the mean over the last grid, and a dense layer.
#pragma once

#include <memory>

#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"

namespace tandem::zoo {

/// Two 3×3 convolutions whose result is added to the input. Where the stride or the number of channels changes, the
/// input goes through a 1×1 convolution first ("downsample").
class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride);
  Tensor forward(const Tensor& x) override;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  std::shared_ptr<nn::Sequential> downsample_;  // null: the input as it is
};

/// x (N, 3, H, W) of any size -> logits (N, classes).
class ResNet18 : public nn::Module {
 public:
  explicit ResNet18(int64_t classes = 1000);
  Tensor forward(const Tensor& x) override;

 private:
  nn::Conv2d conv1_{this, "conv1", 3, 64, 7, {.stride = 2, .padding = 3, .bias = false}};
  nn::BatchNorm2d bn1_{this, "bn1", 64};
  nn::Sequential layer1_, layer2_, layer3_, layer4_;
  nn::Linear fc_;
};

}  // namespace tandem::zoo
