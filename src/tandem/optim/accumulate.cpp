// Sums of gradients.
#include "tandem/optim/accumulate.h"

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem::optim {

GradientSum::GradientSum(const nn::NamedTensors& parameters) {
  TD_CHECK(!parameters.empty(), "accumulate: there must be at least one parameter; got none.");
  for (const auto& [name, tensor] : parameters) {
    names_.push_back(name);
    sums_.push_back(zeros(tensor.shape(), promote(tensor.dtype(), DType::f32), tensor.device()));
  }
  samples_ = zeros({}, DType::i64, sums_.front().device());
}

void GradientSum::add(std::span<const Tensor> gradients, int64_t samples) {
  TD_CHECK(samples >= 1, "accumulate: a batch must have at least one sample; got ", samples, ".");
  add(gradients, static_cast<double>(samples), samples);
}

void GradientSum::add(std::span<const Tensor> gradients, const Tensor& samples) {
  TD_CHECK(samples.rank() == 0 && samples.dtype() == DType::i64,
           "accumulate: the number of samples must be i64 (); got ", samples.dtype(), " ", samples.shape(),
           ".");
  const NoGrad off;
  add(gradients, cast(samples, sums_.front().dtype()), samples);
}

void GradientSum::add(std::span<const Tensor> gradients, const Operand& factor, const Operand& samples) {
  TD_CHECK(gradients.size() == sums_.size(), "accumulate: one gradient per parameter is needed; got ",
           gradients.size(), " for ", sums_.size(), " parameters.");
  const NoGrad off;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (!gradients[i].defined()) continue;  // frozen
    TD_CHECK(gradients[i].shape() == sums_[i].shape(), "accumulate: the gradient of ", names_[i],
             " must have its shape ", sums_[i].shape(), "; got ", gradients[i].shape(), ".");
    assign(sums_[i], sums_[i] + cast(gradients[i], sums_[i].dtype()) * factor);
  }
  assign(samples_, samples_ + samples);
}

std::vector<Tensor> GradientSum::take() {
  const NoGrad off;
  // At least 1: a take() with nothing added gives 0, not NaN.
  const Tensor count = cast(maximum(samples_, 1), sums_.front().dtype());
  std::vector<Tensor> means;
  for (const Tensor& sum : sums_) {
    means.push_back(sum / count);
    assign(sum, zeros_like(sum));
  }
  assign(samples_, zeros_like(samples_));
  return means;
}

nn::NamedTensors GradientSum::named_state() const {
  nn::NamedTensors state = {{"samples", samples_}};
  for (size_t i = 0; i < sums_.size(); ++i) state.emplace_back("sum." + names_[i], sums_[i]);
  return state;
}

void GradientSum::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  nn::copy_named(named_state(), tensors, source, "gradient sum");
}

}  // namespace tandem::optim
