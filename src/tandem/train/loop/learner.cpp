#include "tandem/train/loop/learner.h"

#include "tandem/core/error.h"

namespace tandem {

Engine engine_of(const FitOptions& options) { return options.anomaly ? Engine::eager : options.engine; }

Learner::Learner(nn::Module& model, const FitOptions& options, const std::vector<nn::Module*>& still)
    : model_(model), optimizer_(options.own_optimizer) {
  if (!optimizer_) {
    made_optimizer_ = make_optimizer(options, model);
    optimizer_ = made_optimizer_.get();
  }
  if (options.ema)
    ema_ = std::make_unique<optim::Ema>(
        model.named_parameters(), optim::EmaOptions{.decay = *options.ema, .warm_up = options.ema_warm_up});
  TD_CHECK(!options.autocast || dtype_of(model) == DType::f32,
           "autocast: the model's weights must be f32; got ", dtype_of(model),
           ". Leave autocast out, or convert the model with to(DType::f32).");
  if (options.autocast == DType::f16) scaler_ = std::make_unique<optim::LossScaler>(device_of(model));
  step_ = std::make_unique<TrainingStep>(model, *optimizer_, engine_of(options),
                                         StepOptions{.task = options.task,
                                                     .loss = options.loss,
                                                     .clip_value = options.clip_value,
                                                     .clip_norm = options.clip_norm,
                                                     .accumulates = options.accumulate > 1,
                                                     .ema = ema_.get(),
                                                     .autocast = options.autocast,
                                                     .scaler = scaler_.get(),
                                                     .allow_unused = options.allow_unused,
                                                     .still = still,
                                                     .compile = options.compile});
}

void Learner::keep_average() {
  if (ema_) ema_->copy_to_parameters();
  ema_.reset();
}

void Learner::save(Checkpoint& to) const {
  to.model = model_.state();
  to.optimizer = optimizer_->named_state();
  if (ema_) to.ema = ema_->named_state();
  if (scaler_) to.scaler = scaler_->named_state();
  to.carried = step_->carried();
}

void Learner::load(const Checkpoint& from, const std::string& source) {
  const std::string what = "load " + source;
  model_.load_state(from.model, what);
  optimizer_->load_state(from.optimizer, what);
  if (ema_) ema_->load_state(from.ema, what);
  if (scaler_) scaler_->load_state(from.scaler, what);
  step_->set_carried(from.carried);
}

}  // namespace tandem
