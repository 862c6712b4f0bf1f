// RMSprop (Hinton), with momentum and centring as options.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct RmsPropOptions {
  double lr = 0.01;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool centered = false;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// s = α s + (1 - α) g²;  d = g / (√s + ε);  p -= lr · d, as PyTorch's RMSprop.
/// Centred: m = α m + (1 - α) g, and √(s - m²) in place of √s. With momentum: b = momentum · b + d;  p -= lr · b.
class RmsProp : public OptimizerWith<RmsPropOptions> {
 public:
  RmsProp(nn::NamedTensors parameters, const RmsPropOptions& options,
          const Groups<RmsPropOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  std::vector<Tensor> square_, mean_, momentum_;  // mean_ and momentum_: empty where not asked for
};

}  // namespace tandem::optim
