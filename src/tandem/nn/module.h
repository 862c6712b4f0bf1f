// Module: a piece of a network with named parameters and named children. A child is declared as a member that
// names its parent and itself, so a layer is one line and nothing is registered by hand:
//   struct Net : nn::Module {
//     nn::Conv2d conv1{this, "conv1", 1, 6, 5, {.padding = 2}};
//     nn::Linear fc{this, "fc", 6 * 28 * 28, 10};
//     Tensor forward(const Tensor& x) override { return fc(flatten(relu(conv1(x)), 1)); }
//   };
// Parameters have dotted names, "conv1.weight", and PyTorch's layouts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/core/trace.h"

namespace tandem::nn {

/// Tensors with their names: parameters, or the state of an optimiser.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  /// A module of its own.
  Module() = default;
  /// A child of `parent`, which must outlive it (members do). The name must be new in the parent and without a
  /// dot.
  Module(Module* parent, std::string name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  /// All parameters of this module and its children, in order of declaration.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;

  /// Training (the default) or evaluation, for this module and its children. Dropout asks for it.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return read_flag(training_); }

  /// Moves every parameter to a device, or converts it to a floating type. Handles taken before stay valid.
  void to(Device device);
  void to(DType dtype);

  /// The parameters' values as they are now, without gradients: what a file of weights holds.
  NamedTensors state() const;
  /// Overwrites every parameter by the tensor of its name. Every parameter must be there with its shape, and
  /// nothing else may be. Nothing is changed where one does not fit. `source` names where the tensors come from
  /// ("load 'a.safetensors'"), `hint` is a last sentence for the message.
  void load_state(const NamedTensors& tensors, const std::string& source, const std::string& hint = "");

 protected:
  /// Makes `initial` a parameter of this module and returns it.
  Tensor parameter(const std::string& name, Tensor initial);

 private:
  void collect(const std::string& prefix, NamedTensors& out) const;
  void check_new_name(const std::string& name) const;

  std::string name_;
  std::vector<Module*> children_;
  NamedTensors parameters_;  // of this module alone
  // Shared, so that a compiled step can ask later whether it still stands as it did while tracing.
  std::shared_ptr<bool> training_ = std::make_shared<bool>(true);
};

/// How many elements.
int64_t count_parameters(const Module& module);

/// Writes each tensor of `from` into the tensor of its name in `to`; the rules and messages of load_state, with
/// `kind` as the word for one of them ("parameter").
void copy_named(const NamedTensors& to, const NamedTensors& from, const std::string& source, const char* kind,
                const std::string& hint = "");

}  // namespace tandem::nn
