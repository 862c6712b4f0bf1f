// Adam. The bias corrections are computed in f64: 1 - 0.999^t loses half its digits in f32 at the first steps.
#include "tandem/optim/adam.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adam::Adam(nn::NamedTensors parameters, const AdamOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      options_(options),
      count_(zeros({}, DType::i64, lr_tensor().device())),
      mean_(zeros_for_each()),
      square_(zeros_for_each()) {
  TD_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
           "adam: beta1 and beta2 must be at least 0 and below 1; got ", options.beta1, " and ",
           options.beta2, ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "adam: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
}

void Adam::begin() {
  assign(count_, count_ + 1);
  const Tensor t = cast(count_, DType::f64);
  rate_ = lr_tensor() / cast(1.0 - pow(options_.beta1, t), compute_dtype());
  root_ = cast(sqrt(1.0 - pow(options_.beta2, t)), compute_dtype());
}

Tensor Adam::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor g = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  const Tensor mean = mean_[i] * options_.beta1 + g * (1 - options_.beta1);
  const Tensor square = square_[i] * options_.beta2 + g * g * (1 - options_.beta2);
  assign(mean_[i], mean);
  assign(square_[i], square);
  return value - rate_ * (mean / (sqrt(square) / root_ + options_.epsilon));
}

nn::NamedTensors Adam::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "square", square_);
  return state;
}

}  // namespace tandem::optim
