// Layers with parameters or state. Activations, pooling, flatten and losses are plain functions (tandem/ops).
#pragma once

#include "tandem/nn/conv.h"
#include "tandem/nn/module.h"

namespace tandem::nn {

struct LinearOptions {
  bool bias = true;
};

/// x (…, in) -> (…, out). weight (out, in), bias (out).
class Linear : public Module {
 public:
  using Options = LinearOptions;
  Linear(Module* parent, const std::string& name, int64_t in, int64_t out, LinearOptions options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;
};

/// While training, zeroes each element with probability p and scales the rest by 1 / (1 - p); else does nothing.
class Dropout : public Module {
 public:
  Dropout(Module* parent, const std::string& name, double p);
  Tensor forward(const Tensor& x) override;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace tandem::nn
