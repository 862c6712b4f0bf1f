// The folder of a run: where it lies, what is in it, and the final weights.
//   .lock                          locked while a run writes to the folder (io/file.h, FolderLock)
//   table.json                     of a run on tables: how columns become inputs (data/table_encoder.h)
//   text.json                      of a run on text: its vocabulary (data/text_set.h)
//   config.json, environment.json  the settings, and the machine and the build; written when the run begins
//   metrics.csv, metrics.jsonl     a row per epoch
//   loss.svg, accuracy.svg …       the same as plots
//   checkpoint-<step>.safetensors  the two newest usable checkpoints
//   best.safetensors               the weights of the best epoch, where asked for
//   model.safetensors              the weights, with PyTorch's names and layouts, written when the run ends
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/io/file.h"
#include "tandem/nn/module.h"
#include "tandem/train/config.h"
#include "tandem/train/run_data.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

/// A folder that one run writes to, until this goes.
struct RunFolder {
  std::string path;
  io::FolderLock lock;
  bool is_new = false;  ///< it was not there before
};
/// Removes a new folder in which nothing has been written: a run that failed before its first file leaves none behind.
void remove_unused(const std::string& folder);
/// Chooses (and, for a new run, makes) the folder of a run: `out`, or where that is empty runs/<model> by the rules
/// of TrainConfig. Throws Error where another run writes to it, a new run would write over another, or a resumed one
/// has nothing to go on from; the folder is as it was then.
RunFolder open_run_folder(const FitOptions& options, const std::string& model);

/// Removes what a run that ended before its first checkpoint left, so that all that is in the folder is of the run that
/// begins there now.
void clear_run_folder(const std::string& folder);

/// Writes config.json and, of tables and text, table.json and text.json: `settings` (train/config.h), those that were given
/// (train/settings.h), and what else `eval`, `predict` and a reader want to know.
void save_config(const std::string& folder, const TrainConfig& config, const std::string& settings,
                 const DataRecord* record = nullptr);

/// Writes model.safetensors, or another file of weights.
std::string weights_path(const std::string& folder);
std::string best_path(const std::string& folder);
void save_weights(const std::string& path, const nn::NamedTensors& weights,
                  const std::string& settings = "{}");

/// A run as `eval` and `predict` find it.
struct SavedRun {
  std::string model, dtype;
  DataRecord data;
  std::string description;                  // of a model that is not of the zoo, as TOML; else empty
  std::vector<std::string> model_settings;  // TrainConfig::model_settings
  std::optional<DType> autocast;
  std::string path;  // the file that the weights come from
  nn::NamedTensors weights;
  std::vector<std::string> warnings;  // checkpoints that could not be used
};

/// Reads model.safetensors, or else the newest usable checkpoint (the moving average, where it has one); with `best`,
/// best.safetensors. Throws Error where the folder holds no run. `what` is the operation that messages begin with.
SavedRun load_run(const char* what, const std::string& folder, bool best = false);

/// The model of a run that begins or goes on. One that goes on needs the file of its description no longer: where that
/// is gone, the description is the one in the run's folder.
zoo::ChosenModel choose_model(const TrainConfig& config);
zoo::ChosenModel choose_model(const SavedRun& run);

/// A sample for a step on made-up data: what the model is made for; of text, as long as config.text.length says. Throws Error for a
/// length of other samples.
Dims made_up_sample(const TrainConfig& config, const zoo::ModelInfo& model);

/// Makes the run's model, with its weights, on a device.
std::unique_ptr<nn::Module> make_model(const SavedRun& run, Device device);

}  // namespace tandem
