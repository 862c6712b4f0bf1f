// Adadelta (Zeiler): the step has the size of recent steps, so that it needs no learning rate.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// s = ρ s + (1 - ρ) g²;  d = √(a + ε) / √(s + ε) · g;  a = ρ a + (1 - ρ) d²;
/// p -= lr · d, as PyTorch's Adadelta.
class Adadelta : public OptimizerWith<AdadeltaOptions> {
 public:
  Adadelta(nn::NamedTensors parameters, const AdadeltaOptions& options,
           const Groups<AdadeltaOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  std::vector<Tensor> square_, delta_;
};

}  // namespace tandem::optim
