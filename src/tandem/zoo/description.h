// A model as data: a straight-line list of layers with plain names and sizes, which any framework can build. A person
// writes it as a TOML file (docs/reference/description.md) and never gives a layer's input size: it follows from what
// arrives there. straight_line() works all of that out, for programs that build the model elsewhere.
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
  /// Rows of the embedding that reads the tokens, for models of text; unset: the model's own.
  std::optional<int64_t> vocabulary = {};
  /// Sizes and probabilities that a model has names for, where it is not a description: {{"embedding", 64}}.
  std::vector<std::pair<std::string, double>> settings = {};
};

/// The value of a setting: kernel = 3, p = 0.5, bias = false, padding = "same", kernel = [3, 5].
using Setting = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct LayerDescription {
  std::string type;  ///< "conv"
  /// What the names of its parameters begin with, dots allowed; empty: its place in the list, counted from 0.
  std::string name = {};
  /// Those that were given; the others have their defaults.
  std::vector<std::pair<std::string, Setting>> settings = {};
  /// Of type residual: what the input goes through, and what it goes through before it is added (empty: nothing). Of
  /// type repeat: what it goes through several times, each time with weights of its own.
  std::vector<LayerDescription> layers = {}, shortcut = {};
  int64_t line = 0;  ///< in its file, for messages; 0: none
  /// The values that it takes: inputs of the model, what an earlier layer gave under that name, or "before", what the
  /// layer before gave. Empty: that alone.
  std::vector<std::string> from = {};
  /// A name for what it gives. Inside of residual and repeat it is known to their end.
  std::string to = {};
};

/// An input of a model, or a state that it carries from call to call. Whole numbers (length) are tokens, of which a call may
/// have more or fewer.
struct InputDescription {
  std::string name;          ///< letters, digits and _
  Dims shape;                ///< of one sample, without the batch; empty: one number
  DType dtype = DType::f32;  ///< f32: any floating type; i64: whole numbers
  bool operator==(const InputDescription&) const = default;
};

struct ModelDescription {
  std::string name;  ///< letters, digits, _, - and dots
  Dims input;        ///< of one sample, without the batch, where the model has one input; it is called x
  std::vector<LayerDescription> layers;
  std::vector<InputDescription> inputs = {};  ///< where there are others, instead of `input`
  std::vector<std::string> outputs = {};  ///< by their names; empty: what the last layer gives, called out
};

/// One layer with everything worked out.
struct LayerCall {
  LayerDescription layer;       ///< as given, its name in full and every setting there, axis by axis
  std::vector<std::string> in;  ///< an input, or `out` of an earlier call
  std::string out;              ///< "v1", "v2" …
  Dims shape;                   ///< of what it gives for one sample
  std::vector<std::pair<std::string, Dims>> parameters, buffers;  ///< by their full names
  std::vector<std::string> states;                                ///< that it begins with and leaves, by name
};

/// A description without blocks, repetitions and defaults: each call makes one new value.
struct StraightLine {
  struct Output {
    std::string name, value;  ///< `value`: the call's `out`
    Dims shape;
  };
  std::string name;
  std::vector<InputDescription> inputs;
  std::vector<InputDescription>
      states;  ///< what layers with carry remember, each (layers, N, hidden) of a batch
  std::vector<LayerCall> calls;
  std::vector<Output> outputs;
};

/// Found on shapes alone. Throws Error for a setting that cannot be, and where a layer cannot take what arrives there, by
/// the layer and that shape; takes no memory for weights.
StraightLine straight_line(const ModelDescription& description);

/// Builds the model, with weights drawn from this thread's generator, on the CPU in f32. It can be cloned. Throws Error as
/// straight_line does. A model with several inputs is called with a list of them, in their order; one with states takes
/// these behind the inputs, and gives the new ones behind its outputs.
std::unique_ptr<nn::Module> make_model(const ModelDescription& description, const ModelOptions& options = {});

/// What the model makes of one sample; it must have one output. Throws Error as straight_line does.
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
