// Adamax (Kingma and Ba): Adam with the largest recent gradient in place of the second moment.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdamaxOptions {
  double lr = 0.002;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// m = β1 m + (1 - β1) g;  u = max(β2 u, |g| + ε);  p -= lr / (1 - β1^t) · m / u, as
/// PyTorch's Adamax. The step count t is a tensor.
class Adamax : public OptimizerWith<AdamaxOptions> {
 public:
  Adamax(nn::NamedTensors parameters, const AdamaxOptions& options, const Groups<AdamaxOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> mean_, largest_;
  std::vector<Tensor> rate_;  // of the update under way, by group: lr / (1 - β1^t)
};

}  // namespace tandem::optim
