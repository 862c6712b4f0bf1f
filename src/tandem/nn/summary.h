// What a model is made of and what a forward pass of it costs. Nothing is computed: the forward pass is run on
// shapes alone, in evaluation mode, so a large model takes no longer than a small one.
#pragma once

#include <string>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// One module. Parameters, operations and memory are its own, without those of its children, so columns add up.
struct LayerSummary {
  std::string name;           ///< dotted; empty for the model itself
  std::string type;           ///< "Conv2d"
  std::vector<Dims> outputs;  ///< of its last call; empty where forward does not call it
  int64_t calls = 0;
  int64_t parameters = 0;  ///< a shared one counts where it comes first
  int64_t flops = 0;
  int64_t activation_bytes = 0;
};

struct Summary {
  std::string model;  ///< its type
  Dims input;         ///< with the batch
  DType dtype = DType::f32;
  std::vector<LayerSummary> layers;
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t state_bytes = 0;  ///< of parameters and buffers
  /// Of one forward pass: a multiplication and an addition for each term of a matrix product or convolution (gradient
  /// ops, which transposed convolutions are made of, too), one for each element of anything else that computes,
  /// nothing for views and copies.
  int64_t flops = 0;
  /// What all operations of the pass write, if nothing is reused: what training keeps for the backward pass, at most.
  int64_t activation_bytes = 0;
};

/// The model that `make` builds, as far as shapes go: nothing is drawn and no memory is taken for its weights, so it can be
/// counted and summed up, however large, and nothing else.
std::unique_ptr<Module> shapes_of(const std::function<std::unique_ptr<Module>()>& make);

/// `input` is the shape of a whole batch. The input has the floating type and the device of the model's parameters.
Summary summary(Module& model, const Dims& input);
/// The same for a model with several inputs, or of other types. `inputs` give shapes, types and device; their values
/// are not read.
Summary summary(Module& model, const std::vector<Tensor>& inputs,
                const std::function<void(const std::vector<Tensor>&)>& call);

/// An aligned table with a line per layer, and the totals.
std::string to_string(const Summary& summary);

}  // namespace tandem::nn
