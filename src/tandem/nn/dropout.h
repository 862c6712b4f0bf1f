// Dropout of whole channels, and the form that goes with SELU. While training only; in evaluation they do nothing.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// What the layers below share: a probability and the function that they apply while training.
class ChannelDropout : public Module {
 public:
  Tensor forward(const Tensor& x) override { return training() ? function_(x, p_) : x; }
  double p() const { return p_; }

 protected:
  using Function = Tensor (*)(const Tensor&, double);
  ChannelDropout(Module* parent, const std::string& name, const char* layer, double p, Function function);

 private:
  double p_;
  Function function_;
};

class Dropout1d : public ChannelDropout {
 public:
  Dropout1d(Module* parent, const std::string& name, double p);
};
class Dropout2d : public ChannelDropout {
 public:
  Dropout2d(Module* parent, const std::string& name, double p);
};
class Dropout3d : public ChannelDropout {
 public:
  Dropout3d(Module* parent, const std::string& name, double p);
};
class AlphaDropout : public ChannelDropout {
 public:
  AlphaDropout(Module* parent, const std::string& name, double p);
};

}  // namespace tandem::nn
