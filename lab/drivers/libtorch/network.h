// A network ready to run: prepared steps that are called in order. Nothing of its description is read when they run.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cell.h"

namespace libtorch_driver {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

class Network {
 public:
  /// The kinds of calls that can be built, and the networks that are also written by hand.
  static const std::vector<std::string>& kinds();
  static const std::vector<std::string>& listings();

  /// Builds what the cell asks for: the description, or the listing of its name.
  explicit Network(const Cell& cell);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The outputs, in the order of the description. `values`: the inputs in that order, each with the batch, then what
  /// host_inputs names, on the CPU. The states go on from where they are.
  Tensors forward(Tensors values);

  /// Inputs that a layer reads on the CPU (the lengths of lstm), by number.
  const std::vector<size_t>& host_inputs() const { return host_inputs_; }

  /// All layers, for the mode, the device and the type.
  torch::nn::Module& layers() { return *layers_; }

  /// Trained tensors and running statistics by their canonical names.
  std::map<std::string, Tensor> parameters() const { return named(false); }
  std::map<std::string, Tensor> statistics() const { return named(true); }

  /// What the network remembers from step to step, (layers · directions, batch, hidden) each. Zeros after reset.
  Tensors states;
  void reset_states(int64_t batch, const torch::TensorOptions& options);

 private:
  friend class Builder;
  struct Step {
    std::function<void(Tensors&)> run;
    std::vector<size_t> ended;  // values that no later step reads
  };
  std::map<std::string, Tensor> named(bool statistics) const;

  std::shared_ptr<torch::nn::Module> layers_;
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>
      named_layers_;  // by the call's name
  std::vector<Step> steps_;
  size_t values_ = 0;
  std::vector<size_t> outputs_, host_inputs_;
  std::vector<std::vector<int64_t>> state_shapes_;
};

}  // namespace libtorch_driver
