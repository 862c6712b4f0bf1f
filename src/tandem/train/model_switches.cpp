#include "tandem/train/model_switches.h"

#include <set>

namespace tandem {

ModelSwitches switches_of(nn::Module& model) {
  ModelSwitches switches;
  for (const auto& [name, parameter] : model.named_parameters())
    if (!parameter.requires_grad()) switches.frozen.push_back(name);
  for (const auto& [name, module] : model.named_modules())
    if (!module->training()) switches.still.push_back(name);
  return switches;
}

void set_switches(nn::Module& model, const ModelSwitches& switches) {
  const std::set<std::string> frozen(switches.frozen.begin(), switches.frozen.end()),
      still(switches.still.begin(), switches.still.end());
  for (auto& [name, parameter] : model.named_parameters()) {
    Tensor handle = parameter;
    handle.set_requires_grad(!frozen.contains(name));
  }
  for (const auto& [name, module] : model.named_modules()) module->set_training(!still.contains(name));
}

}  // namespace tandem
