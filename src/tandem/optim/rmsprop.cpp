// RMSprop.
#include "tandem/optim/rmsprop.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

RmsProp::RmsProp(nn::NamedTensors parameters, const RmsPropOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options), square_(zeros_for_each()) {
  TD_CHECK(options.alpha >= 0 && options.alpha <= 1, "rmsprop: alpha must be between 0 and 1; got ",
           options.alpha, ".");
  TD_CHECK(options.momentum >= 0 && options.momentum < 1,
           "rmsprop: momentum must be at least 0 and below 1; got ", options.momentum, ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "rmsprop: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
  if (options.centered) mean_ = zeros_for_each();
  if (options.momentum != 0) momentum_ = zeros_for_each();
}

Tensor RmsProp::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor g = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  const Tensor square = square_[i] * options_.alpha + g * g * (1 - options_.alpha);
  Tensor spread = square;
  if (options_.centered) {
    const Tensor mean = mean_[i] * options_.alpha + g * (1 - options_.alpha);
    spread = square - mean * mean;
    assign(mean_[i], mean);
  }
  Tensor direction = g / (sqrt(spread) + options_.epsilon);
  assign(square_[i], square);
  if (!momentum_.empty()) {
    direction = momentum_[i] * options_.momentum + direction;
    assign(momentum_[i], direction);
  }
  return value - direction * lr_tensor();
}

nn::NamedTensors RmsProp::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  append_state(state, "square", square_);
  append_state(state, "mean", mean_);
  append_state(state, "momentum", momentum_);
  return state;
}

}  // namespace tandem::optim
