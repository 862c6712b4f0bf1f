// How a task's functions are called: what training, testing and predicting share.
#pragma once

#include <memory>
#include <vector>

#include "tandem/graph/compile_named.h"
#include "tandem/train/config.h"
#include "tandem/train/task.h"

namespace tandem {

/// Classification, where none is given.
TaskPtr task_or_usual(const TaskPtr& task);

/// Throws Error where a batch lacks a field of the task that is no input. (A missing input is refused where it is asked for.)
void check_fields(const Task& task, const Named& batch);

/// The batch with its floating fields in the model's type. Indices, lengths and classes stay as they are, and so do the task's
/// targets: the loss is computed in f32 at least.
Named in_type(const Task& task, const Named& batch, DType dtype);
/// The batch on a device.
Named moved(const Named& batch, Device device);
/// The batch without the task's targets.
Named without_targets(const Task& task, const Named& batch);

/// Losses and metrics are computed in f32 at least.
Named widened(const Named& outputs);

enum class LossFor : uint8_t { training, testing };
/// The loss of `own`, where there is one, else the task's. Throws Error unless it is one floating number.
Tensor loss_of(const Task& task, const LossFunction& own, const Named& out, const Named& batch,
               LossFor purpose = LossFor::training);
/// What that loss is a mean of. A loss of your own knows nothing of the task's class weights, as testing does not.
Tensor weight_of(const Task& task, const LossFunction& own, const Named& batch, LossFor purpose);

/// Task::forward, in f32 at least. Throws Error unless it leaves the state that it is to leave.
Named outputs_of(const Task& task, nn::Module& model, const Named& batch, Named& state);

/// A function as it is, or compiled.
class Runner {
 public:
  Runner(NamedFunction function, bool compiles, const CompileOptions& options = {});
  std::vector<Named> operator()(const std::vector<Named>& groups) {
    return compiled_ ? (*compiled_)(groups) : function_(groups);
  }
  /// What the graph engine made of it; empty for the eager one.
  std::vector<GraphReport> reports() const;

 private:
  NamedFunction function_;
  std::unique_ptr<CompiledNamed> compiled_;
};

}  // namespace tandem
