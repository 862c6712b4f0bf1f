// The models by name. One file per model family; adding one is a row in zoo.cpp. A user's own comes as a description
// (zoo/description.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/nn/module.h"
#include "tandem/zoo/description.h"

namespace tandem::zoo {

/// How a model is usually trained: the settings of the study that it comes from, where that gives them.
struct TrainingDefaults {
  std::string data;  // name of the data set; empty: it has no usual one
  std::string optimizer = "sgd";
  double lr = 0.01;
  int64_t batch = 100;
  int64_t epochs = 1;
  std::optional<double> clip_norm = {};  // of gradients
  std::string schedule = "constant";     // of the learning rate
};

struct ModelInfo {
  std::string name;         // as in `tandem train NAME`
  std::string description;  // a line for a person
  Dims input;               // of one sample; of text its longest one
  int64_t classes =
      0;  // 0: its output is no list of classes; 1 of a model of text: one number for two classes
  TrainingDefaults training = {};
  bool any_size = false;  // height and width may be others than those of `input`: ModelOptions::input
  std::string task = "classification";  // what it is made for (train/task.h)
  int64_t vocabulary = 0;               // of a model of text: the words that it knows; 0: it takes no text
  /// How it is trained where nobody says how; unset: by the settings' own defaults.
  std::optional<TrainingDefaults> quick = {};
  /// false: it is no list of layers, as one with a loop inside is none, and has settings of its own (ModelOptions::settings) in place of a description.
  bool described = true;
};

/// All models, in the order in which they are listed.
const std::vector<ModelInfo>& models();

/// The row of a name; throws Error with the list of names and the nearest one.
const ModelInfo& model_info(const std::string& name);

/// Builds a model, with weights drawn from this thread's generator, on the CPU in f32. It can be cloned.
std::unique_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options = {});

/// A model of the zoo as data: make_model of it has the same names, weights and bits. Throws Error as make_model does, and for a
/// model that is not `described`.
ModelDescription describe(const std::string& name, const ModelOptions& options = {});

/// A model as a user chooses it: one of the zoo, or one of their own.
struct ChosenModel {
  ModelInfo info;
  std::optional<ModelDescription> description = {};  // unset: the zoo's
  /// What it is made with, where it has no description.
  ModelOptions options = {};
};
/// Whether a user's word for a model is the path of a description: it ends in ".toml".
bool is_description_path(const std::string& name_or_path);
/// "lenet", or "./mynet.toml". Throws Error where there is none, or where it cannot be built.
ChosenModel choose_model(const std::string& name_or_path);
ChosenModel choose_model(ModelDescription description);
std::unique_ptr<nn::Module> make_model(const ChosenModel& chosen);

}  // namespace tandem::zoo
