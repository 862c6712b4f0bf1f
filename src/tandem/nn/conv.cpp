// Convolution layers.
#include "tandem/nn/conv.h"

#include "tandem/nn/init.h"

namespace tandem::nn {

namespace {

/// Checks a layer's sizes and gives the shape of its weight: (first, second / groups, kernel…).
Dims weight_shape(const std::string& layer, int axes, int64_t in, int64_t out, int64_t first, int64_t second,
                  const PerAxis& kernel, int64_t groups) {
  const Axes3 sizes = kernel.over(axes, layer.c_str(), "kernel", 1);
  TD_CHECK(in >= 1 && out >= 1 && sizes[0] >= 1 && sizes[1] >= 1 && sizes[2] >= 1, layer,
           ": sizes must be at least 1; got ", in, " in, ", out, " out and kernel ", sizes, ".");
  TD_CHECK(groups >= 1 && in % groups == 0 && out % groups == 0, layer,
           ": channels must be a multiple of groups; got ", in, " in, ", out, " out and ", groups,
           " groups.");
  Dims shape{first, second / groups};
  for (int i = 3 - axes; i < 3; ++i) shape.push_back(sizes[i]);
  return shape;
}

/// PyTorch counts the inputs of a unit from the weight's second size on.
int64_t fan_in(const Dims& weight) {
  int64_t fan = 1;
  for (int i = 1; i < weight.rank(); ++i) fan *= weight[i];
  return fan;
}

}  // namespace

template <int kAxes>
Conv<kAxes>::Conv(Module* parent, const std::string& name, int64_t in, int64_t out, const PerAxis& kernel,
                  const ConvLayerOptions& options)
    : Module(parent, name),
      weight([&] {
        const Dims shape =
            weight_shape(str("Conv", kAxes, "d ", name), kAxes, in, out, out, in, kernel, options.groups);
        return parameter("weight", uniform_by_fan_in(shape, fan_in(shape)));
      }()),
      bias(options.bias ? parameter("bias", uniform_by_fan_in({out}, fan_in(weight.shape()))) : Tensor()),
      options_{options.stride, options.padding, options.dilation, options.groups} {}

template <int kAxes>
Tensor Conv<kAxes>::forward(const Tensor& x) {
  constexpr auto run = kAxes == 1 ? &conv1d : kAxes == 2 ? &conv2d : &conv3d;
  return run(x, weight, bias, options_);
}

template <int kAxes>
ConvTranspose<kAxes>::ConvTranspose(Module* parent, const std::string& name, int64_t in, int64_t out,
                                    const PerAxis& kernel, const ConvTransposeLayerOptions& options)
    : Module(parent, name),
      weight([&] {
        const Dims shape = weight_shape(str("ConvTranspose", kAxes, "d ", name), kAxes, in, out, in, out,
                                        kernel, options.groups);
        return parameter("weight", uniform_by_fan_in(shape, fan_in(shape)));
      }()),
      bias(options.bias ? parameter("bias", uniform_by_fan_in({out}, fan_in(weight.shape()))) : Tensor()),
      options_{options.stride, options.padding, options.output_padding, options.dilation, options.groups} {}

template <int kAxes>
Tensor ConvTranspose<kAxes>::forward(const Tensor& x) {
  constexpr auto run = kAxes == 1 ? &conv_transpose1d : kAxes == 2 ? &conv_transpose2d : &conv_transpose3d;
  return run(x, weight, bias, options_);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;
template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace tandem::nn
