// AlexNet in one tower (Krizhevsky 2014), with the layers, sizes and names of torchvision's: convolutions of 64, 192,
// 384, 256 and 256 channels, three 3×3 max pools of stride 2, a mean over a 6×6 grid, and dense layers of 4096, 4096
// and the classes.
#pragma once

#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"

namespace tandem::zoo {

/// x (N, 3, H, W), H and W at least 63 (224 as published) -> logits (N, classes).
class AlexNet : public nn::Module {
 public:
  explicit AlexNet(double dropout = 0.5, int64_t classes = 1000);
  Tensor forward(const Tensor& x) override;

 private:
  // Numbers are places in torchvision's lists, which hold the activations and pools too.
  nn::ModuleDict features_, classifier_;
};

}  // namespace tandem::zoo
