// Pools and resizing as layers, for containers. They have no parameters; ops/pool.h and ops/resample.h say what
// they compute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "tandem/nn/module.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/resample.h"

namespace tandem::nn {

/// The name of a layer, as an argument of a template.
template <size_t N>
struct LayerName {
  constexpr LayerName(const char (&name)[N]) { std::copy_n(name, N, text); }
  char text[N];
};

/// A layer that is a function of its input and of an option.
template <class Option, Tensor (*function)(const Tensor&, const Option&), LayerName kName>
class PoolLayer : public Module {
 public:
  using Options = Option;
  PoolLayer(Module* parent, const std::string& name, const Option& option = {})
      : Module(parent, name), option_(option) {}
  Tensor forward(const Tensor& x) override { return function(x, option_); }
  std::string type_name() const override { return kName.text; }

 private:
  Option option_;
};

using MaxPool1d = PoolLayer<MaxPoolOptions, max_pool1d, "MaxPool1d">;
using MaxPool2d = PoolLayer<MaxPoolOptions, max_pool2d, "MaxPool2d">;
using MaxPool3d = PoolLayer<MaxPoolOptions, max_pool3d, "MaxPool3d">;
using AvgPool1d = PoolLayer<AvgPoolOptions, avg_pool1d, "AvgPool1d">;
using AvgPool2d = PoolLayer<AvgPoolOptions, avg_pool2d, "AvgPool2d">;
using AvgPool3d = PoolLayer<AvgPoolOptions, avg_pool3d, "AvgPool3d">;
using AdaptiveAvgPool1d = PoolLayer<PerAxis, adaptive_avg_pool1d, "AdaptiveAvgPool1d">;
using AdaptiveAvgPool2d = PoolLayer<PerAxis, adaptive_avg_pool2d, "AdaptiveAvgPool2d">;
using AdaptiveAvgPool3d = PoolLayer<PerAxis, adaptive_avg_pool3d, "AdaptiveAvgPool3d">;
using AdaptiveMaxPool1d = PoolLayer<PerAxis, adaptive_max_pool1d, "AdaptiveMaxPool1d">;
using AdaptiveMaxPool2d = PoolLayer<PerAxis, adaptive_max_pool2d, "AdaptiveMaxPool2d">;
using AdaptiveMaxPool3d = PoolLayer<PerAxis, adaptive_max_pool3d, "AdaptiveMaxPool3d">;
using Upsample = PoolLayer<InterpolateOptions, interpolate, "Upsample">;

}  // namespace tandem::nn
