// What a table `optimizer` may contain: one list for the files of studies and workloads and for Tandem's driver, with which the
// gate compares all others. Names and meaning are PyTorch's.
#pragma once

#include <string>
#include <vector>

#include "tandem/optim/optimizer.h"

namespace tandem::lab {

inline std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const optim::OptimizerInfo& info : optim::optimizers()) names.push_back(info.name);
  return names;
}

/// The settings that an optimiser has besides `name`.
inline std::vector<std::string> optimizer_settings(const std::string& name) {
  std::vector<std::string> settings = {"lr", "weight_decay"};
  const bool is_sgd = name == "sgd" || name == "nesterov";
  if (optim::optimizer_info(name).momentum) settings.emplace_back("momentum");
  if (!is_sgd) settings.emplace_back("eps");
  if (!is_sgd && name != "rmsprop" && name != "adadelta" && name != "adagrad") settings.emplace_back("betas");
  return settings;
}

}  // namespace tandem::lab
