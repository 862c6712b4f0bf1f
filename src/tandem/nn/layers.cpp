// Layers with parameters or state.
#include "tandem/nn/layers.h"

#include "tandem/nn/init.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"

namespace tandem::nn {

Linear::Linear(Module* parent, const std::string& name, int64_t in, int64_t out, LinearOptions options)
    : Module(parent, name),
      weight([&] {
        TD_CHECK(in >= 1 && out >= 1, label("Linear", name), ": sizes must be at least 1; got ", in,
                 " in and ", out, " out.");
        return parameter("weight", uniform_by_fan_in({out, in}, in));
      }()),
      bias(options.bias ? parameter("bias", uniform_by_fan_in({out}, in)) : Tensor()) {}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Dropout::Dropout(Module* parent, const std::string& name, double p) : Module(parent, name), p_(p) {
  TD_CHECK(p >= 0 && p < 1, label("Dropout", name), ": the probability must be at least 0 and below 1; got ",
           p, ".");
}

Tensor Dropout::forward(const Tensor& x) { return training() ? dropout(x, p_) : x; }

}  // namespace tandem::nn
