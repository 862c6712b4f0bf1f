// Adam. The bias corrections are computed in f64: 1 - 0.999^t loses half its digits in f32 at the first steps.
#include "tandem/optim/adam.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adam::Adam(const char* name, nn::NamedTensors parameters, const AdamOptions& options,
           const Groups<AdamOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups),
      count_(zeros({}, DType::i64, device())),
      mean_(zeros_for_each()),
      square_(zeros_for_each()) {
  for (const AdamOptions& o : this->options()) {
    TD_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, name,
             ": beta1 and beta2 must be at least 0 and below 1; got ", o.beta1, " and ", o.beta2, ".");
    TD_CHECK(o.epsilon >= 0, name, ": epsilon must be at least 0; got ", o.epsilon, ".");
    if (o.amsgrad && largest_square_.empty()) largest_square_ = zeros_for_each();
  }
}

void Adam::begin() {
  const Tensor count = count_ + 1;
  store(count_, count);
  const Tensor t = cast(count, DType::f64);
  bias_ = for_each_group(
      [&](const AdamOptions& o, size_t) { return cast(1.0 - pow(o.beta1, t), compute_dtype()); });
  rate_ = for_each_group([&](const AdamOptions&, size_t g) { return lr_tensor(g) / bias_[g]; });
  root_ = for_each_group(
      [&](const AdamOptions& o, size_t) { return cast(sqrt(1.0 - pow(o.beta2, t)), compute_dtype()); });
}

Tensor Adam::direction(size_t i, const Tensor& gradient) {
  const AdamOptions& o = options(i);
  const Tensor mean = mean_[i] * o.beta1 + gradient * (1 - o.beta1);
  Tensor square = square_[i] * o.beta2 + gradient * gradient * (1 - o.beta2);
  store(mean_[i], mean);
  store(square_[i], square);
  if (o.amsgrad) {
    square = maximum(largest_square_[i], square);
    store(largest_square_[i], square);
  }
  return mean / (sqrt(square) / root_[group_of(i)] + o.epsilon);
}

Tensor Adam::step(size_t i, const Tensor& value, const Tensor& gradient) {
  return value - rate_[group_of(i)] * direction(i, gradient);
}

nn::NamedTensors Adam::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "square", square_);
  append_state(state, "largest_square", largest_square_);
  return state;
}

}  // namespace tandem::optim
