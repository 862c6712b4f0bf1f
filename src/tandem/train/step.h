// One training step and one evaluation, as functions of a batch. Each is written once; the graph engine compiles it
// whole, the eager engine calls it.
#pragma once

#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/module.h"
#include "tandem/optim/accumulate.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/loss_scaler.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/config.h"
#include "tandem/train/metrics.h"

namespace tandem {

struct StepOptions {
  LossFunction loss = {};  ///< empty: cross_entropy
  std::optional<double> clip_value = {}, clip_norm = {};
  bool accumulates = false;             ///< several batches may go into a step
  optim::Ema* ema = nullptr;            ///< updated after each step; must outlive it
  std::optional<DType> autocast = {};   ///< bf16 or f16: of the forward pass
  optim::LossScaler* scaler = nullptr;  ///< for f16; must outlive it
  CompileOptions compile = {};
};

/// Forward, loss, backward and update. The model and the optimiser must outlive it.
class TrainingStep {
 public:
  TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
               const StepOptions& options = {});
  /// x (N, …) and y (N, …), on the model's device. Returns the loss, 0-d, without waiting for it.
  Tensor operator()(const Tensor& x, const Tensor& y) { return call(update_, x, y); }
  /// The same without the update: the next step has these gradients as well.
  Tensor accumulate(const Tensor& x, const Tensor& y);
  /// What the graph engine made of it; empty for the eager one.
  std::vector<GraphReport> reports() const;

 private:
  struct Part {
    TensorFunction function;
    std::unique_ptr<Compiled> compiled;
  };
  Tensor call(Part& part, const Tensor& x, const Tensor& y);

  nn::Module& model_;
  std::unique_ptr<optim::GradientSum> sums_;
  Part update_, add_;
};

/// Runs the model over a whole data set, in evaluation mode and without gradients.
class Evaluation {
 public:
  Evaluation(nn::Module& model, Engine engine, LossFunction loss = {}, std::optional<DType> autocast = {});
  /// Batch means of the loss are added up: `batch` is part of what the loss is.
  Metrics operator()(const data::Dataset& dataset, int64_t batch = 500, int64_t k = 5);

 private:
  nn::Module& model_;
  TensorFunction function_;
  std::unique_ptr<Compiled> compiled_;
};

/// The model's outputs for all samples of a set, (size, …), on the CPU, in evaluation mode.
Tensor predict_all(nn::Module& model, const data::Dataset& dataset, int64_t batch, Engine engine,
                   std::optional<DType> autocast = {});

/// The gradients of the loss over one batch, in evaluation mode and the model's own type: nothing about the model changes. x and y as for
/// TrainingStep.
nn::NamedTensors loss_gradients(nn::Module& model, const LossFunction& loss, const Tensor& x,
                                const Tensor& y);

/// The device and the floating type of a model's parameters. Throws Error where it has none.
Device device_of(const nn::Module& model);
DType dtype_of(const nn::Module& model);

/// The values of one-element tensors, read from the device all at once.
std::vector<double> read_scalars(const std::vector<Tensor>& scalars);

}  // namespace tandem
