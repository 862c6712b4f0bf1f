// Variants of a described model: wider, deeper, with other layers between its weights; and models made from a template for
// data of any shape.
#pragma once

#include <optional>
#include <string>

#include "tandem/zoo/description.h"

namespace tandem::search {

/// What is changed; what is unset stays as it is. All leave the input and the outputs of the last layer alone.
struct Variant {
  /// Factor on the channels of convolutions and the outputs of dense layers, rounded to a whole number.
  std::optional<double> width = {};
  /// How often each block stands. A block is a residual block without a shortcut; where the model has none, the last
  /// convolution of those in a row, with what follows it up to the next pool; where it has no convolutions, a hidden dense
  /// layer with what follows it. Repeated convolutions keep the size.
  std::optional<int64_t> depth = {};
  /// In place of every activation but a last layer.
  std::optional<std::string> activation = {};
  /// Of every dropout layer; a model that has none gets one before its last dense layer.
  std::optional<double> dropout = {};
  /// true: after each convolution and hidden dense layer that no norm follows; false: nowhere.
  std::optional<bool> batch_norm = {};
};

zoo::ModelDescription vary(zoo::ModelDescription description, const Variant& variant);

/// A simple model for samples of any shape: two convolutions with pools and a dense layer where samples are (channels,
/// height, width) of at least 8 by 8, else two hidden dense layers.
zoo::ModelDescription template_model(const Dims& input, int64_t outputs);

}  // namespace tandem::search
