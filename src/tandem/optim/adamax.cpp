// Adamax. The bias correction is computed in f64, as Adam's.
#include "tandem/optim/adamax.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adamax::Adamax(nn::NamedTensors parameters, const AdamaxOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      options_(options),
      count_(zeros({}, DType::i64, lr_tensor().device())),
      mean_(zeros_for_each()),
      largest_(zeros_for_each()) {
  TD_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
           "adamax: beta1 and beta2 must be at least 0 and below 1; got ", options.beta1, " and ",
           options.beta2, ".");
  TD_CHECK(options.epsilon >= 0 && options.weight_decay >= 0,
           "adamax: epsilon and weight_decay must be at least 0; got ", options.epsilon, " and ",
           options.weight_decay, ".");
}

void Adamax::begin() {
  assign(count_, count_ + 1);
  rate_ = lr_tensor() / cast(1.0 - pow(options_.beta1, cast(count_, DType::f64)), compute_dtype());
}

Tensor Adamax::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor g = options_.weight_decay == 0 ? gradient : gradient + value * options_.weight_decay;
  const Tensor mean = mean_[i] * options_.beta1 + g * (1 - options_.beta1);
  const Tensor largest = maximum(largest_[i] * options_.beta2, abs(g) + options_.epsilon);
  assign(mean_[i], mean);
  assign(largest_[i], largest);
  return value - rate_ * (mean / largest);
}

nn::NamedTensors Adamax::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "largest", largest_);
  return state;
}

}  // namespace tandem::optim
