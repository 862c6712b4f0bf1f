// Stochastic gradient descent with momentum, plain or Nesterov's.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;   ///< needs momentum
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// v = momentum · v + g;  p -= lr · v. As PyTorch's SGD: v begins at 0, so that the
/// first v is g. With nesterov: p -= lr · (g + momentum · v).
class Sgd : public OptimizerWith<SgdOptions> {
 public:
  Sgd(nn::NamedTensors parameters, const SgdOptions& options, const Groups<SgdOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  std::vector<Tensor> momentum_;  // empty where momentum is 0
};

}  // namespace tandem::optim
