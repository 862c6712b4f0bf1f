// Adagrad (Duchi, Hazan and Singer): each element's rate falls with its gradients' sum of squares.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdagradOptions {
  double lr = 0.01;
  double lr_decay = 0.0;
  double initial_sum = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
};

/// s += g²;  p -= lr / (1 + (t - 1) lr_decay) · g / (√s + ε), as PyTorch's Adagrad. s
/// begins at initial_sum. The step count t is a tensor.
class Adagrad : public OptimizerWith<AdagradOptions> {
 public:
  Adagrad(nn::NamedTensors parameters, const AdagradOptions& options,
          const Groups<AdagradOptions>& groups = {});
  nn::NamedTensors named_state() const override;

 protected:
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

 private:
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> sum_;
  std::vector<Tensor> rate_;  // of the update under way, by group: lr / (1 + (t - 1) lr_decay)
};

}  // namespace tandem::optim
