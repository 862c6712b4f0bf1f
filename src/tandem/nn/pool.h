// Pools and resizing as layers, for containers. They have no parameters; ops/pool.h and ops/resample.h say what
// they compute.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/resample.h"

namespace tandem::nn {

/// A layer that is a function of its input and of an option.
template <class Option, Tensor (*function)(const Tensor&, const Option&)>
class PoolLayer : public Module {
 public:
  using Options = Option;
  PoolLayer(Module* parent, const std::string& name, const Option& option = {})
      : Module(parent, name), option_(option) {}
  Tensor forward(const Tensor& x) override { return function(x, option_); }

 private:
  Option option_;
};

using MaxPool1d = PoolLayer<MaxPoolOptions, max_pool1d>;
using MaxPool2d = PoolLayer<MaxPoolOptions, max_pool2d>;
using MaxPool3d = PoolLayer<MaxPoolOptions, max_pool3d>;
using AvgPool1d = PoolLayer<AvgPoolOptions, avg_pool1d>;
using AvgPool2d = PoolLayer<AvgPoolOptions, avg_pool2d>;
using AvgPool3d = PoolLayer<AvgPoolOptions, avg_pool3d>;
using AdaptiveAvgPool1d = PoolLayer<PerAxis, adaptive_avg_pool1d>;
using AdaptiveAvgPool2d = PoolLayer<PerAxis, adaptive_avg_pool2d>;
using AdaptiveAvgPool3d = PoolLayer<PerAxis, adaptive_avg_pool3d>;
using AdaptiveMaxPool1d = PoolLayer<PerAxis, adaptive_max_pool1d>;
using AdaptiveMaxPool2d = PoolLayer<PerAxis, adaptive_max_pool2d>;
using AdaptiveMaxPool3d = PoolLayer<PerAxis, adaptive_max_pool3d>;
using Upsample = PoolLayer<InterpolateOptions, interpolate>;

}  // namespace tandem::nn
