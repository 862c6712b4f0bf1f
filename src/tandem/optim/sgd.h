// Stochastic gradient descent with momentum, plain or Nesterov's.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;   ///< needs momentum, and no dampening
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
  double dampening = 0.0;  ///< of the gradient in the momentum; needs momentum
};

/// v = momentum · v + (1 - dampening) · g;  p -= lr · v. As PyTorch's SGD: the first v is g, without
/// dampening. With nesterov: p -= lr · (g + momentum · v).
class Sgd : public OptimizerWith<SgdOptions> {
 public:
  Sgd(nn::NamedTensors parameters, const SgdOptions& options, const Groups<SgdOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  std::vector<Tensor> momentum_;  // empty where momentum is 0
  std::vector<Tensor>
      started_;  // (), 0 or 1: whether the momentum holds a gradient; empty where dampening is 0
};

}  // namespace tandem::optim
