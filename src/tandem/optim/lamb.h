// LAMB (You and others): Adam's direction, scaled for each parameter by the norm of its value.
#pragma once

#include "tandem/optim/adam.h"

namespace tandem::optim {

struct LambOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  bool decoupled =
      true;  ///< the decay is part of the direction, as LAMB has it; else it is added to the gradient
};

/// m, v and their bias corrections as Adam's;  d = m̂ / (√v̂ + ε) + weight_decay · p;  p -= lr · ‖p‖ / ‖d‖ · d. The
/// ratio is 1 where either norm is 0.
class Lamb : public Adam {
 public:
  Lamb(nn::NamedTensors parameters, const LambOptions& options, const Groups<LambOptions>& groups = {})
      : Adam("lamb", std::move(parameters), as_adam(options), as_adam(groups)) {}

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;
  bool decays_itself() const override { return true; }
};

}  // namespace tandem::optim
