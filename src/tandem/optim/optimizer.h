// Optimisers. One holds its parameters, its state tensors (made up front, so that the first step does the same
// operations as every other) and the learning rate as a 0-d tensor on the parameters' device. update() is made
// of public operations and assign(), so that a compiled training step can hold it.
#pragma once

#include <memory>
#include <optional>
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

  /// Changes every parameter by one step. gradients[i] belongs to parameter i (tandem::grad gives them so); a
  /// parameter whose gradient is undefined (a frozen one) stays as it is.
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

/// The settings of the optimisers by name; each takes what it knows. What is not given is the optimiser's own
/// default.
struct Settings {
  double lr = 0.01;
  std::optional<double> momentum = {};      ///< sgd and nesterov (0.9), rmsprop (0)
  double beta1 = 0.9;                       ///< adam, adamw, adamax, lamb
  double beta2 = 0.999;                     ///< adam, adamw, adamax, lamb
  std::optional<double> decay = {};         ///< of the mean square: rmsprop (0.99), adadelta (0.9)
  bool centered = false;                    ///< rmsprop
  std::optional<double> epsilon = {};       ///< all but sgd and nesterov
  std::optional<double> weight_decay = {};  ///< adamw and lamb: of the value; the rest: added to the gradient
};

struct OptimizerInfo {
  std::string name;
  std::string description;
  double lr = 0;                        // that it starts from where none is given
  std::optional<double> momentum = {};  // the same; empty where it takes none
};
const std::vector<OptimizerInfo>& optimizers();
/// "sgd, nesterov, adam …"
std::string optimizer_names();
/// The row of a name; throws Error with the list of names.
const OptimizerInfo& optimizer_info(const std::string& name);
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, nn::NamedTensors parameters,
                                          const Settings& settings);

}  // namespace tandem::optim
