// What a run trains: the model, and all that a step of it changes besides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/train/checkpoint.h"
#include "tandem/train/step.h"

namespace tandem {

/// Anomaly mode watches operations as they run, so it takes the eager engine: the bits are the same.
Engine engine_of(const FitOptions& options);

class Learner {
 public:
  /// `still`: see StepOptions. The model must outlive it.
  Learner(nn::Module& model, const FitOptions& options, const std::vector<nn::Module*>& still);

  nn::Module& model() { return model_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  const optim::LossScaler* scaler() const { return scaler_.get(); }  ///< null: not f16
  TrainingStep& step() { return *step_; }

  /// While it lives the model has the moving average, where there is one: what is tested.
  std::unique_ptr<optim::Ema::Scope> averaged() const {
    return ema_ ? std::make_unique<optim::Ema::Scope>(*ema_) : nullptr;
  }
  /// Copies the moving average into the model, which is not trained any further.
  void keep_average();

  /// Its part of a checkpoint, and back. `source` is the checkpoint, for messages.
  void save(Checkpoint& to) const;
  void load(const Checkpoint& from, const std::string& source);

 private:
  nn::Module& model_;
  std::unique_ptr<optim::Optimizer> made_optimizer_;  // null: it is the user's
  optim::Optimizer* optimizer_;
  std::unique_ptr<optim::Ema> ema_;
  std::unique_ptr<optim::LossScaler> scaler_;
  std::unique_ptr<TrainingStep> step_;
};

}  // namespace tandem
