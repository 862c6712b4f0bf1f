// Adadelta.
#include "tandem/optim/adadelta.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adadelta::Adadelta(nn::NamedTensors parameters, const AdadeltaOptions& options,
                   const Groups<AdadeltaOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups),
      square_(zeros_for_each()),
      delta_(zeros_for_each()) {
  for (const AdadeltaOptions& o : this->options()) {
    TD_CHECK(o.rho >= 0 && o.rho <= 1, "adadelta: rho must be between 0 and 1; got ", o.rho, ".");
    TD_CHECK(o.epsilon >= 0, "adadelta: epsilon must be at least 0; got ", o.epsilon, ".");
  }
}

Tensor Adadelta::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const AdadeltaOptions& o = options(i);
  const Tensor square = square_[i] * o.rho + gradient * gradient * (1 - o.rho);
  const Tensor delta = sqrt(delta_[i] + o.epsilon) / sqrt(square + o.epsilon) * gradient;
  const Tensor changed = value - delta * lr_tensor(group_of(i));
  store(square_[i], square);
  store(delta_[i], delta_[i] * o.rho + delta * delta * (1 - o.rho));
  return changed;
}

nn::NamedTensors Adadelta::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "square", square_);
  append_state(state, "delta", delta_);
  return state;
}

}  // namespace tandem::optim
