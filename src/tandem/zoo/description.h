// A model as data: a straight-line list of layers with plain names and sizes, which any framework can build. A person
// writes it as a TOML file (docs/reference/description.md) and never gives a layer's input size: it follows from what
// arrives there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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

/// The value of a setting: kernel = 3, p = 0.5, bias = false, padding = "same", kernel = [3, 5].
using Setting = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct LayerDescription {
  std::string type;  ///< "conv"
  /// What the names of its parameters begin with, dots allowed; empty: its place in the list, counted from 0.
  std::string name = {};
  /// Those that were given; the others have their defaults.
  std::vector<std::pair<std::string, Setting>> settings = {};
  /// Of type residual: what the input goes through, and what it goes through before it is added (empty: nothing).
  std::vector<LayerDescription> layers = {}, shortcut = {};
  int64_t line = 0;  ///< in its file, for messages; 0: none
};

struct ModelDescription {
  std::string name;  ///< letters, digits, _, - and dots
  Dims input;        ///< of one sample, without the batch
  std::vector<LayerDescription> layers;
};

/// Builds the model, with weights drawn from this thread's generator, on the CPU in f32. It can be cloned. Throws Error
/// for a setting that cannot be, and where a layer cannot take what arrives there, by the layer and that shape.
std::unique_ptr<nn::Module> make_model(const ModelDescription& description, const ModelOptions& options = {});

/// What the model makes of one sample, found on shapes alone. Throws Error as make_model does, and takes no memory for
/// weights.
Dims output_shape(const ModelDescription& description);

/// The description as the options change it: the dropouts, the outputs of the last linear layer, the input.
ModelDescription with_options(ModelDescription description, const ModelOptions& options);

/// The text of a file that parse_description reads: a line for each layer.
std::string to_toml(const ModelDescription& description);
/// Reads TOML. Throws Error with the line and what is allowed there. `source` is for messages, and its name without
/// ".toml" is the model's where the text gives none.
ModelDescription parse_description(const std::string& text, const std::string& source = "description");
ModelDescription read_description(const std::string& path);

}  // namespace tandem::zoo
