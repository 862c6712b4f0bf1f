// A task: what a model is trained for. fit(), evaluate() and predict() know nothing else: the task says how samples become
// a batch, what the loss is, what is measured and what an answer is. Classification, regression and others come with
// Tandem (train/tasks/); a task of your own is one class:
//   struct Distance final : Task {
//     std::string name() const override { return "distance"; }
//     Tensor loss(const Named& out, const Named& batch) const override {
//       return l1_loss(out[0], batch["target"]);
//     }
//   };
//   fit(net, train_set, {.task = std::make_shared<Distance>()});
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/data/buckets.h"
#include "tandem/data/dataset.h"
#include "tandem/nn/module.h"
#include "tandem/train/metrics.h"

namespace tandem {

namespace data {
struct Splits;
}

/// How many samples a batch has: the first axis of its first field.
inline int64_t samples_of(const Named& batch) { return batch[0].size(0); }

/// Adds up what a task measures, over a whole data set, on the host: the same numbers whatever the device, the engine and
/// the threads.
class Meter {
 public:
  virtual ~Meter() = default;
  /// What Task::measure gave, of one batch or of several one after the other along the first axis, on the CPU.
  virtual void add(const Named& measured) = 0;
  /// Puts the values into `metrics`, which has the loss and the number of samples.
  virtual void finish(Metrics& metrics) const = 0;
};

/// What a model does with a batch, as a drawing: "attention", and SVG text.
struct Picture {
  std::string name, svg;
};

/// What the samples that a model is asked about are made of. Numbers: arrays, images, rows of tables.
enum class TaskInput : uint8_t { numbers, text, pairs_of_texts, sound };
/// What a model is asked for. A class: one number per class, of which the largest counts. A continuation is of the text that is given.
enum class TaskAnswer : uint8_t { numbers, one_class, continuation, translation, transcript, speech };

class Task {
 public:
  virtual ~Task() = default;
  /// A word: "classification".
  virtual std::string name() const = 0;
  /// What the run's bits depend on besides the name, as text. A resumed run must have the same.
  virtual std::string settings() const { return ""; }

  // ---- What runs that are named by words ask: which data and which models fit, what a run's folder must hold, how answers are
  // shown. Nothing else in Tandem knows a task by its name.

  virtual TaskInput input_kind() const { return TaskInput::numbers; }
  virtual TaskAnswer answer_kind() const { return TaskAnswer::numbers; }
  /// How many numbers a model may give for each sample, or each place of one: the first is what it is made for where it does not fit.
  /// Empty: it gives no such row. The default is as many as a target has.
  virtual std::vector<int64_t> outputs(const data::Splits& splits) const;
  /// "classification" or "regression", as which the user's own arrays and tables are read where the task is asked for by its name; empty:
  /// it cannot be asked for, as the data says what it is for.
  virtual std::string reads_as() const { return ""; }

  // ---- Batches

  /// What a batch of training must have, and what the fields of a data set are called that names none itself. A target keeps its
  /// type; the other fields that are floating get the model's.
  virtual std::vector<data::Field> fields() const { return {{"input"}, {"target", data::Role::target}}; }
  /// Samples as the fields of a batch, as an epoch sees them. The default joins them as the set says (data::named_batch); where the
  /// set and the task both have one target, or one input, it gets the task's name. `length`: of the longest sample that the batch must
  /// have room for, where the task has lengths(); samples are padded to it. Targets may be missing where answers are asked for.
  virtual Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                        int64_t length) const;
  /// Throws Error for a batch of training whose values the loss makes no sense of. It is on the CPU, before it is used.
  virtual void check_batch(const Named&) const {}
  /// How long each sample is, where they differ: batches are then made of samples of like length (data/buckets.h), and
  /// the graph engine sees few different lengths. Empty: all samples are alike. The default asks a set whose first field is padded.
  virtual std::vector<int64_t> lengths(const data::Dataset& set) const;
  /// false: batches follow the order of the data set, in every epoch.
  virtual bool shuffles() const { return true; }
  /// What becomes of the samples at the end that do not fill a batch of training.
  virtual data::LastBatch last_batch() const { return data::LastBatch::keep; }
  /// The same where a model is tested: `keep`, so that every sample counts once; or `wrap` for a task that wants all batches
  /// alike and does not count what fills them up.
  virtual data::LastBatch last_test_batch() const { return data::LastBatch::keep; }
  /// Samples per batch where a model is tested and nobody says how many.
  virtual int64_t test_batch() const { return 500; }
  /// A batch of samples without meaning, on the CPU, for a model whose samples are (input): for profiles and the like.
  virtual Named made_up_batch(const Dims& input, int64_t batch) const;

  // ---- What is computed. All of it is traced by the graph engine: no value may be read here.

  /// What the model makes of a batch. The default hands over the fields that its signature names; a model of one argument gets "input".
  /// `state` holds what the batch before left, and takes what this one leaves, under the names of first_state().
  virtual Named forward(nn::Module& model, const Named& batch, Named& state) const;
  /// What the first batch of an epoch finds in `state`. Checkpoints keep it by these names.
  virtual Named first_state(const nn::Module& /*model*/, int64_t /*batch*/) const { return {}; }
  /// One number, 0-d: a mean. `out` is what forward() gave, in f32 at least.
  virtual Tensor loss(const Named& out, const Named& batch) const = 0;
  /// The same where a model is tested: without what belongs to training alone, such as weights of classes. The default
  /// is loss().
  virtual Tensor test_loss(const Named& out, const Named& batch) const { return loss(out, batch); }
  /// What the loss divides its sum by, (): how many things it is a mean of, a whole number, or the sum of their weights, a
  /// floating one. Undefined: the samples. Padding does not count. Batches of one step are weighed by it.
  virtual Tensor weight(const Named&) const { return {}; }
  /// The same of test_loss().
  virtual Tensor test_weight(const Named& batch) const { return weight(batch); }

  // ---- What is measured

  /// What the meter needs of a batch, each (n, …). The default measures nothing but the loss.
  virtual Named measure(const Named& /*out*/, const Named& /*batch*/) const { return {}; }
  virtual std::unique_ptr<Meter> meter() const { return nullptr; }
  /// What the meter gives, besides the loss: what callbacks may monitor.
  virtual std::vector<MetricInfo> metrics() const { return {}; }

  /// Whether `tandem eval` draws pictures() of one sample, in evaluation mode.
  virtual bool draws() const { return false; }
  virtual std::vector<Picture> pictures(nn::Module& /*model*/, const Named& /*batch*/) const { return {}; }

  // ---- What is predicted

  /// What a user gets of the model's outputs: each (n, …). The default gives them as they are.
  virtual std::vector<Tensor> answer(const Named& out) const { return out.values(); }
  /// Whether generate() stands in for forward and answer when predicting: a loop that chooses as it goes.
  virtual bool generates() const { return false; }
  virtual std::vector<Tensor> generate(nn::Module& model, const Named& batch) const;
};
using TaskPtr = std::shared_ptr<const Task>;

/// What the tasks that come with Tandem take; each takes those that it has a use for, and refuses others.
struct TaskOptions {
  /// classification, segmentation: how much each class counts in the loss of training; empty: all alike.
  std::vector<double> class_weights = {};
  int64_t top_k = 5;                         ///< classification: the metric top_5
  std::optional<int64_t> ignore_index = {};  ///< classification: a target that counts for nothing
  /// regression: metrics are in the target's own unit, value · deviation + mean.
  double target_mean = 0, target_deviation = 1;
  // translation: what a text to write begins and ends with, tokens that it must not have, and how many beginnings are followed
  // at a time; 1 is greedy.
  int64_t begin_token = 2, end_token = 3;
  std::vector<int64_t> never = {0, 1, 2};
  int64_t beams = 1;
  double guided_attention = 0;  ///< speech-synthesis: what attention off the diagonal costs while training
};

/// A task by its name. Throws Error with the names that there are.
TaskPtr make_task(const std::string& name, const TaskOptions& options = {});
std::vector<std::string> task_names();
/// Whether the answers of a task of that name are classes; or texts. Of an unknown one they are not.
bool has_classes(const std::string& task);
bool gives_text(const std::string& task);

/// Puts a task into the table of names: one object in the file that defines it, as for ops.
struct TaskRow {
  TaskRow(const char* name, const char* description, TaskPtr (*make)(const TaskOptions& options));
};

}  // namespace tandem
