// Adam (Kingma and Ba) with bias correction.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdamOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

/// g += weight_decay · p;  m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²;
/// p -= lr / (1 - β1^t) · m / (√v / √(1 - β2^t) + ε), as PyTorch's Adam. The step count t is a tensor.
class Adam : public Optimizer {
 public:
  Adam(nn::NamedTensors parameters, const AdamOptions& options);
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  AdamOptions options_;
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> mean_, square_;
  Tensor rate_, root_;  // of the update under way: lr / (1 - β1^t) and √(1 - β2^t)
};

}  // namespace tandem::optim
