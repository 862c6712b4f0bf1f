// The one training loop, and its companions: testing and predicting, for models and data of your own and for saved
// runs, and explaining what the graph engine makes of a training step. None of them prints.
//   const auto result = fit(net, train_set, {.test = &test_set, .epochs = 5, .optimizer = "adam"});
#pragma once

#include <string>
#include <vector>

#include "tandem/graph/compile.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/config.h"
#include "tandem/train/events.h"
#include "tandem/train/generate.h"
#include "tandem/train/metrics.h"
#include "tandem/train/task.h"

namespace tandem {

using FitResult = DoneEvent;

/// Trains a model on a data set whose samples are {input, target, …}, and tells the callbacks how it goes. The model is
/// trained where it is, in its type; with `ema` it ends with the averaged weights. With `out`, the run's folder gets
/// checkpoints and the final weights. The same settings give the same bits, on any number of threads, with either
/// engine, stopped and resumed or not. (A run begins with this thread's generator as it is: seed it before the model
/// is made.) Throws Error where a setting is wrong, a file cannot be read or written, or the loss is no longer finite.
FitResult fit(nn::Module& model, const data::Dataset& train_set, const FitOptions& options);

/// The same by names: makes the model and opens the data; logs and plots into the folder, too.
DoneEvent train(const TrainConfig& config);

struct EvaluateOptions {
  TaskPtr task = {};  ///< unset: classification
  Engine engine = Engine::graph;
  /// Part of what the loss is: batch means are added up. Unset: the task's, 500 for most.
  std::optional<int64_t> batch = {};
  LossFunction loss = {};               ///< in place of the task's
  std::optional<DType> autocast = {};   ///< bf16 or f16
  std::optional<int64_t> workers = {};  ///< FitOptions::workers
};
/// Measures a model on a data set, in evaluation mode.
Metrics evaluate(nn::Module& model, const data::Dataset& dataset, const EvaluateOptions& options = {});

struct PredictOptions {
  TaskPtr task = {};  ///< unset: classification, whose answers are the model's outputs
  Engine engine = Engine::graph;
  int64_t batch = 500;
  std::optional<DType> autocast = {};   ///< bf16 or f16
  std::optional<int64_t> workers = {};  ///< FitOptions::workers
};
/// The task's answers (size, …) for all samples, on the CPU, in evaluation mode: the first of them, where it has several.
/// Targets are not looked at, and need not be there.
Tensor predict(nn::Module& model, const data::Dataset& dataset, const PredictOptions& options = {});

struct EvalConfig {
  std::string folder = {};    ///< of a run (TrainConfig::out)
  std::string data = {};      ///< empty: the data set that it was trained on
  std::string data_dir = {};  ///< empty: the usual places
  Engine engine = Engine::graph;
  Device device = {};
  Machine machine = {};
  std::optional<int64_t> limit = {};  ///< test on so many samples, drawn as those of TrainConfig::limit
  bool best = false;                  ///< the weights of the best epoch, where the run kept them
};

/// Throws Error for the first setting that cannot be.
void check(const EvalConfig& config);

struct EvalReport {
  std::string model, data, path;  ///< path: the file of weights
  std::string task;
  std::vector<MetricInfo> infos;         ///< how the metrics besides the loss are to be read
  std::vector<std::string> class_names;  ///< empty: numbers alone
  int64_t samples = 0;
  std::string taken = {};  ///< what the limit took of the samples, as a line; empty: all
  double seconds = 0;
  std::string weights_sha256;
  std::vector<std::string> warnings;
  Metrics metrics = {};
  std::vector<std::string> pictures = {};  ///< files that were drawn into the run's folder: attention.svg
};

/// Tests a saved run on the test set, and draws what its task draws of the first sample (Task::pictures).
EvalReport evaluate(const EvalConfig& config);

struct PredictConfig {
  std::string folder = {};  ///< of a run
  /// Images, tables (.csv) or arrays (.npy); of a run on text, files of it or texts themselves; or none, and
  std::vector<std::string> files = {};
  std::string data = {};  ///< a data set's test samples; both empty: the run's own
  std::string data_dir = {};
  std::vector<int64_t> indices = {};  ///< which of them; empty: the first `limit`
  int64_t top = 3;                    ///< classes a sample
  bool invert = false;                ///< files: dark ink on white paper, where the data has bright on black
  Engine engine = Engine::graph;
  Device device = {};
  Machine machine = {};
  int64_t limit = 10;
  bool best = false;
  GenerateOptions generate = {};  ///< of a language model
  int64_t beams = 4;              ///< of a translation: beginnings that are followed at a time; 1 is greedy
};
void check(const PredictConfig& config);

struct Prediction {
  std::string source;  ///< the file, "digits 7" or "line 3 of 'house.csv'"
  std::string label;   ///< the class by its name or number, or the number; empty: not known
  struct Guess {
    int64_t cls = 0;
    std::string name;  ///< of the class; its number where it has no name
    double probability = 0;
  };
  std::vector<Guess> top;      ///< of classes, the most probable first
  std::vector<double> values;  ///< of other tasks: the answer
  /// Of a language model: how it goes on; of a translation: the text; of speech: what is said.
  std::string text = {};
  Tensor mels = {};  ///< of a model that speaks: (frames, mels)
};
struct PredictReport {
  std::string model, path, task;
  std::string target;  ///< of a table: the column that is predicted
  std::vector<Prediction> predictions;
  std::vector<std::string> warnings;
  std::optional<data::Table> table = {};  ///< the rows, where they came from one table
};

/// What a saved run makes of files and samples. Images are turned upright and into the grey or colour, size and scale of
/// its data; rows of tables are read and scaled as those of training were. Texts are cut and numbered as those of training
/// were; an argument that is no file is a text itself.
PredictReport predict(const PredictConfig& config);

/// What to write into a file of predictions: of a run that speaks .npy, its one text as f32 (frames, mels); else CSV, with
/// the ending .csv or none. Throws Error where the name ends otherwise, or there are several texts.
void write_predictions(const PredictReport& report, const std::string& path);
/// The predictions as CSV text: the columns of the table that they are of, or "source" and "label", then "predicted" (or
/// "predicted PRICE") and, of classes, "probability".
std::string predictions_csv(const PredictReport& report);

/// Compiles one training step of config's model, optimiser, batch, dtype and device on made-up data, and reports.
GraphReport explain(const TrainConfig& config, const CompileOptions& options = {});

}  // namespace tandem
