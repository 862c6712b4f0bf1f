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
  /// Outputs of the last layer; unset: the model's own.
  std::optional<int64_t> classes = {};
  /// Sizes of one sample (channels, height, width), for models that are made for a size; unset: the model's own.
  std::optional<Dims> input = {};
};

/// How a model is usually trained: the settings of the study that it comes from, where that gives them.
struct TrainingDefaults {
  std::string data;  // name of the data set
  std::string optimizer = "sgd";
  double lr = 0.01;
  int64_t batch = 100;
  int64_t epochs = 1;
};

struct ModelInfo {
  std::string name;         // as in `tandem train NAME`
  std::string description;  // a line for a person
  Dims input;               // of one sample
  int64_t classes = 0;
  TrainingDefaults training = {};
  bool any_size = false;  // height and width may be others than those of `input`: ModelOptions::input
};

/// All models, in the order in which they are listed.
const std::vector<ModelInfo>& models();

/// The row of a name; throws Error with the list of names and the nearest one.
const ModelInfo& model_info(const std::string& name);

/// Builds a model, with weights drawn from this thread's generator, on the CPU in f32. It can be cloned.
std::unique_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options = {});

}  // namespace tandem::zoo
