// LAMB. The bias corrections are computed in f64, as Adam's.
#include "tandem/optim/lamb.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Lamb::Lamb(nn::NamedTensors parameters, const LambOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      options_(options),
      count_(zeros({}, DType::i64, lr_tensor().device())),
      mean_(zeros_for_each()),
      square_(zeros_for_each()) {
  TD_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
           "lamb: beta1 and beta2 must be at least 0 and below 1; got ", options.beta1, " and ",
           options.beta2, ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "lamb: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
}

void Lamb::begin() {
  assign(count_, count_ + 1);
  const Tensor t = cast(count_, DType::f64);
  mean_scale_ = cast(1.0 / (1.0 - pow(options_.beta1, t)), compute_dtype());
  root_ = cast(sqrt(1.0 - pow(options_.beta2, t)), compute_dtype());
}

Tensor Lamb::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor mean = mean_[i] * options_.beta1 + gradient * (1 - options_.beta1);
  const Tensor square = square_[i] * options_.beta2 + gradient * gradient * (1 - options_.beta2);
  Tensor direction = mean * mean_scale_ / (sqrt(square) / root_ + options_.epsilon);
  if (options_.weight_decay != 0) direction = direction + value * options_.weight_decay;
  const Tensor size = sqrt(sum(value * value));
  const Tensor length = sqrt(sum(direction * direction));
  const Tensor there = greater(length, 0);  // a division by 0 is never made, not even to be thrown away
  const Tensor ratio =
      where(logical_and(there, greater(size, 0)), size / where(there, length, ones_like(length)), 1.0);
  assign(mean_[i], mean);
  assign(square_[i], square);
  return value - direction * (ratio * lr_tensor());
}

nn::NamedTensors Lamb::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "square", square_);
  return state;
}

}  // namespace tandem::optim
