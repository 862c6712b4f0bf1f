// Dynamic loss scaling. f16 holds no gradient below 6e-8, so that the loss is multiplied by a large number before the
// backward pass and the gradients are divided by it after that, in f32. Where they overflowed, the step is left out and
// the next one scales less; after many steps without overflow it scales more. All of it is made of operations on the
// device: nothing waits for a value, and a compiled step can hold it.
//   Tensor loss;
//   {
//     const Autocast autocast(DType::f16);
//     loss = cross_entropy(net(x), y);
//   }
//   std::vector<Tensor> gradients = scaler.unscale(grad(scaler.scale(loss), parameters));
//   const Tensor finite = optim::all_finite(gradients);            before clipping, which would hide it
//   optimizer.update(optim::clip_by_norm(gradients, 1.0), finite);  and an Ema likewise: ema.update(finite)
//   scaler.update(finite);
#pragma once

#include <span>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::optim {

/// The defaults are those of PyTorch's GradScaler.
struct LossScalerOptions {
  double first = 65536;     ///< the scale of the first step
  double growth = 2;        ///< the factor after `interval` steps in a row without overflow
  double backoff = 0.5;     ///< the factor after an overflow
  int64_t interval = 2000;  ///< steps
};

class LossScaler {
 public:
  /// On the device of the loss. Powers of two change no digit of the gradients.
  explicit LossScaler(Device device = {}, const LossScalerOptions& options = {});

  /// loss · scale, in f32 at least.
  Tensor scale(const Tensor& loss) const;
  /// Gradients of a scaled loss over the scale, in f32 at least. Undefined ones (of frozen parameters) stay so.
  std::vector<Tensor> unscale(std::span<const Tensor> gradients) const;
  /// Once a step, with what all_finite() gave: chooses the scale of the next one.
  void update(const Tensor& finite);

  /// The scale that it has now, 0-d f32 on the device; and how many steps were left out, 0-d i64.
  const Tensor& current() const { return scale_; }
  const Tensor& skipped() const { return skipped_; }

  /// What a checkpoint must hold: "scale", "steps" since it was changed, "skipped".
  nn::NamedTensors named_state() const;
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

 private:
  LossScalerOptions options_;
  Tensor scale_, steps_, skipped_;
};

/// Whether no element is infinite or NaN: one bool, 0-d, on the device.
Tensor all_finite(std::span<const Tensor> gradients);

}  // namespace tandem::optim
