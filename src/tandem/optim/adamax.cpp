// Adamax. The bias correction is computed in f64, as Adam's.
#include "tandem/optim/adamax.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Adamax::Adamax(nn::NamedTensors parameters, const AdamaxOptions& options, const Groups<AdamaxOptions>& groups)
    : OptimizerWith(std::move(parameters), options, groups),
      count_(zeros({}, DType::i64, device())),
      mean_(zeros_for_each()),
      largest_(zeros_for_each()) {
  for (const AdamaxOptions& o : this->options()) {
    TD_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
             "adamax: beta1 and beta2 must be at least 0 and below 1; got ", o.beta1, " and ", o.beta2, ".");
    TD_CHECK(o.epsilon >= 0, "adamax: epsilon must be at least 0; got ", o.epsilon, ".");
  }
}

void Adamax::begin() {
  const Tensor count = count_ + 1;
  store(count_, count);
  const Tensor t = cast(count, DType::f64);
  rate_ = for_each_group([&](const AdamaxOptions& o, size_t g) {
    return lr_tensor(g) / cast(1.0 - pow(o.beta1, t), compute_dtype());
  });
}

Tensor Adamax::step(size_t i, const Tensor& value, const Tensor& gradient) {
  const AdamaxOptions& o = options(i);
  const Tensor mean = mean_[i] * o.beta1 + gradient * (1 - o.beta1);
  const Tensor largest = maximum(largest_[i] * o.beta2, abs(gradient) + o.epsilon);
  store(mean_[i], mean);
  store(largest_[i], largest);
  return value - rate_[group_of(i)] * (mean / largest);
}

nn::NamedTensors Adamax::named_state() const {
  nn::NamedTensors state = Optimizer::named_state();
  state.emplace_back("step", count_);
  append_state(state, "mean", mean_);
  append_state(state, "largest", largest_);
  return state;
}

}  // namespace tandem::optim
