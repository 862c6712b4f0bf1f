// The types of layers that a description may hold: their settings with the rules of each, and how one is made. A new
// type is a row in layer_types.cpp.
#pragma once

#include <string>
#include <vector>

#include "tandem/nn/recurrent.h"
#include "tandem/zoo/description.h"

namespace tandem::zoo {

enum class SettingKind : uint8_t {
  count,     ///< a whole number
  number,    ///< any finite number
  truth,     ///< true or false
  word,      ///< one of a few
  per_axis,  ///< a whole number, or one for each spatial axis
  padding    ///< the same, or "same"
};

struct SettingRule {
  const char* name;
  SettingKind kind;
  bool required = false;
  double least = 0, most = 0;             ///< of counts and numbers, both allowed
  std::vector<std::string> words = {};    ///< of words
  bool below_most = false;                ///< `most` itself is not allowed
  std::optional<Setting> otherwise = {};  ///< where it is not given; none: it is left out then
};

inline constexpr int kAnyNumber = 64;

struct LayerType {
  const char* name;
  /// Ranks of the samples that it takes, without the batch.
  int least_rank, most_rank;
  std::vector<SettingRule> settings;
  /// Makes one for samples of shape `in` (of its first value), with all settings there. Null: residual and repeat, which
  /// have layers of their own.
  nn::ModulePtr (*make)(const LayerDescription& layer, const Dims& in);
  bool takes_indices = false;  ///< of whole numbers
  const char* advice = "";     ///< a sentence for samples of another rank
  int least_inputs = 1, most_inputs = 1;
};

bool has_setting(const LayerType& type, const std::string& name);

const std::vector<LayerType>& layer_types();
/// Throws Error with the list of types and the nearest one.
const LayerType& layer_type(const std::string& name);

/// Throws Error with the list of the type's settings and the nearest one.
const SettingRule& setting_rule(const LayerType& type, const std::string& name);
/// Turns a whole number into a number where the setting is one. Throws Error where the layer has no such setting, or not
/// with such a value.
Setting checked_setting(const LayerType& type, const std::string& name, Setting value);
/// Throws Error where the type is unknown, a setting cannot be, or one that must be there is not. Looks at this layer
/// alone.
void check_layer(const LayerDescription& layer);

/// All settings of a layer, those that were not given with their defaults, lists for each spatial axis of samples of shape
/// `in` written out, in the order of the table.
std::vector<std::pair<std::string, Setting>> full_settings(const LayerDescription& layer, const Dims& in);

/// The states that a layer carries from call to call: name and shape of one sample, (layers, size).
std::vector<std::pair<std::string, Dims>> states_of(const LayerDescription& layer);

/// Sets what the forget gates begin with: 1 lets an LSTM remember from the first step on (Jozefowicz et al. 2015).
void set_forget_bias(nn::LSTM& lstm, double value);
/// Draws the weights again where the layer says how ("init").
void draw_weights(const LayerDescription& layer, nn::Module& made);

}  // namespace tandem::zoo
