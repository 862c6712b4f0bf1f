// Layers with parameters or state. Activations, pooling, flatten and losses are plain functions (tandem/ops).
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/conv.h"

namespace tandem::nn {

struct LinearOptions {
  bool bias = true;
};

/// x (…, in) -> (…, out). weight (out, in), bias (out).
class Linear : public Module {
 public:
  Linear(Module* parent, const std::string& name, int64_t in, int64_t out, LinearOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;
};

struct Conv2dLayerOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// x (N, in, H, W) -> (N, out, H', W'). weight (out, in / groups, kernel, kernel), bias (out).
class Conv2d : public Module {
 public:
  Conv2d(Module* parent, const std::string& name, int64_t in, int64_t out, int64_t kernel,
         Conv2dLayerOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;

 private:
  Conv2dOptions options_;
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
