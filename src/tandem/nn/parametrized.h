// Layers whose weight is computed from other parameters at every call:
//   nn::WeightNorm<nn::Conv2d> conv{this, "conv", 3, 8, 3, {.padding = 1}};   // what Conv2d takes
// Names are those of torch.nn.utils.parametrizations ("parametrizations.weight.original0"), which PyTorch writes today: files go
// both ways. (The older weight_g and weight_v, deprecated there, are original0 and original1.) The layer's own `weight` is
// undefined outside of a call: computed_weight() gives its value.
#pragma once

#include "tandem/nn/containers.h"
#include "tandem/nn/conv.h"

namespace tandem::nn {

namespace detail {

/// Puts a tensor into a member for a scope, so that nothing of a call is left there.
class Lent {
 public:
  Lent(const Tensor& member, Tensor value) : member_(member), kept_(member) {
    replace_handle(member_, std::move(value));
  }
  ~Lent() { replace_handle(member_, std::move(kept_)); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  const Tensor& member_;
  Tensor kept_;
};

/// The axis of a weight that counts outputs.
template <class Layer>
inline constexpr int kOutputAxis = 0;
template <int kAxes>
inline constexpr int kOutputAxis<ConvTranspose<kAxes>> = 1;

/// What stands under "parametrizations" of a layer, made from its weight; and the weight computed from it.
ModulePtr weight_norm_parts(const Tensor& weight, int axis);
Tensor weight_from_norm(RuntimeModule& parts, int axis);
ModulePtr spectral_norm_parts(const Tensor& weight, int axis);
Tensor weight_from_spectrum(RuntimeModule& parts, int axis, bool iterates, int iterations);

}  // namespace detail

/// A layer with a member `weight`, whose length and direction are parameters of their own (Salimans and Kingma 2016):
/// weight = original0 · original1 / ‖original1‖, the norm over all axes but kAxis. As PyTorch's weight_norm(layer, dim=kAxis).
/// It begins with the layer's own weight.
template <std::derived_from<Module> Layer, int kAxis = 0>
class WeightNorm : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& x) override {
    const detail::Lent lent(this->weight, computed_weight());
    return Layer::forward(x);
  }
  Tensor computed_weight() const { return detail::weight_from_norm(*parts_, kAxis); }
  std::string type_name() const override { return "WeightNorm"; }

 private:
  std::shared_ptr<RuntimeModule> taken_over() {
    const ModulePtr parts = detail::weight_norm_parts(this->give_up_parameter("weight"), kAxis);
    detail::replace_handle(this->weight, {});
    this->adopt("parametrizations", parts);
    return std::static_pointer_cast<RuntimeModule>(parts);
  }
  std::shared_ptr<RuntimeModule> parts_ = taken_over();
};

/// A layer with a member `weight`, divided by its largest singular value (Miyato and others 2018): weight = original / σ, σ
/// = u · W v from vectors (buffers 0._u, 0._v) that kIterations power iterations improve at each call in training. As
/// PyTorch's spectral_norm(layer, n_power_iterations=kIterations). W is the weight as a matrix, outputs by the rest.
template <std::derived_from<Module> Layer, int kIterations = 1>
class SpectralNorm : public Layer {
 public:
  static_assert(kIterations >= 1, "SpectralNorm: there must be at least one power iteration");
  using Layer::Layer;
  Tensor forward(const Tensor& x) override {
    const detail::Lent lent(this->weight, weight_of(this->training()));
    return Layer::forward(x);
  }
  /// By the vectors as they are.
  Tensor computed_weight() const { return weight_of(false); }
  std::string type_name() const override { return "SpectralNorm"; }

 private:
  static constexpr int kAxis = detail::kOutputAxis<Layer>;
  Tensor weight_of(bool iterates) const {
    return detail::weight_from_spectrum(*parts_, kAxis, iterates, kIterations);
  }
  std::shared_ptr<RuntimeModule> taken_over() {
    const ModulePtr parts = detail::spectral_norm_parts(this->give_up_parameter("weight"), kAxis);
    detail::replace_handle(this->weight, {});
    this->adopt("parametrizations", parts);
    return std::static_pointer_cast<RuntimeModule>(parts);
  }
  std::shared_ptr<RuntimeModule> parts_ = taken_over();
};

}  // namespace tandem::nn
