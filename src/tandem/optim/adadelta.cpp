// Adadelta.
#include "tandem/optim/adadelta.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adadelta::Adadelta(nn::NamedTensors parameters, const AdadeltaOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      options_(options),
      square_(zeros_for_each()),
      delta_(zeros_for_each()) {
  TD_CHECK(options.rho >= 0 && options.rho <= 1, "adadelta: rho must be between 0 and 1; got ", options.rho,
           ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "adadelta: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
}

Tensor Adadelta::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor g = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  const Tensor square = square_[i] * options_.rho + g * g * (1 - options_.rho);
  const Tensor delta = sqrt(delta_[i] + options_.epsilon) / sqrt(square + options_.epsilon) * g;
  const Tensor changed = value - delta * lr_tensor();
  assign(square_[i], square);
  assign(delta_[i], delta_[i] * options_.rho + delta * delta * (1 - options_.rho));
  return changed;
}

nn::NamedTensors Adadelta::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "square", square_);
  append_state(state, "delta", delta_);
  return state;
}

}  // namespace tandem::optim
