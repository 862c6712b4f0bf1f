// Adagrad.
#include "tandem/optim/adagrad.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adagrad::Adagrad(nn::NamedTensors parameters, const AdagradOptions& options,
                 const Groups<AdagradOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups), count_(zeros({}, DType::i64, device())) {
  for (const AdagradOptions& o : this->options()) {
    TD_CHECK(o.lr_decay >= 0 && o.initial_sum >= 0,
             "adagrad: lr_decay and initial_sum must be at least 0; got ", o.lr_decay, " and ", o.initial_sum,
             ".");
    TD_CHECK(o.epsilon >= 0, "adagrad: epsilon must be at least 0; got ", o.epsilon, ".");
  }
  for (size_t i = 0; i < this->parameters().size(); ++i)
    sum_.push_back(state_tensor(this->parameters()[i].second.shape(), this->options(i).initial_sum));
}

void Adagrad::begin() {
  const Tensor done = cast(count_, DType::f64);
  rate_ = for_each_group([&](const AdagradOptions& o, size_t g) {
    return lr_tensor(g) / cast(1.0 + done * o.lr_decay, compute_dtype());
  });
  store(count_, count_ + 1);
}

Tensor Adagrad::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const Tensor sum = sum_[i] + gradient * gradient;
  store(sum_[i], sum);
  return value - rate_[group_of(i)] * (gradient / (sqrt(sum) + options(i).epsilon));
}

nn::NamedTensors Adagrad::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "sum", sum_);
  return state;
}

}  // namespace tandem::optim
