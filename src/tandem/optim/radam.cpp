// RAdam. What belongs to the step count is computed in f64, as Adam's.
#include "tandem/optim/radam.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

RAdam::RAdam(nn::NamedTensors parameters, const RAdamOptions& options, const Groups<RAdamOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups),
      count_(zeros({}, DType::i64, device())),
      mean_(zeros_for_each()),
      square_(zeros_for_each()) {
  for (const RAdamOptions& o : this->options()) {
    TD_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
             "radam: beta1 and beta2 must be at least 0 and below 1; got ", o.beta1, " and ", o.beta2, ".");
    TD_CHECK(o.epsilon >= 0, "radam: epsilon must be at least 0; got ", o.epsilon, ".");
  }
}

void RAdam::begin() {
  constexpr double kKnown = 5;  // from this ρ on
  const Tensor count = count_ + 1;
  store(count_, count);
  const Tensor t = cast(count, DType::f64);
  rate_ = for_each_group([&](const RAdamOptions& o, size_t g) {
    return lr_tensor(g) / cast(1.0 - pow(o.beta1, t), compute_dtype());
  });
  is_known_.clear();
  factor_.clear();
  for (const RAdamOptions& o : options()) {
    const double most = 2 / (1 - o.beta2) - 1;
    // ρ never passes ρ∞: where that is small, r is never used.
    const double scale = most > kKnown ? most / ((most - 4) * (most - 2)) : 0;
    const Tensor power = pow(o.beta2, t), left = 1.0 - power;
    const Tensor rho = most - t * power * 2.0 / left;
    const Tensor known = greater(rho, kKnown);
    const Tensor safe = where(known, rho, kKnown);  // no root of a negative number
    is_known_.push_back(known);
    factor_.push_back(cast(sqrt((safe - 4.0) * (safe - 2.0) * scale / safe * left), compute_dtype()));
  }
}

Tensor RAdam::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const RAdamOptions& o = options(i);
  const size_t g = group_of(i);
  const Tensor mean = mean_[i] * o.beta1 + gradient * (1 - o.beta1);
  const Tensor square = square_[i] * o.beta2 + gradient * gradient * (1 - o.beta2);
  store(mean_[i], mean);
  store(square_[i], square);
  const Tensor scale = where(is_known_[g], factor_[g] / (sqrt(square) + o.epsilon), 1.0);
  return value - mean * rate_[g] * scale;
}

nn::NamedTensors RAdam::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "square", square_);
  return state;
}

}  // namespace tandem::optim
