// Stochastic gradient descent with momentum, plain or Nesterov's.
#include "tandem/optim/sgd.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Sgd::Sgd(nn::NamedTensors parameters, const SgdOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  TD_CHECK(options.momentum >= 0 && options.momentum < 1,
           "sgd: momentum must be at least 0 and below 1; got ", options.momentum, ".");
  TD_CHECK(options.weight_decay >= 0, "sgd: weight_decay must be at least 0; got ", options.weight_decay,
           ".");
  TD_CHECK(!options.nesterov || options.momentum > 0, "sgd: nesterov needs a momentum above 0; got ",
           options.momentum, ".");
  if (options.momentum != 0) momentum_ = zeros_for_each();
}

Tensor Sgd::step(size_t i, const Tensor& value, const Tensor& gradient) {
  Tensor direction = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  if (!momentum_.empty()) {
    const Tensor velocity = momentum_[i] * options_.momentum + direction;
    assign(momentum_[i], velocity);
    direction = options_.nesterov ? direction + velocity * options_.momentum : velocity;
  }
  return value - direction * lr_tensor();
}

nn::NamedTensors Sgd::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "momentum", momentum_);
  return state;
}

}  // namespace tandem::optim
