// Checkpoints: all that a run needs to go on as if it had never stopped. One safetensors file a checkpoint, named
// checkpoint-<step>.safetensors, with the tensors as "model.<name>" and "optimizer.<name>", and in the metadata
// the format's version, the settings, the position and a SHA-256 over all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/rng.h"
#include "tandem/nn/module.h"

namespace tandem {

struct EpochMetrics {
  double train_loss = 0, test_loss = 0, test_accuracy = 0;
};

/// Where a run stands between two steps.
struct RunState {
  int64_t epoch = 0;                            ///< under way, from 0
  int64_t batch = 0;                            ///< batches of it that are done
  int64_t step = 0;                             ///< steps done since the beginning
  double loss_sum = 0;                          ///< over the samples of the epoch under way
  int64_t loss_samples = 0;                     ///< how many they are
  std::optional<EpochMetrics> last_epoch = {};  ///< of the latest whole epoch
  GeneratorState generator;
};

struct Checkpoint {
  RunState state;
  std::string settings;  ///< JSON (train/config.h, settings_json)
  nn::NamedTensors model, optimizer;
};

/// Writes a checkpoint into the folder of a run and returns its path. Then removes all but the two newest and
/// what a killed process left half-written. Where writing fails, older checkpoints are as they were.
std::string save_checkpoint(const std::string& folder, const Checkpoint& checkpoint);

/// Reads one file. Throws Error where it is torn, damaged, of another version or no checkpoint at all.
Checkpoint load_checkpoint(const std::string& path);

/// The checkpoints of a folder by name, newest first.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// The newest usable checkpoint of a folder. Those that had to be passed over are named in `warnings`, a line each.
/// Nothing where the folder has none; throws Error where it has some and none is usable.
struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::string path;
};
std::optional<FoundCheckpoint> newest_checkpoint(const std::string& folder,
                                                 std::vector<std::string>& warnings);

}  // namespace tandem
