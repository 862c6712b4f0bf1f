// What a run changes about a model besides its tensors: which parameters are frozen, and which parts do not train.
#pragma once

#include <string>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem {

/// By name, in the order of the model.
struct ModelSwitches {
  std::vector<std::string> frozen = {};  ///< parameters
  std::vector<std::string> still = {};   ///< modules in evaluation mode; "": the model itself
};
ModelSwitches switches_of(nn::Module& model);
/// Freezes and stills what is named, and nothing else.
void set_switches(nn::Module& model, const ModelSwitches& switches);

}  // namespace tandem
