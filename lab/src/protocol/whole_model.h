// Whole models: networks that are no list of layers, so that no description can express them. In the protocol such a network is one
// call, whose kind is the name of a class of the zoo. Its settings are the class's sizes (whole numbers) and probabilities (numbers
// with a point), by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/zoo/zoo.h"

namespace tandem::lab {

using NamedSettings = std::vector<std::pair<std::string, zoo::Setting>>;

inline bool is_whole_model(const std::string& kind) {
  for (const zoo::ModelInfo& info : zoo::models())
    if (info.name == kind) return !info.described;
  return false;
}

inline std::vector<std::string> whole_model_names() {
  std::vector<std::string> names;
  for (const zoo::ModelInfo& info : zoo::models())
    if (!info.described) names.push_back(info.name);
  return names;
}

/// The options for making the class. Throws Error for a setting that is not a number. Names that the class does not have are refused
/// by the class.
inline zoo::ModelOptions options_of(const NamedSettings& settings, bool dropout = true) {
  zoo::ModelOptions options;
  for (const auto& [name, value] : settings) {
    const auto* whole = std::get_if<int64_t>(&value);
    const auto* share = std::get_if<double>(&value);
    TD_CHECK(whole || share, "network: the settings of a whole model must be numbers; ", name, " is none.");
    if (name == "vocabulary" || name == "classes") {
      TD_CHECK(whole && *whole >= 1 && *whole <= 1 << 24, "network: ", name,
               " must be a whole number from 1 to 16777216; got another.");
      (name == "classes" ? options.classes : options.vocabulary) = *whole;
      continue;
    }
    const double number = whole ? static_cast<double>(*whole) : dropout ? *share : 0.0;
    if (name == "dropout") {
      TD_CHECK(number >= 0 && number < 1, "network: dropout must be at least 0 and below 1; got ", number,
               ".");
      options.dropout = number;
    } else {
      options.settings.emplace_back(name, number);
    }
  }
  return options;
}

/// Whether the model has dropout, which draws random numbers in training.
inline bool draws(const NamedSettings& settings) {
  for (const auto& [name, value] : settings)
    if (const auto* share = std::get_if<double>(&value); share && *share > 0) return true;
  return false;
}

}  // namespace tandem::lab
