// NAdam. What belongs to the step count is computed in f64, as Adam's.
#include "tandem/optim/nadam.h"

#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

NAdam::NAdam(nn::NamedTensors parameters, const NAdamOptions& options, const Groups<NAdamOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups),
      count_(zeros({}, DType::i64, device())),
      mean_(zeros_for_each()),
      square_(zeros_for_each()) {
  for (const NAdamOptions& o : this->options()) {
    TD_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
             "nadam: beta1 and beta2 must be at least 0 and below 1; got ", o.beta1, " and ", o.beta2, ".");
    TD_CHECK(o.epsilon >= 0, "nadam: epsilon must be at least 0; got ", o.epsilon, ".");
    TD_CHECK(o.momentum_decay >= 0, "nadam: momentum_decay must be at least 0; got ", o.momentum_decay, ".");
  }
  product_ = for_each_group([&](const NAdamOptions&, size_t) { return ones({}, DType::f64, device()); });
}

void NAdam::begin() {
  const Tensor count = count_ + 1;
  store(count_, count);
  const Tensor t = cast(count, DType::f64);
  gradient_rate_.clear();
  mean_rate_.clear();
  for (size_t g = 0; g < groups(); ++g) {
    const NAdamOptions& o = options()[g];
    const double fall = std::pow(0.96, o.momentum_decay);
    const Tensor now = (1.0 - pow(fall, t) * 0.5) * o.beta1,
                 next = (1.0 - pow(fall, t + 1.0) * 0.5) * o.beta1;
    const Tensor product = product_[g] * now;
    store(product_[g], product);
    const Tensor lr = cast(lr_tensor(g), DType::f64);
    gradient_rate_.push_back(cast(lr * (1.0 - now) / (1.0 - product), compute_dtype()));
    mean_rate_.push_back(cast(lr * next / (1.0 - product * next), compute_dtype()));
  }
  root_ = for_each_group(
      [&](const NAdamOptions& o, size_t) { return cast(sqrt(1.0 - pow(o.beta2, t)), compute_dtype()); });
}

Tensor NAdam::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const NAdamOptions& o = options(i);
  const size_t g = group_of(i);
  const Tensor mean = mean_[i] * o.beta1 + gradient * (1 - o.beta1);
  const Tensor square = square_[i] * o.beta2 + gradient * gradient * (1 - o.beta2);
  store(mean_[i], mean);
  store(square_[i], square);
  return value -
         (gradient * gradient_rate_[g] + mean * mean_rate_[g]) / (sqrt(square) / root_[g] + o.epsilon);
}

nn::NamedTensors NAdam::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  for (size_t g = 0; g < product_.size(); ++g)
    state.emplace_back(g == 0 ? std::string("momentum_product") : str("momentum_product.", g), product_[g]);
  append_state(state, "mean", mean_);
  append_state(state, "square", square_);
  return state;
}

}  // namespace tandem::optim
