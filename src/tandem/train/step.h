// One training step and one evaluation, as functions of a batch. Each is written once; the graph engine compiles it
// whole, the eager engine calls it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/data/loader.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/module.h"
#include "tandem/optim/accumulate.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/loss_scaler.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/config.h"
#include "tandem/train/metrics.h"
#include "tandem/train/task.h"

namespace tandem {

class Runner;

struct StepOptions {
  TaskPtr task = {};       ///< unset: classification
  LossFunction loss = {};  ///< in place of the task's
  std::optional<double> clip_value = {}, clip_norm = {};
  bool accumulates = false;             ///< several batches may go into a step
  optim::Ema* ema = nullptr;            ///< updated after each step; must outlive it
  std::optional<DType> autocast = {};   ///< bf16 or f16: of the forward pass
  optim::LossScaler* scaler = nullptr;  ///< for f16; must outlive it
  /// A parameter that the loss of a step does not depend on stays as it is, like a frozen one; else it is refused.
  bool allow_unused = false;
  std::vector<nn::Module*> still =
      {};  ///< parts of the model that stay in evaluation mode: frozen batch norms
  CompileOptions compile = {};
};

/// Forward, loss, backward and update. The model and the optimiser must outlive it. A model in evaluation mode is put into
/// training mode; in one that trains already, a part that was put into evaluation mode stays there. Each call trains those
/// of the optimiser's parameters that are not frozen at that time.
class TrainingStep {
 public:
  TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
               const StepOptions& options = {});
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;
  /// A batch (the fields that Task::fields names), on the model's device. Returns the loss, 0-d, without waiting for it, and how
  /// many things it is a mean of, where the task says so (Task::weight, or test_weight for a loss of your own).
  struct Loss {
    Tensor value, weight;
  };
  Loss operator()(const Named& batch) { return call(*update_, batch); }
  /// The same without the update: the next step has these gradients as well.
  Loss accumulate(const Named& batch);
  /// For a task of an input and a target.
  Tensor operator()(const Tensor& x, const Tensor& y);

  /// What the batch before left for the next one, by name; empty: Task::first_state. For checkpoints.
  nn::NamedTensors carried() const;
  void set_carried(const nn::NamedTensors& carried);
  /// Begins anew, as at the start of an epoch.
  void forget_carried() { set_carried({}); }
  /// What the graph engine made of it; empty for the eager one.
  std::vector<GraphReport> reports() const;

 private:
  // A step is made of these three. With one batch per step all are one graph.
  struct Part {  // of one batch
    Tensor loss = {}, weight = {};
    int64_t samples = 0;
    std::vector<Tensor> gradients =
        {};            // of all parameters of the optimiser; undefined: frozen, or not depended on
    Named state = {};  // for the next batch
  };
  Part gradients(const Named& batch, const Named& state);
  struct Whole {  // of all batches of a step
    std::vector<Tensor> gradients = {};
    std::vector<Tensor> used =
        {};  // of parameters that the last batch did not depend on: whether one before it did, bool ()
  };
  Whole combine(Part last);
  void update(Whole whole);

  /// Adds the gradients of a batch to the sums, where there are any.
  void add(const Part& part);
  std::vector<Named> run_update(const std::vector<Named>& batch_and_state);
  std::vector<Named> run_add(const std::vector<Named>& batch_and_state);
  Loss call(Runner& runner, const Named& batch);
  Named first_carried(const Named& batch);

  nn::Module& model_;
  optim::Optimizer& optimizer_;
  const StepOptions options_;
  const TaskPtr task_;
  nn::NamedTensors left_out_;  // frozen parameters of the model that the optimiser does not hold
  Named carried_;
  nn::NamedTensors restored_;       // from a checkpoint, for the next batch
  const Names* checked_ = nullptr;  // of the last batch, which has the fields that the task needs
  std::unique_ptr<optim::GradientSum> sums_;
  std::unique_ptr<Runner> update_, add_;
};

/// How a model is run over a data set: what evaluate and predict share.
struct RunOptions {
  TaskPtr task = {};       ///< unset: classification
  LossFunction loss = {};  ///< in place of the task's
  std::optional<DType> autocast = {};
  std::optional<int64_t> workers = {};  ///< FitOptions::workers
};

/// Runs the model over a whole data set, in evaluation mode and without gradients. What it draws is the same each time, and
/// this thread's generator stays as it is.
class Evaluation {
 public:
  Evaluation(nn::Module& model, Engine engine, const RunOptions& options = {});
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  /// Batch means of the loss are added up: `batch` is part of what the loss is. Unset: Task::test_batch.
  Metrics operator()(const data::Dataset& dataset, std::optional<int64_t> batch = {});
  /// The same, or nothing once *stop is true. Null: nobody stops it.
  std::optional<Metrics> unless_stopped(const std::atomic<bool>* stop, const data::Dataset& dataset,
                                        std::optional<int64_t> batch = {});

 private:
  /// A batch and the state before it -> its loss and what that is a mean of, the state behind it, what the meter needs.
  std::vector<Named> run(const std::vector<Named>& batch_and_state);

  nn::Module& model_;
  const TaskPtr task_;
  const RunOptions options_;
  std::unique_ptr<Runner> batch_;
};

/// The task's answers for all samples of a set, each (size, …), on the CPU, in evaluation mode. Answers of different
/// lengths are filled up with zeros.
std::vector<Tensor> predict_all(nn::Module& model, const data::Dataset& dataset, int64_t batch, Engine engine,
                                const RunOptions& options = {});

/// The gradients of the loss over one batch, by the parameters that are not frozen, in evaluation mode and the model's own
/// type: nothing about the model changes. Zeros for parameters that the loss does not depend on.
nn::NamedTensors loss_gradients(nn::Module& model, const RunOptions& options, const Named& batch);

/// The loader of a task's batches: its collation, its buckets, its order.
data::LoaderOptions loader_options(const TaskPtr& task, const data::Dataset& dataset, int64_t batch,
                                   Device device);

/// The device and the floating type of a model's parameters. Throws Error where it has none.
Device device_of(const nn::Module& model);
DType dtype_of(const nn::Module& model);

/// The values of one-element tensors, read from the device all at once.
std::vector<double> read_scalars(const std::vector<Tensor>& scalars);

}  // namespace tandem
