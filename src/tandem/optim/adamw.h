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
  bool decoupled = true;
  bool amsgrad = false;  ///< v in the step is the largest so far
};

/// p *= 1 - lr · weight_decay, then Adam's step with the gradient as it is. As PyTorch's AdamW.
class AdamW : public Adam {
 public:
  AdamW(nn::NamedTensors parameters, const AdamWOptions& options, const Groups<AdamWOptions>& groups = {})
      : Adam("adamw", std::move(parameters), as_adam(options), as_adam(groups)) {}
};

}  // namespace tandem::optim
