// The training loop. It is the same for every engine and device, and reads from the device only now and then: the
// losses of many steps are fetched at once.
#include "tandem/train/train.h"

#include <chrono>
#include <cmath>

#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/threads.h"
#include "tandem/data/loader.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/shape.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr size_t kLossesAtOnce = 50;
constexpr double kSecondsBetweenReads = 0.25;  // when losses are read changes no result

/// Anomaly mode for a scope.
class AnomalyScope {
 public:
  explicit AnomalyScope(bool on) : before_(anomaly_mode()) { set_anomaly_mode(on || before_); }
  ~AnomalyScope() { set_anomaly_mode(before_); }
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  bool before_;
};

/// Anomaly mode watches operations as they run, so it takes the eager engine: the bits are the same.
Engine engine_of(const TrainConfig& config) { return config.anomaly ? Engine::eager : config.engine; }

class Run {
 public:
  Run(const TrainConfig& config, const EventSink& sink) : config_(config), sink_(sink) {}
  DoneEvent train();

 private:
  void prepare();
  void restore();
  void train_epoch();
  void train_batch(const data::Batch& batch);
  void read_losses();
  void end_epoch();
  void save();
  void tell(const TrainEvent& event) const {
    if (sink_) sink_(event);
  }
  int64_t steps_per_epoch() const { return loader_->batches(); }
  bool is_done() const { return state_.step >= total_steps_; }
  double mean_loss() const {
    return state_.loss_samples ? state_.loss_sum / static_cast<double>(state_.loss_samples) : 0;
  }

  TrainConfig config_;
  const EventSink& sink_;
  const Clock::time_point start_ = Clock::now();
  data::Splits splits_;
  std::string settings_, folder_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Evaluation> test_;
  std::unique_ptr<data::Loader> loader_;

  RunState state_;
  int64_t saved_step_ = -1;  // of the newest checkpoint
  int64_t epochs_ = 0, total_steps_ = 0;

  struct PendingLoss {
    Tensor loss;
    int64_t step, samples;
  };
  std::vector<PendingLoss> pending_;  // not read from the device yet
  double last_loss_ = 0;
  Clock::time_point last_read_ = start_, resumed_training_;
  double training_seconds_ = 0;  // without tests and checkpoints
  int64_t trained_samples_ = 0;  // by this process
};

void Run::prepare() {
  check(config_);
  if (config_.threads) set_threads(static_cast<int>(*config_.threads));
  check_device(config_.device);  // a missing device is said before anything is written
  splits_ = open_data(config_.model, config_.data, config_.data_dir, config_.limit);
  settings_ = settings_json(config_, splits_);
  folder_ = open_run_folder(config_);

  manual_seed(config_.seed);
  model_ = zoo::make_model(config_.model);
  model_->to(config_.dtype);
  model_->to(config_.device);
  optimizer_ = optim::make_optimizer(config_.optimizer, model_->named_parameters(),
                                     {.lr = starting_lr(config_), .momentum = config_.momentum});
  step_ = std::make_unique<TrainingStep>(*model_, *optimizer_, engine_of(config_));
  test_ = std::make_unique<Evaluation>(*model_, engine_of(config_));
  loader_ = std::make_unique<data::Loader>(*splits_.train,
                                           data::LoaderOptions{.batch = config_.batch, .seed = config_.seed});
  total_steps_ =
      config_.epochs || !config_.steps ? config_.epochs.value_or(1) * steps_per_epoch() : *config_.steps;
  if (config_.steps) total_steps_ = std::min(total_steps_, *config_.steps);
  epochs_ = (total_steps_ + steps_per_epoch() - 1) / steps_per_epoch();
}

/// Takes up the newest usable checkpoint of the folder. A run that was stopped before its first begins again.
void Run::restore() {
  std::vector<std::string> warnings;
  const std::optional<FoundCheckpoint> found = newest_checkpoint(folder_, warnings);
  for (const std::string& warning : warnings) tell(NoticeEvent{warning + " Using the checkpoint before it."});
  if (!found) {
    tell(NoticeEvent{cat("'", folder_, "' holds no checkpoint yet: beginning at step 0.")});
    return;
  }
  const std::string source = cat("'", found->path, "'");
  check_same_settings(found->checkpoint.settings, settings_, source);
  model_->load_state(found->checkpoint.model, "load " + source);
  optimizer_->load_state(found->checkpoint.optimizer, "load " + source);
  state_ = found->checkpoint.state;
  saved_step_ = state_.step;
  set_generator_state(state_.generator);
  if (is_done() && state_.step > total_steps_)
    tell(NoticeEvent{cat("'", folder_, "' is at step ", state_.step, " already, beyond the ", total_steps_,
                         " asked for: nothing is left to train.")});
}

DoneEvent Run::train() {
  const AnomalyScope anomaly(config_.anomaly);
  prepare();
  if (config_.resume) restore();
  save_config(folder_, config_, settings_);
  tell(StartEvent{.config = config_,
                  .data = splits_.name,
                  .title = splits_.info.title,
                  .where = splits_.where,
                  .train_samples = splits_.train->size(),
                  .test_samples = splits_.test->size(),
                  .parameters = count_parameters(*model_),
                  .lr = starting_lr(config_),
                  .epochs = epochs_,
                  .steps = total_steps_,
                  .first_step = state_.step,
                  .threads = threads(),
                  .out = folder_});
  while (!is_done()) train_epoch();

  // A run that ends within an epoch is measured there; one that ends with an epoch has been.
  EpochMetrics last = state_.last_epoch.value_or(EpochMetrics{});
  if (state_.batch > 0) {
    const TestResult test = (*test_)(*splits_.test);
    last = {mean_loss(), test.loss, test.accuracy};
  }
  if (saved_step_ != state_.step) save();
  save_weights(folder_, *model_, settings_);
  const DoneEvent done{.model = config_.model,
                       .data = splits_.name,
                       .engine = engine_of(config_),
                       .device = config_.device,
                       .epochs = state_.epoch + (state_.batch > 0 ? 1 : 0),
                       .steps = state_.step,
                       .train_loss = last.train_loss,
                       .test_loss = last.test_loss,
                       .test_accuracy = last.test_accuracy,
                       .seconds = seconds_since(start_),
                       .samples_per_second = training_seconds_ > 0
                                                 ? static_cast<double>(trained_samples_) / training_seconds_
                                                 : 0,
                       .weights_sha256 = io::weights_sha256(model_->state()),
                       .out = folder_};
  tell(done);
  return done;
}

void Run::train_epoch() {
  loader_->start_epoch(state_.epoch, state_.batch);
  resumed_training_ = Clock::now();
  while (!is_done() && state_.batch < steps_per_epoch()) {
    train_batch(*loader_->next());
    const bool wants_checkpoint = config_.checkpoint_every > 0 && state_.step % config_.checkpoint_every == 0;
    if (wants_checkpoint && state_.batch < steps_per_epoch()) save();
  }
  read_losses();
  training_seconds_ += seconds_since(resumed_training_);
  if (state_.batch == steps_per_epoch()) end_epoch();
}

void Run::train_batch(const data::Batch& batch) {
  const Tensor x = to(batch.tensors[0], config_.device), y = to(batch.tensors[1], config_.device);
  try {
    pending_.push_back({(*step_)(x, y), state_.step + 1, batch.size});
  } catch (const Error& error) {
    if (!config_.anomaly) throw;
    throw Error(cat("train: step ", state_.step + 1, " (epoch ", state_.epoch + 1, "): ", error.what()));
  }
  ++state_.step;
  ++state_.batch;
  trained_samples_ += batch.size;
  if (pending_.size() >= kLossesAtOnce || seconds_since(last_read_) >= kSecondsBetweenReads) {
    read_losses();
    const double seconds = training_seconds_ + seconds_since(resumed_training_);
    tell(ProgressEvent{
        .epoch = state_.epoch + 1,
        .epochs = epochs_,
        .step = state_.step,
        .steps = total_steps_,
        .loss = last_loss_,
        .samples_per_second = seconds > 0 ? static_cast<double>(trained_samples_) / seconds : 0});
  }
}

/// Fetches the pending losses and adds them up in the order of the steps. A loss that is no number ends the run
/// here, before any checkpoint could hold what it did to the weights.
void Run::read_losses() {
  std::vector<Tensor> losses;
  for (const PendingLoss& row : pending_) losses.push_back(row.loss);
  const std::vector<double> values = read_scalars(losses);
  for (size_t i = 0; i < values.size(); ++i) {
    TD_CHECK(std::isfinite(values[i]), "train: the loss became ", std::isnan(values[i]) ? "nan" : "infinite",
             " at step ", pending_[i].step, " (epoch ", state_.epoch + 1, "). Lower the learning rate (--lr ",
             starting_lr(config_), " now), or run with --anomaly to find the operation.");
    state_.loss_sum += values[i] * static_cast<double>(pending_[i].samples);
    state_.loss_samples += pending_[i].samples;
    last_loss_ = values[i];
  }
  pending_.clear();
  last_read_ = Clock::now();
}

void Run::end_epoch() {
  const TestResult test = (*test_)(*splits_.test);
  state_.last_epoch = {mean_loss(), test.loss, test.accuracy};
  state_.epoch += 1;
  state_.batch = 0;
  state_.loss_sum = 0;
  state_.loss_samples = 0;
  tell(EpochEvent{.epoch = state_.epoch,
                  .epochs = epochs_,
                  .step = state_.step,
                  .train_loss = state_.last_epoch->train_loss,
                  .test_loss = test.loss,
                  .test_accuracy = test.accuracy,
                  .seconds = seconds_since(start_)});
  save();
}

void Run::save() {
  read_losses();
  const Clock::time_point begin = Clock::now();
  state_.generator = generator_state();
  const std::string path = save_checkpoint(folder_, {.state = state_,
                                                     .settings = settings_,
                                                     .model = model_->state(),
                                                     .optimizer = optimizer_->named_state()});
  saved_step_ = state_.step;
  resumed_training_ += Clock::now() - begin;  // writing is no training
  tell(CheckpointEvent{state_.step, path});
}

}  // namespace

DoneEvent train(const TrainConfig& config, const EventSink& sink) { return Run(config, sink).train(); }

}  // namespace tandem
