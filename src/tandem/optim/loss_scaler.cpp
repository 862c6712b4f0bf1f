// Dynamic loss scaling, by tensors on the device.
#include "tandem/optim/loss_scaler.h"

#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {
namespace {
constexpr double kLeast = 1e-30;  // of the scale: at 0 it would never grow again
}

LossScaler::LossScaler(Device device, const LossScalerOptions& options) : options_(options) {
  TD_CHECK(options.first >= kLeast && options.first <= 1e30,
           "LossScaler: the first scale must be 1e-30 to 1e30; got ", options.first, ".");
  TD_CHECK(options.growth >= 1 && options.growth <= 1024 && options.backoff > 0 && options.backoff < 1,
           "LossScaler: growth must be 1 to 1024 and backoff between 0 and 1; got ", options.growth, " and ",
           options.backoff, ".");
  TD_CHECK(options.interval >= 1, "LossScaler: the interval must be at least 1 step; got ", options.interval,
           ".");
  scale_ = full({}, options.first, DType::f32, device);
  steps_ = zeros({}, DType::i64, device);
  skipped_ = zeros({}, DType::i64, device);
}

Tensor LossScaler::scale(const Tensor& loss) const {
  TD_CHECK(loss.defined() && is_floating(loss.dtype()),
           "LossScaler: the loss must have a floating type; got ",
           loss.defined() ? describe(loss) : "an undefined handle", ".");
  const DType wide = promote(loss.dtype(), DType::f32);
  return cast(loss, wide) * cast(scale_, wide);
}

std::vector<Tensor> LossScaler::unscale(std::span<const Tensor> gradients) const {
  const NoGrad off;
  const Tensor inverse = 1.0 / scale_;
  std::vector<Tensor> out;
  for (const Tensor& g : gradients) {
    if (!g.defined()) {
      out.emplace_back();
      continue;
    }
    const DType wide = promote(g.dtype(), DType::f32);
    out.push_back(cast(g, wide) * cast(inverse, wide));
  }
  return out;
}

void LossScaler::update(const Tensor& finite) {
  TD_CHECK(finite.defined() && finite.dtype() == DType::boolean && finite.rank() == 0,
           "LossScaler: update takes one bool, 0-d, as all_finite() gives it; got ",
           finite.defined() ? describe(finite) : "an undefined handle", ".");
  const NoGrad off;
  const Tensor steps = where(finite, steps_ + 1, 0);
  const Tensor grown = scale_ * options_.growth;
  const Tensor grows = greater_equal(steps, options_.interval);
  const Tensor shrunk = scale_ * options_.backoff;
  // What would be infinite or too small stays.
  const Tensor next = where(logical_and(grows, isfinite(grown)), grown, scale_);
  assign(skipped_, skipped_ + cast(logical_not(finite), DType::i64));
  assign(scale_, where(finite, next, where(greater_equal(shrunk, kLeast), shrunk, scale_)));
  assign(steps_, where(grows, 0, steps));
}

nn::NamedTensors LossScaler::named_state() const {
  return {{"scale", scale_}, {"steps", steps_}, {"skipped", skipped_}};
}

void LossScaler::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.size() != 1) continue;  // refused below
    const double value = tensor.item<double>();
    TD_CHECK(name != "scale" || (std::isfinite(value) && value > 0), source,
             ": the loss scale must be a finite number above 0; got ", value,
             ". Load another checkpoint, or begin with a new LossScaler.");
    TD_CHECK(name == "scale" || value >= 0, source, ": the ", name,
             " of the loss scale must be at least 0; got ", value,
             ". Load another checkpoint, or begin with a new LossScaler.");
  }
  nn::copy_named(named_state(), tensors, source, "loss scale");
}

Tensor all_finite(std::span<const Tensor> gradients) {
  const NoGrad off;
  Tensor finite;
  for (const Tensor& g : gradients) {
    if (!g.defined()) continue;
    const Tensor here = all(isfinite(g));
    finite = finite.defined() ? logical_and(finite, here) : here;
  }
  TD_CHECK(finite.defined(), "all_finite: there must be at least one gradient; got none.");
  return finite;
}

}  // namespace tandem::optim
