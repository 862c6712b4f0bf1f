// Optimisers. One holds its parameters, its state tensors (made up front, so that the first step does the same
// operations as every other) and the learning rate as a 0-d tensor on the parameters' device. update() is made
// of public operations and assign(), so that a compiled training step can hold it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::optim {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes every parameter by one step. gradients[i] belongs to parameter i (tandem::grad gives them so).
  void update(std::span<const Tensor> gradients);

  /// The learning rate. set_lr assigns into the tensor that update reads: a compiled step sees it.
  void set_lr(double lr);
  double lr() const;

  /// What a checkpoint must hold: "lr", "momentum.conv1.weight" …
  virtual nn::NamedTensors named_state() const;
  /// Overwrites the state; every entry must be there with its shape. See Module::load_state.
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

  const nn::NamedTensors& parameters() const { return parameters_; }

 protected:
  /// At least one parameter, all on one device, all of one floating type.
  Optimizer(nn::NamedTensors parameters, double lr);

  /// Once an update, before the first step().
  virtual void begin() {}
  /// The new value of parameter i, from its value and gradient, both of type compute_dtype().
  virtual Tensor step(size_t i, const Tensor& value, const Tensor& gradient) = 0;

  /// The type of state and arithmetic: the parameters' own, f32 for bf16 and f16.
  DType compute_dtype() const { return lr_.dtype(); }
  const Tensor& lr_tensor() const { return lr_; }
  /// One tensor of zeros a parameter, for the state of a derived class.
  std::vector<Tensor> zeros_for_each() const;
  /// Appends "<prefix>.<parameter's name>" rows.
  void append_state(nn::NamedTensors& out, const std::string& prefix,
                    const std::vector<Tensor>& tensors) const;

 private:
  nn::NamedTensors parameters_;
  // 16-bit parameters are rounded copies of these f32 values: steps smaller than their rounding still add up.
  // Empty for f32 and f64.
  std::vector<Tensor> masters_;
  Tensor lr_;
};

/// Every setting of every optimiser; each takes what it knows.
struct Settings {
  double lr = 0.01;
  double momentum = 0.9;      ///< sgd
  double beta1 = 0.9;         ///< adam
  double beta2 = 0.999;       ///< adam
  double epsilon = 1e-8;      ///< adam
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
};

struct OptimizerInfo {
  std::string name;
  std::string description;
  double lr = 0;  // that it starts from where none is given
};
const std::vector<OptimizerInfo>& optimizers();
/// The row of a name; throws Error with the list of names.
const OptimizerInfo& optimizer_info(const std::string& name);
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, nn::NamedTensors parameters,
                                          const Settings& settings);

}  // namespace tandem::optim
