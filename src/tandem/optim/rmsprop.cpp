// RMSprop.
#include "tandem/optim/rmsprop.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

RmsProp::RmsProp(nn::NamedTensors parameters, const RmsPropOptions& options,
                 const Groups<RmsPropOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups), square_(zeros_for_each()) {
  for (const RmsPropOptions& o : this->options()) {
    TD_CHECK(o.alpha >= 0 && o.alpha <= 1, "rmsprop: alpha must be between 0 and 1; got ", o.alpha, ".");
    TD_CHECK(o.momentum >= 0 && o.momentum < 1, "rmsprop: momentum must be at least 0 and below 1; got ",
             o.momentum, ".");
    TD_CHECK(o.epsilon >= 0, "rmsprop: epsilon must be at least 0; got ", o.epsilon, ".");
    if (o.centered && mean_.empty()) mean_ = zeros_for_each();
    if (o.momentum != 0 && momentum_.empty()) momentum_ = zeros_for_each();
  }
}

Tensor RmsProp::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const RmsPropOptions& o = options(i);
  const Tensor square = square_[i] * o.alpha + gradient * gradient * (1 - o.alpha);
  Tensor spread = square;
  if (o.centered) {
    const Tensor mean = mean_[i] * o.alpha + gradient * (1 - o.alpha);
    spread = square - mean * mean;
    store(mean_[i], mean);
  }
  Tensor direction = gradient / (sqrt(spread) + o.epsilon);
  store(square_[i], square);
  if (o.momentum != 0) {
    direction = momentum_[i] * o.momentum + direction;
    store(momentum_[i], direction);
  }
  return value - direction * lr_tensor(group_of(i));
}

nn::NamedTensors RmsProp::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "square", square_);
  append_state(state, "mean", mean_);
  append_state(state, "momentum", momentum_);
  return state;
}

}  // namespace tandem::optim
