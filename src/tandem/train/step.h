// One training step and one evaluation step, as functions of a batch. Each is written once; the graph engine
// compiles it whole, the eager engine calls it.
#pragma once

#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/module.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/config.h"

namespace tandem {

/// Forward, cross-entropy, backward and update. The model and the optimiser must outlive it.
class TrainingStep {
 public:
  TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
               const CompileOptions& options = {});
  /// x (N, …) and y i64 (N), on the model's device. Returns the loss, 0-d, without waiting for it.
  Tensor operator()(const Tensor& x, const Tensor& y);
  /// What the graph engine made of it; empty for the eager one.
  std::vector<GraphReport> reports() const;

 private:
  nn::Module& model_;
  TensorFunction function_;
  std::unique_ptr<Compiled> compiled_;
};

struct TestResult {
  double loss = 0;      ///< mean
  double accuracy = 0;  ///< share of samples whose largest logit is their class
};

/// Runs the model over a whole data set, in evaluation mode and without gradients.
class Evaluation {
 public:
  Evaluation(nn::Module& model, Engine engine);
  TestResult operator()(const data::Dataset& dataset);

 private:
  nn::Module& model_;
  TensorFunction function_;
  std::unique_ptr<Compiled> compiled_;
};

/// The values of one-element tensors, read from the device all at once.
std::vector<double> read_scalars(const std::vector<Tensor>& scalars);

}  // namespace tandem
