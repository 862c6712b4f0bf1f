// AdamW: the decay is applied to the value, before the step that Adam makes.
#include "tandem/optim/adamw.h"

#include "tandem/ops/pointwise.h"

namespace tandem::optim {

AdamW::AdamW(nn::NamedTensors parameters, const AdamWOptions& options)
    : Adam(std::move(parameters),
           {.lr = options.lr, .beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon}),
      weight_decay_(options.weight_decay) {
  TD_CHECK(weight_decay_ >= 0, "adamw: weight_decay must be at least 0; got ", weight_decay_, ".");
}

void AdamW::begin() {
  Adam::begin();
  if (weight_decay_ != 0) keep_ = 1.0 - lr_tensor() * weight_decay_;
}

Tensor AdamW::step(size_t i, const Tensor& value, const Tensor& gradient) {
  return Adam::step(i, weight_decay_ == 0 ? value : value * keep_, gradient);
}

}  // namespace tandem::optim
