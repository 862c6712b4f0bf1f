// Losses as layers: how they are called.
#include "tandem/nn/loss.h"

#include "tandem/ops/shape.h"

namespace tandem::nn {

Tensor LossOfTwo::operator()(const Tensor& prediction, const Tensor& target) {
  return call({prediction, target}, [this](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{forward(in[0], in[1])};
  })[0];
}

void LossOfTwo::keep(const char* name, Tensor& weight) {
  if (weight.defined()) weight = buffer(name, tandem::clone(weight.detach()));
}

Tensor LossOfThree::operator()(const Tensor& a, const Tensor& b, const Tensor& c) {
  return call({a, b, c}, [this](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{forward(in[0], in[1], in[2])};
  })[0];
}

}  // namespace tandem::nn
