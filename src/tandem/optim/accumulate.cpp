// Sums of gradients.
#include "tandem/optim/accumulate.h"

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

GradientSum::GradientSum(const nn::NamedTensors& parameters, bool allow_unused) {
  TD_CHECK(!parameters.empty(), "accumulate: there must be at least one parameter; got none.");
  for (const auto& [name, tensor] : parameters) {
    names_.push_back(name);
    sums_.push_back(zeros(tensor.shape(), promote(tensor.dtype(), DType::f32), tensor.device()));
    if (allow_unused) used_.push_back(zeros({}, DType::boolean, tensor.device()));
  }
  weight_ = zeros({}, DType::f64, sums_.front().device());
}

void GradientSum::add(std::span<const Tensor> gradients, int64_t samples) {
  TD_CHECK(samples >= 1, "accumulate: a batch must have at least one sample; got ", samples, ".");
  const auto weighed = [&](const Tensor& gradient) { return gradient * static_cast<double>(samples); };
  add(gradients, weighed, static_cast<double>(samples));
}

void GradientSum::add(std::span<const Tensor> gradients, const Tensor& weight) {
  TD_CHECK(weight.defined() && weight.rank() == 0 && weight.dtype() != DType::boolean,
           "accumulate: the weight of a batch must be one number, 0-d; got ",
           weight.defined() ? describe(weight) : "an undefined handle", ".");
  const NoGrad off;
  const Tensor factor = cast(weight, sums_.front().dtype()), counts = greater(weight, 0);
  // The mean of nothing has NaN as its gradient, and is no part of the sum.
  const auto weighed = [&](const Tensor& gradient) { return where(counts, gradient * factor, 0); };
  add(gradients, weighed, cast(weight, DType::f64));
}

void GradientSum::add(std::span<const Tensor> gradients, const std::function<Tensor(const Tensor&)>& weighed,
                      const Operand& weight) {
  TD_CHECK(gradients.size() == sums_.size(), "accumulate: one gradient per parameter is needed; got ",
           gradients.size(), " for ", sums_.size(), " parameters.");
  const NoGrad off;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (!gradients[i].defined()) continue;  // frozen, or unused in this batch
    TD_CHECK(gradients[i].shape() == sums_[i].shape(), "accumulate: the gradient of ", names_[i],
             " must have its shape ", sums_[i].shape(), "; got ", gradients[i].shape(), ".");
    assign(sums_[i], sums_[i] + weighed(cast(gradients[i], sums_[i].dtype())));
    if (!used_.empty()) assign(used_[i], ones_like(used_[i]));
  }
  assign(weight_, weight_ + weight);
}

std::vector<Tensor> GradientSum::take(std::vector<Tensor>& used) {
  TD_CHECK(!used_.empty(), "accumulate: only sums made with allow_unused know which parameters were used.");
  const NoGrad off;
  used.clear();
  for (const Tensor& flag : used_) used.push_back(clone(flag));
  return take();
}

std::vector<Tensor> GradientSum::take() {
  const NoGrad off;
  // Where nothing was added this gives 0, not NaN.
  const Tensor total = cast(where(greater(weight_, 0), weight_, 1.0), sums_.front().dtype());
  std::vector<Tensor> means;
  for (const Tensor& sum : sums_) {
    means.push_back(sum / total);
    assign(sum, zeros_like(sum));
  }
  for (const Tensor& flag : used_) assign(flag, zeros_like(flag));
  assign(weight_, zeros_like(weight_));
  return means;
}

nn::NamedTensors GradientSum::named_state() const {
  nn::NamedTensors state = {{"weight", weight_}};
  for (size_t i = 0; i < sums_.size(); ++i) state.emplace_back("sum." + names_[i], sums_[i]);
  for (size_t i = 0; i < used_.size(); ++i) state.emplace_back("used." + names_[i], used_[i]);
  return state;
}

void GradientSum::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  nn::copy_named(named_state(), tensors, source, "gradient sum");
}

}  // namespace tandem::optim
