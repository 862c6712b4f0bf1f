// The exponential moving average of weights.
#include "tandem/optim/ema.h"

#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

Ema::Ema(nn::NamedTensors parameters, const EmaOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  TD_CHECK(!parameters_.empty(), "ema: there must be at least one parameter; got none.");
  TD_CHECK(options.decay >= 0 && options.decay < 1, "ema: the decay must be at least 0 and below 1; got ",
           options.decay, ".");
  const NoGrad off;
  for (const auto& [name, tensor] : parameters_)
    averages_.push_back(clone(cast(tensor.detach(), promote(tensor.dtype(), DType::f32))));
  updates_ = zeros({}, DType::i64, parameters_.front().second.device());
}

namespace {

/// Brings averages to the device of the parameters and to the type that belongs to theirs: a model may have been moved or
/// converted since. What is made here belongs to no trace.
void follow(const nn::NamedTensors& parameters, const std::vector<Tensor>& averages, Tensor updates) {
  const TraceScope untraced(nullptr);
  const NoGrad off;
  for (size_t i = 0; i < averages.size(); ++i) {
    const Tensor& parameter = parameters[i].second;
    const DType type = promote(parameter.dtype(), DType::f32);
    Tensor average = averages[i];
    if (average.dtype() != type || average.device() != parameter.device())
      average.rebind(to(cast(average, type), parameter.device()));
  }
  if (updates.device() != averages.front().device()) updates.rebind(to(updates, averages.front().device()));
}

}  // namespace

void Ema::update(const Tensor& finite) {
  follow(parameters_, averages_, updates_);
  const NoGrad off;
  const auto store = [&](const Tensor& target, const Tensor& value) {
    assign(target, finite.defined() ? where(finite, value, target) : value);
  };
  const Tensor t = cast(updates_, DType::f64);
  Tensor decay = full({}, options_.decay, DType::f64, updates_.device());
  if (options_.warm_up) decay = minimum(decay, (t + 1.0) / (t + 10.0));
  decay = where(equal(updates_, 0), 0.0, decay);  // the first update copies
  const Tensor keep = cast(decay, averages_.front().dtype()), take = cast(1.0 - decay, keep.dtype());
  for (size_t i = 0; i < averages_.size(); ++i)
    store(averages_[i], averages_[i] * keep + cast(parameters_[i].second, keep.dtype()) * take);
  store(updates_, updates_ + 1);
}

void Ema::copy_to_parameters() const {
  follow(parameters_, averages_, updates_);
  const NoGrad off;
  for (size_t i = 0; i < averages_.size(); ++i) assign(parameters_[i].second, averages_[i]);
}

nn::NamedTensors Ema::averages() const {
  nn::NamedTensors out;
  for (size_t i = 0; i < averages_.size(); ++i) out.emplace_back(parameters_[i].first, averages_[i]);
  return out;
}

Ema::Scope::Scope(const Ema& ema) : ema_(ema) {
  const NoGrad off;
  for (const auto& [name, tensor] : ema.parameters_) before_.push_back(clone(tensor.detach()));
  ema.copy_to_parameters();
}

Ema::Scope::~Scope() {
  const NoGrad off;
  for (size_t i = 0; i < before_.size(); ++i) assign(ema_.parameters_[i].second, before_[i]);
}

nn::NamedTensors Ema::named_state() const {
  nn::NamedTensors state = {{"updates", updates_}};
  for (const auto& [name, tensor] : averages()) state.emplace_back("average." + name, tensor);
  return state;
}

void Ema::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  nn::copy_named(named_state(), tensors, source, "average");
}

}  // namespace tandem::optim
