// The data of a run that is named by words: how it is opened, the task that it asks for, the model that fits it, and what
// of it stays in the run's folder, so that `eval` and `predict` do the same with other samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/registry.h"
#include "tandem/nn/module.h"
#include "tandem/train/config.h"
#include "tandem/train/task.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

/// What a run keeps of its data.
struct DataRecord {
  std::string name = {};           ///< of the data set
  data::OpenOptions opening = {};  ///< with the folder that it was found in, where the user named one
  std::string task = "classification";
  std::vector<std::string> class_names = {};
  std::optional<data::ImageFormat> format = {};            ///< how images become inputs
  std::shared_ptr<const data::TableEncoder> encoder = {};  ///< how rows of tables become inputs
  std::optional<bool> byte_inputs = {};                    ///< of arrays: data::Splits
  data::TextEncoderPtr text = {};                          ///< how texts become inputs
  std::optional<data::LogMelOptions> sound = {};           ///< how sound becomes inputs
  // Of a saved run: what it was trained and tested on.
  std::string train_data = {}, test_data = {};  ///< data::fingerprint; empty: not known
  std::optional<int64_t> limit = {};            ///< TrainConfig::limit
};

/// The data of a run that begins, ready for the loop.
struct TrainingData {
  data::Splits splits;          ///< train: without what validates; with the augmentation asked for
  data::DatasetPtr valid = {};  ///< held out of training
  DataRecord record;
  TaskPtr task;
  std::string taken;  ///< what --limit took of the samples, as a line; empty: all
};
/// Opens what the configuration names. Throws Error where it cannot be, or fits no task.
TrainingData open_training_data(const TrainConfig& config, const zoo::ModelInfo& model);

/// The model made to fit the data: its input, and one output per class or number. The same where it fits as it is;
/// `notices` says what was changed. Throws Error, with the layer, where the model cannot take such samples.
zoo::ChosenModel adapted(zoo::ChosenModel chosen, const TrainingData& data,
                         std::vector<std::string>& notices);

/// The test part for `eval` and `predict`: the run's own data, or another data set or folder. Its samples are made as
/// those of training were. A folder or file that is not the run's own and has no test part is taken whole; `notices` of
/// the result say so, and whether it holds what the run was trained on. Throws Error where data that the run split
/// itself has changed since, so that training samples would be among those for testing. `limit` draws as that of training
/// does; `taken` gets TrainingData::taken.
data::Splits open_test_data(const DataRecord& record, const zoo::ModelInfo& model, const std::string& data,
                            const std::string& data_dir, std::optional<int64_t> limit,
                            std::string* taken = nullptr);

/// Inputs of arrays (data/arrays.h) made as those of the run were: pixels get its mean and deviation. Throws Error,
/// which begins with `where`, where bytes were trained on and these are numbers, or the other way round.
data::DatasetPtr alike_inputs(const DataRecord& record, data::DatasetPtr set, bool are_bytes,
                              const std::string& where);

/// The task of a record.
TaskPtr task_of(const DataRecord& record, TaskOptions options = {});

/// One SHA-256 for each kind of names that the data has: its "class_names", the "columns" of a table with their categories,
/// the "words" of texts. Samples tell only the numbers of these, so that a fingerprint of samples does not tell them.
std::vector<std::pair<std::string, std::string>> fingerprints_of_names(const DataRecord& record);

/// How many numbers the model must give for one sample.
int64_t outputs_for(const data::Splits& splits);

/// The weights in a file (safetensors, .pt, .pth) or in the folder of a run.
nn::NamedTensors weights_of(const std::string& path);
/// Loads what fits of them, and says in `notices` what was taken and what was not. -> the names that were drawn anew. Throws Error where nothing fits.
std::vector<std::string> load_fitting_weights(nn::Module& model, const std::string& path,
                                              std::vector<std::string>& notices);

/// Freezes what the patterns name (train/parameter_names.h), and says in `notices` how much that is. -> the batch norms
/// among them, which training must leave in evaluation mode, so that their statistics stay as well. Throws Error for a
/// pattern that names nothing, and for a name that is among `drawn`, those that --weights did not give.
std::vector<nn::Module*> freeze_named(nn::Module& model, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& drawn,
                                      std::vector<std::string>& notices);

}  // namespace tandem
