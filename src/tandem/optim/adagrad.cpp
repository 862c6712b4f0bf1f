// Adagrad.
#include "tandem/optim/adagrad.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adagrad::Adagrad(nn::NamedTensors parameters, const AdagradOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      options_(options),
      count_(zeros({}, DType::i64, lr_tensor().device())) {
  TD_CHECK(options.lr_decay >= 0 && options.initial_sum >= 0,
           "adagrad: lr_decay and initial_sum must be at least 0; got ", options.lr_decay, " and ",
           options.initial_sum, ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "adagrad: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
  for (const auto& [name, tensor] : this->parameters())
    sum_.push_back(full(tensor.shape(), options.initial_sum, compute_dtype(), tensor.device()));
}

void Adagrad::begin() {
  const Tensor done = cast(count_, DType::f64);
  rate_ = lr_tensor() / cast(1.0 + done * options_.lr_decay, compute_dtype());
  assign(count_, count_ + 1);
}

Tensor Adagrad::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor g = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  const Tensor sum = sum_[i] + g * g;
  assign(sum_[i], sum);
  return value - rate_ * (g / (sqrt(sum) + options_.epsilon));
}

nn::NamedTensors Adagrad::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "sum", sum_);
  return state;
}

}  // namespace tandem::optim
