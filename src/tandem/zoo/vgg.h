// VGG-16 (Simonyan and Zisserman 2014), with the layers, sizes and names of torchvision's, without batch norm: five
// groups of 3×3 convolutions, each followed by a 2×2 max pool, and dense layers of 4096, 4096 and the classes. The last
// grid is flattened as it is: another size of images needs another first dense layer. At 224×224 that is torchvision's.
#pragma once

#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 3, height, width), both at least 32 -> logits (N, classes).
class Vgg16 : public nn::Module {
 public:
  explicit Vgg16(int64_t height = 224, int64_t width = 224, double dropout = 0.5, int64_t classes = 1000);
  Tensor forward(const Tensor& x) override;

 private:
  int64_t height_, width_;
  // Numbers are places in torchvision's lists, which hold the activations and pools too.
  nn::ModuleDict features_, classifier_;
};

}  // namespace tandem::zoo
