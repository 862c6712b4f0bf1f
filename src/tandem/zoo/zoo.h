// The models by name. One file a model family; adding one is a row in zoo.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::zoo {

struct ModelOptions {
  /// Replaces every dropout probability of the model; unset: the model's own.
  std::optional<double> dropout = {};
};

struct ModelInfo {
  std::string name;         // as in `tandem train NAME`
  std::string description;  // a line for a person
  Dims input;               // of one sample
  int64_t classes = 0;
};

/// All models, in the order in which they are listed.
const std::vector<ModelInfo>& models();

/// The row of a name; throws Error with the list of names and the nearest one.
const ModelInfo& model_info(const std::string& name);

/// Builds a model, with weights drawn from this thread's generator, on the CPU in f32.
std::unique_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options = {});

}  // namespace tandem::zoo
