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
  bool decoupled = false;  ///< weight decay shrinks the value, else it is added to the gradient
  bool amsgrad = false;    ///< v in the step is the largest so far (Reddi and others)
};

/// m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²;
/// p -= lr / (1 - β1^t) · m / (√v / √(1 - β2^t) + ε), as PyTorch's Adam. The step count t is a tensor.
class Adam : public OptimizerWith<AdamOptions> {
 public:
  Adam(nn::NamedTensors parameters, const AdamOptions& options, const Groups<AdamOptions>& groups = {})
      : Adam("adam", std::move(parameters), options, groups) {}
  nn::NamedTensors named_state() const override;

 protected:
  Adam(const char* name, nn::NamedTensors parameters, const AdamOptions& options,
       const Groups<AdamOptions>& groups);
  void begin() override;
  Tensor step(size_t i, const Tensor& value, const Tensor& gradient) override;

  /// Takes a gradient into the moments and returns m / (√v / √(1 - β2^t) + ε).
  Tensor direction(size_t i, const Tensor& gradient);
  /// 1 - β1^t of the update under way.
  const Tensor& bias(size_t i) const { return bias_[group_of(i)]; }

 private:
  Tensor count_;  // i64 (): steps done
  std::vector<Tensor> mean_, square_;
  std::vector<Tensor> largest_square_;  // empty where no group has amsgrad
  std::vector<Tensor> bias_, rate_,
      root_;  // of the update under way, by group: 1 - β1^t, lr / bias, √(1 - β2^t)
};

/// The options of a relative of Adam, which differ in their defaults alone.
template <class Options>
AdamOptions as_adam(const Options& o) {
  AdamOptions out{o.lr, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.decoupled};
  if constexpr (requires { o.amsgrad; }) out.amsgrad = o.amsgrad;
  return out;
}
template <class Options>
Groups<AdamOptions> as_adam(const Groups<Options>& groups) {
  Groups<AdamOptions> out;
  for (const Group<Options>& group : groups) out.push_back({group.takes, as_adam(group.options)});
  return out;
}

}  // namespace tandem::optim
