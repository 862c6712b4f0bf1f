// Stochastic gradient descent with momentum, plain or Nesterov's.
#include "tandem/optim/sgd.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Sgd::Sgd(nn::NamedTensors parameters, const SgdOptions& options, const Groups<SgdOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups) {
  for (const SgdOptions& o : this->options()) {
    TD_CHECK(o.momentum >= 0 && o.momentum < 1, "sgd: momentum must be at least 0 and below 1; got ",
             o.momentum, ".");
    TD_CHECK(!o.nesterov || o.momentum > 0, "sgd: nesterov needs a momentum above 0; got ", o.momentum, ".");
    TD_CHECK(o.dampening >= 0 && o.dampening <= 1, "sgd: dampening must be between 0 and 1; got ",
             o.dampening, ".");
    TD_CHECK(o.dampening == 0 || (o.momentum > 0 && !o.nesterov),
             "sgd: dampening needs a momentum above 0, and not nesterov; got dampening ", o.dampening,
             ", momentum ", o.momentum, o.nesterov ? " and nesterov." : ".");
    if (o.momentum != 0 && momentum_.empty()) momentum_ = zeros_for_each();
    if (o.dampening != 0 && started_.empty())
      for (size_t i = 0; i < this->parameters().size(); ++i) started_.push_back(state_tensor({}));
  }
}

Tensor Sgd::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const SgdOptions& o = options(i);
  Tensor direction = gradient;
  if (o.momentum != 0) {
    Tensor taken = direction;
    if (o.dampening != 0) {
      taken = direction * (1.0 - started_[i] * o.dampening);
      store(started_[i], ones({}, compute_dtype(), device()));
    }
    const Tensor velocity = momentum_[i] * o.momentum + taken;
    store(momentum_[i], velocity);
    direction = o.nesterov ? direction + velocity * o.momentum : velocity;
  }
  return value - direction * lr_tensor(group_of(i));
}

nn::NamedTensors Sgd::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "momentum", momentum_);
  append_state(state, "started", started_);
  return state;
}

}  // namespace tandem::optim
