// The folder of a run: where it lies, what is in it, and the final weights.
//   config.json                    the settings, written when the run begins
//   checkpoint-<step>.safetensors  the two newest checkpoints
//   model.safetensors              the weights, with PyTorch's names and layouts, written when the run ends
#pragma once

#include <string>

#include "tandem/nn/module.h"
#include "tandem/train/config.h"

namespace tandem {

/// Chooses (and, for a new run, makes) the folder of a run, by the rules of TrainConfig::out. Throws Error where a
/// new run would write over another, or a resumed one has nothing to go on from.
std::string open_run_folder(const TrainConfig& config);

/// Writes config.json: `settings` (train/config.h) and what else `eval` and a reader want to know.
void save_config(const std::string& folder, const TrainConfig& config, const std::string& settings);

/// Writes model.safetensors.
void save_weights(const std::string& folder, const nn::Module& model, const std::string& settings);

/// A run as `eval` finds it.
struct SavedRun {
  std::string model, data, dtype;
  std::string path;  // the file that the weights come from
  nn::NamedTensors weights;
  std::vector<std::string> warnings;  // checkpoints that could not be used
};

/// Reads model.safetensors, or else the newest usable checkpoint. Throws Error where the folder holds no run.
SavedRun load_run(const std::string& folder);

}  // namespace tandem
