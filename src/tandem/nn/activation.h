// Activations and changes of shape as layers, for containers. Each is its function of tandem/ops and nothing more.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::nn {

class ReLU : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class GELU : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return gelu(x); }
};

class Sigmoid : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class SELU : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return selu(x); }
};

class SiLU : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Hardswish : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return hardswish(x); }
};

class Mish : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return mish(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(Module* parent = nullptr, const std::string& name = "", double slope = 0.01)
      : Module(parent, name), slope_(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

class ELU : public Module {
 public:
  explicit ELU(Module* parent = nullptr, const std::string& name = "", double alpha = 1)
      : Module(parent, name), alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }

 private:
  double alpha_;
};

class Softplus : public Module {
 public:
  explicit Softplus(Module* parent = nullptr, const std::string& name = "", double beta = 1,
                    double threshold = 20)
      : Module(parent, name), beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }

 private:
  double beta_, threshold_;
};

class Hardtanh : public Module {
 public:
  explicit Hardtanh(Module* parent = nullptr, const std::string& name = "", double low = -1, double high = 1)
      : Module(parent, name), low_(low), high_(high) {}
  Tensor forward(const Tensor& x) override { return hardtanh(x, low_, high_); }

 private:
  double low_, high_;
};

/// x where it is above 0, else weight · x: one learned slope, or one for each index of axis 1.
class PReLU : public Module {
 public:
  explicit PReLU(Module* parent = nullptr, const std::string& name = "", int64_t channels = 1,
                 double initial = 0.25);
  Tensor forward(const Tensor& x) override;

  const Tensor weight;
};

/// Gives back what it gets.
class Identity : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return x; }
};

class Softmax : public Module {
 public:
  explicit Softmax(Module* parent = nullptr, const std::string& name = "", int64_t axis = -1)
      : Module(parent, name), axis_(axis) {}
  Tensor forward(const Tensor& x) override { return softmax(x, axis_); }

 private:
  int64_t axis_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(Module* parent = nullptr, const std::string& name = "", int64_t axis = -1)
      : Module(parent, name), axis_(axis) {}
  Tensor forward(const Tensor& x) override { return log_softmax(x, axis_); }

 private:
  int64_t axis_;
};

/// Axes [first, last] become one; by default all but the batch.
class Flatten : public Module {
 public:
  explicit Flatten(Module* parent = nullptr, const std::string& name = "", int64_t first = 1,
                   int64_t last = -1)
      : Module(parent, name), first_(first), last_(last) {}
  Tensor forward(const Tensor& x) override { return flatten(x, first_, last_); }

 private:
  int64_t first_, last_;
};

/// One axis becomes several, of the given sizes (one may be -1).
class Unflatten : public Module {
 public:
  Unflatten(Module* parent, const std::string& name, int64_t axis, const Dims& sizes)
      : Module(parent, name), axis_(axis), sizes_(sizes) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t axis_;
  Dims sizes_;
};

}  // namespace tandem::nn
