// What a training run is made of: every setting, with its default, and the rules that it must keep.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/device.h"
#include "tandem/core/dtype.h"
#include "tandem/data/image_set.h"
#include "tandem/data/registry.h"
#include "tandem/graph/compile.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/callback_options.h"
#include "tandem/train/machine.h"
#include "tandem/train/task.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

/// How operations run: one by one, or traced and replayed. The results have the same bits.
enum class Engine : uint8_t { eager, graph };
const char* name(Engine engine);
Engine parse_engine(const std::string& text);  ///< throws Error

/// One number, 0-d, from the model's outputs (f32 at least) and the targets of a batch.
using LossFunction = std::function<Tensor(const Tensor& out, const Tensor& target)>;

class Callback;  // train/callbacks.h
using CallbackPtr = std::shared_ptr<Callback>;

/// How a model is trained: what fit() takes, and the command.
struct FitOptions {
  TaskPtr task = {};  ///< what the model is trained for (train/task.h); unset: classification
  const data::Dataset* validation = nullptr;  ///< measured at the end of every epoch, as valid_loss …
  /// Measured as test_loss …: at the end of every epoch, or with `validation` once, at the end of the run.
  const data::Dataset* test = nullptr;
  Engine engine = Engine::graph;
  std::optional<int64_t> epochs = {};  ///< unset: 1, or as many as `steps` needs
  std::optional<int64_t> steps = {};   ///< the run ends after so many steps in all
  int64_t batch = 100;
  int64_t accumulate = 1;  ///< batches per step; their gradients make one mean
  std::string optimizer = "sgd";
  std::optional<double> lr = {};              ///< unset: the optimiser's default
  std::optional<double> momentum = {};        ///< unset: the optimiser's default
  std::optional<double> weight_decay = {};    ///< unset: the optimiser's default
  std::optional<bool> decoupled = {};         ///< the decay shrinks weights, else it is added to gradients
  std::vector<std::string> no_decay = {};     ///< names of what is not decayed: "*.bias"
  optim::Optimizer* own_optimizer = nullptr;  ///< in place of the named one; it holds the model's parameters
  LossFunction loss = {};                     ///< in place of the task's
  std::optional<double> clip_value = {};      ///< gradients' elements, before …
  std::optional<double> clip_norm = {};       ///< … their common norm
  std::optional<double> ema = {};  ///< decay of the weights' moving average, which is what is tested and kept
  bool ema_warm_up = false;        ///< see optim/ema.h
  /// bf16 or f16: forward passes run under Autocast, with the model's own weights (f32) as masters; f16 with dynamic loss
  /// scaling. Tests and predictions too.
  std::optional<DType> autocast = {};
  uint64_t seed = 0;  ///< of the shuffle
  /// Threads that make batches, for training and for tests (data::LoaderOptions::workers): the same bits. Unset: 1; for a
  /// GPU more.
  std::optional<int64_t> workers = {};
  /// Parameters that a step's loss does not depend on stay as they are in it; else they are refused, by name.
  bool allow_unused = false;
  std::vector<CallbackPtr> callbacks = {};
  std::string out = {};         ///< folder of the run; fit(): empty writes nothing; train(): see TrainConfig
  bool resume = false;          ///< go on from the newest usable checkpoint in `out`
  bool anomaly = false;         ///< stop at the operation that first makes a NaN or infinity
  CompileOptions compile = {};  ///< what the graph engine does with a step; bits do not depend on it
  /// Steps; 0: only at the end of each epoch. Unset: 500, and fewer checkpoints where they take long to write.
  std::optional<int64_t> checkpoint_every = {};
  /// Once true, the run saves a checkpoint and ends after its step, or within a test, which the resumed run does again.
  const std::atomic<bool>* stop = nullptr;
};

/// A whole run by names: what the command trains, and all of it: train() makes the callbacks that it asks for. Each setting
/// is a row of the table in train/settings.cpp, too. `out` empty: runs/<model>, or the next free runs/<model>-<n>.
/// `seed` is that of the weights and of dropout, too.
struct TrainConfig : FitOptions {
  std::string model = {};  ///< a name of the zoo, or the path of a description: "./mynet.toml"
  std::string data =
      {};  ///< name of a data set; empty: the model's own; of MNIST a stand-in (data/registry.h, open_default)
  std::string data_dir = {};  ///< where its files are; empty: the usual places
  Device device = {};
  DType dtype = DType::f32;           ///< of the whole model
  Machine machine = {};               ///< how this process computes, while the run goes
  std::optional<int64_t> limit = {};  ///< samples to train on, and to test on: drawn by chance, see docs
  bool augment = false;               ///< the augmentation that is usual for the data, drawn anew each epoch
  // ---- Data of your own (data/registry.h, OpenOptions)
  std::optional<std::array<int64_t, 2>> input = {};  ///< height, width that images of a folder are made
  std::optional<double> test_share = {};             ///< of data without a test part, for testing; unset: 0.2
  double valid = 0;             ///< share of the training part that is held out, to judge epochs by
  uint64_t split_seed = 0;      ///< of both splits, and of limit
  bool skip_bad = false;        ///< image files that cannot be read are left out, and named
  std::string target = {};      ///< the column of a table that is to be predicted
  data::CsvOptions csv = {};    ///< how a table is read, and what its columns are
  data::TextOptions text = {};  ///< how text is cut and numbered
  std::string task_name = {};   ///< empty: what the data asks for (train/task.h)
  bool class_weights = false;   ///< rare classes count more in the loss, so that all count alike
  double guided_attention = 0;  ///< TaskOptions::guided_attention
  // ---- The model's beginning
  /// "embedding=64": of a model of the zoo that has settings by name (zoo::ModelOptions::settings).
  std::vector<std::string> model_settings = {};
  std::string weights = {};              ///< a file of weights or the folder of a run: what fits is taken
  std::vector<std::string> freeze = {};  ///< names of what is not trained: "conv1" (train/parameter_names.h)
  // ---- What becomes callbacks (train/callback_options.h), before `callbacks`
  ScheduleOptions schedule = {};           ///< of the learning rate
  std::string monitor = "loss";            ///< of early_stop and best; schedule has its own
  std::optional<int64_t> early_stop = {};  ///< stop after more than so many epochs without progress
  double min_delta = 0;                    ///< early_stop: progress is more than this
  bool restore_best = false;               ///< early_stop: end with the weights of the best epoch
  bool best = false;                       ///< keep the weights of the best epoch in best.safetensors
  std::optional<double> time_budget = {};  ///< seconds in which this process ends the run (callbacks.h)
  bool tensorboard = false;                ///< write event files
};

/// No count of steps, epochs or samples may be larger: sums and products of two settings stay far below 2^63 then, and
/// a double holds each exactly.
inline constexpr int64_t kMostCount = 1'000'000'000'000'000;
inline constexpr int64_t kMostBatch = 1'000'000'000;  ///< samples per batch, batches per step
inline constexpr int64_t kMostThreads = 4096;         ///< what set_threads takes
inline constexpr double kMostNumber = 1e30;           ///< of rates and norms: f32 holds it

/// Throws Error for the first setting that cannot be: an unknown name, a batch of 0, a negative rate …
void check(const FitOptions& options);
void check(const TrainConfig& config);

/// Parts of check() that other configurations share. (Numbers alone: train/settings.h, check_values.) An empty name is the default data set.
void check_data_name(const std::string& data, const std::string& data_dir);
void check_between(const char* setting, std::optional<int64_t> value, int64_t least,
                   int64_t most = kMostCount, const char* unit = "");
/// A finite number from `least` (which itself is allowed where `may_be_least`) to `most`.
void check_number(const char* setting, std::optional<double> value, double least, bool may_be_least,
                  double most = kMostNumber);

/// Throws Error with the reason where this machine does not have the device.
void check_device(Device device);

/// The learning rate that the run starts with.
double starting_lr(const FitOptions& options);
/// The same for momentum; empty where the optimiser takes none.
std::optional<double> starting_momentum(const FitOptions& options);

/// The optimiser that the options name. (Not own_optimizer.)
std::unique_ptr<optim::Optimizer> make_optimizer(const FitOptions& options, const nn::Module& model);

/// What the settings of a run hold besides its configuration.
struct SettingsParts {
  std::string model = {}, data = {};  ///< names; empty: none
  std::string description = {};  ///< of a model that is not of the zoo, or was made to fit its data, as TOML
  std::string weights = {};      ///< SHA-256 of the weights that it began with; empty: drawn
  int64_t train_samples = 0, valid_samples = 0, test_samples = 0;
  std::string train_data = {}, valid_data = {}, test_data = {};      ///< data::fingerprint; empty: none
  std::vector<std::pair<std::string, std::string>> data_names = {};  ///< fingerprints_of_names (run_data.h)
  DType dtype = DType::f32;
  std::string arithmetic = {};                                      ///< Backend::arithmetic of the device
  std::vector<std::pair<std::string, std::string>> callbacks = {};  ///< name and Callback::settings
};
/// The settings on which a run's bits depend, as JSON text: what a checkpoint holds and a resumed run must repeat.
std::string settings_json(const TrainConfig& config, const SettingsParts& parts);

/// What settings call the names in a run's data, for messages: "class_names" is "class names". Empty for other settings.
std::string names_of_data(const std::string& key);

/// Throws Error with the name and both values of the first setting that differs. `source` is the checkpoint. -> `wanted`,
/// with what the run has kept its best weights by, where this process keeps none: the file is still there.
std::string check_same_settings(const std::string& saved, const std::string& wanted,
                                const std::string& source);

}  // namespace tandem
