// LAMB (You and others): Adam's direction, scaled for each parameter by the norm of its value.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct LambOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
};

/// m, v and their bias corrections as Adam's;  d = m̂ / (√v̂ + ε) + weight_decay · p;  p -= lr · ‖p‖ / ‖d‖ · d. The
/// ratio is 1 where either norm is 0.
class Lamb : public Optimizer {
 public:
  Lamb(nn::NamedTensors parameters, const LambOptions& options);
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  LambOptions options_;
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> mean_, square_;
  Tensor mean_scale_, root_;  // of the update under way: 1 / (1 - β1^t) and √(1 - β2^t)
};

}  // namespace tandem::optim
