// NAdam (Dozat): Adam with Nesterov's momentum.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct NAdamOptions {
  double lr = 0.002;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double momentum_decay = 0.004;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// m and v as Adam's;  μ_t = β1 (1 - ½ · 0.96^(t · momentum_decay));  M = μ_1 · … · μ_t;
/// p -= lr · ((1 - μ_t) / (1 - M) · g + μ_{t+1} / (1 - M μ_{t+1}) · m) / (√(v / (1 - β2^t)) + ε), as PyTorch's NAdam. The
/// step count t and M are tensors.
class NAdam : public OptimizerWith<NAdamOptions> {
 public:
  NAdam(nn::NamedTensors parameters, const NAdamOptions& options, const Groups<NAdamOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  Tensor count_;                 // i64 (): steps done
  std::vector<Tensor> product_;  // f64 (), by group: M
  std::vector<Tensor> mean_, square_;
  // Of the update under way, by group: the rates of gradient and mean, √(1 - β2^t).
  std::vector<Tensor> gradient_rate_, mean_rate_, root_;
};

}  // namespace tandem::optim
