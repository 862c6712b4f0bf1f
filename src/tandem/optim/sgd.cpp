// Stochastic gradient descent with momentum, plain or Nesterov's.
#include "tandem/optim/sgd.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Sgd::Sgd(nn::NamedTensors parameters, const SgdOptions& options, const Groups<SgdOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups) {
  for (const SgdOptions& o : this->options()) {
    TD_CHECK(o.momentum >= 0 && o.momentum < 1, "sgd: momentum must be at least 0 and below 1; got ",
             o.momentum, ".");
    TD_CHECK(!o.nesterov || o.momentum > 0, "sgd: nesterov needs a momentum above 0; got ", o.momentum, ".");
    if (o.momentum != 0 && momentum_.empty()) momentum_ = zeros_for_each();
  }
}

Tensor Sgd::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const SgdOptions& o = options(i);
  Tensor direction = gradient;
  if (o.momentum != 0) {
    const Tensor velocity = momentum_[i] * o.momentum + direction;
    assign(momentum_[i], velocity);
    direction = o.nesterov ? direction + velocity * o.momentum : velocity;
  }
  return value - direction * lr_tensor(group_of(i));
}

nn::NamedTensors Sgd::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "momentum", momentum_);
  return state;
}

}  // namespace tandem::optim
