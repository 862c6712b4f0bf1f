// RAdam (Liu and others): Adam that waits with its second moment until that is known well enough.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct RAdamOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// m and v as Adam's;  ρ∞ = 2 / (1 - β2) - 1;  ρ = ρ∞ - 2 t β2^t / (1 - β2^t). Where ρ > 5:
/// p -= lr · r · m̂ · √(1 - β2^t) / (√v + ε) with r = √((ρ - 4)(ρ - 2) ρ∞ / ((ρ∞ - 4)(ρ∞ - 2) ρ)); before: p -= lr · m̂. As
/// PyTorch's RAdam. The step count t is a tensor, and both steps are computed at every step.
class RAdam : public OptimizerWith<RAdamOptions> {
 public:
  RAdam(nn::NamedTensors parameters, const RAdamOptions& options, const Groups<RAdamOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> mean_, square_;
  // Of the update under way, by group: lr / (1 - β1^t), whether ρ > 5, r · √(1 - β2^t).
  std::vector<Tensor> rate_, is_known_, factor_;
};

}  // namespace tandem::optim
