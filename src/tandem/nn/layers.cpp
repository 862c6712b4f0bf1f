// Layers with parameters or state.
#include "tandem/nn/layers.h"

#include "tandem/nn/init.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"

namespace tandem::nn {

Linear::Linear(Module* parent, const std::string& name, int64_t in, int64_t out, LinearOptions options)
    : Module(parent, name) {
  TD_CHECK(in >= 1 && out >= 1, label("Linear", name), ": sizes must be at least 1; got ", in, " in and ",
           out, " out.");
  weight = parameter("weight", uniform_by_fan_in({out, in}, in));
  if (options.bias) bias = parameter("bias", uniform_by_fan_in({out}, in));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Conv2d::Conv2d(Module* parent, const std::string& name, int64_t in, int64_t out, int64_t kernel,
               Conv2dLayerOptions options)
    : Module(parent, name),
      options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups} {
  TD_CHECK(in >= 1 && out >= 1 && kernel >= 1, label("Conv2d", name), ": sizes must be at least 1; got ", in,
           " in, ", out, " out and kernel ", kernel, ".");
  TD_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0, "Conv2d ", name,
           ": channels must be a multiple of groups; got ", in, " in, ", out, " out and ", options.groups,
           " groups.");
  const int64_t fan_in = in / options.groups * kernel * kernel;
  weight = parameter("weight", uniform_by_fan_in({out, in / options.groups, kernel, kernel}, fan_in));
  if (options.bias) bias = parameter("bias", uniform_by_fan_in({out}, fan_in));
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

Dropout::Dropout(Module* parent, const std::string& name, double p) : Module(parent, name), p_(p) {
  TD_CHECK(p >= 0 && p < 1, label("Dropout", name), ": the probability must be at least 0 and below 1; got ",
           p, ".");
}

Tensor Dropout::forward(const Tensor& x) { return training() ? dropout(x, p_) : x; }

}  // namespace tandem::nn
