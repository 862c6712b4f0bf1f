// Checkpoints: all that a run needs to go on as if it had never stopped. One safetensors file a checkpoint, named
// checkpoint-<step>.safetensors, with the tensors as "model.<name>", "optimizer.<name>", "ema.<name>", "scaler.<name>",
// "carried.<name>" and "callback.<name>.<name>", and in the metadata the format's version, the settings, the position, the callbacks'
// states and a SHA-256 over all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/choices.h"
#include "tandem/core/rng.h"
#include "tandem/nn/module.h"
#include "tandem/train/metrics.h"
#include "tandem/train/model_switches.h"

namespace tandem {

/// A whole epoch, measured.
struct EpochMetrics {
  int64_t epoch = 0, step = 0;  ///< done
  double lr = 0;                ///< of its last step
  double seconds = 0;           ///< of the run so far, over all its processes
  /// "train_loss", the mean over the epoch; then "test_loss", "test_accuracy" … as the task measures, or "valid_loss" …
  std::vector<Metric> values = {};
  /// row["test_loss"]; NaN where it was not measured.
  double operator[](std::string_view name) const { return value_of(values, name); }
};

/// Where a run stands between two steps.
struct RunState {
  int64_t epoch = 0;                       ///< under way, from 0
  int64_t batch = 0;                       ///< batches of it that are done
  int64_t step = 0;                        ///< steps done since the beginning
  double loss_sum = 0;                     ///< over the samples of the epoch under way
  double loss_weight = 0;                  ///< how many they are, or what else the task counts
  double seconds = 0;                      ///< of the run so far, over all its processes
  std::vector<EpochMetrics> history = {};  ///< one a whole epoch
  GeneratorState generator;
  std::vector<Choice> choices = {};  ///< of algorithms, by profile
  /// A callback may have changed them since the run began. Unset: the checkpoint is older than this entry.
  std::optional<ModelSwitches> switches = {};
};

struct Checkpoint {
  RunState state;
  std::string settings;                            ///< JSON (train/config.h, settings_json)
  nn::NamedTensors model, optimizer, ema, scaler;  ///< ema, scaler: empty where there is none
  nn::NamedTensors carried;                        ///< from batch to batch (Task::first_state)
  struct CallbackState {
    std::string name, state;
    nn::NamedTensors tensors;
  };
  std::vector<CallbackState> callbacks;
};

/// A number as text that comes back to the bit, infinities and NaN included. The latter throws std::exception.
std::string hex_bits(double value);
double from_hex_bits(const std::string& text);

/// Writes a checkpoint into the folder of a run and returns its path. Then removes what is older than it and older than
/// the newest other one that can be used, and what a killed process left half-written: two that can be used stay,
/// however many of the others are damaged. Where writing fails, older checkpoints are as they were.
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
