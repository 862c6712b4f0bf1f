// Convolution layers over one, two or three spatial axes. Parameters have PyTorch's layouts and initial values.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/conv.h"

namespace tandem::nn {

struct ConvLayerOptions {
  PerAxis stride = 1;
  Padding padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};
using Conv2dLayerOptions = ConvLayerOptions;

/// x (N, in, …) -> (N, out, …'). weight (out, in / groups, kernel…), bias (out). The kernel is one number, or one
/// for each axis.
template <int kAxes>
class Conv : public Module {
 public:
  using Options = ConvLayerOptions;
  Conv(Module* parent, const std::string& name, int64_t in, int64_t out, const PerAxis& kernel,
       const ConvLayerOptions& options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;

 private:
  ConvOptions options_;
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;

struct ConvTransposeLayerOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis output_padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// x (N, in, …) -> (N, out, …'). weight (in, out / groups, kernel…), bias (out).
template <int kAxes>
class ConvTranspose : public Module {
 public:
  using Options = ConvTransposeLayerOptions;
  ConvTranspose(Module* parent, const std::string& name, int64_t in, int64_t out, const PerAxis& kernel,
                const ConvTransposeLayerOptions& options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;

 private:
  ConvTransposeOptions options_;
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace tandem::nn
