// AdamW (Loshchilov and Hutter): Adam whose weight decay stays out of the moments.
#pragma once

#include "tandem/optim/adam.h"

namespace tandem::optim {

struct AdamWOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// p *= 1 - lr · weight_decay, then Adam's step with the gradient as it is. As PyTorch's AdamW.
class AdamW : public Adam {
 public:
  AdamW(nn::NamedTensors parameters, const AdamWOptions& options);

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  double weight_decay_;
  Tensor keep_;  // of the update under way: 1 - lr · weight_decay
};

}  // namespace tandem::optim
