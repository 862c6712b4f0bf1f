// The training loop. It is the same for every engine and device, and reads from the device only now and then: the
// losses of many steps are fetched at once.
#include "tandem/train/train.h"

#include <algorithm>

#include "tandem/core/backend.h"
#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/data/loader.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/shape.h"
#include "tandem/train/loop/callback_list.h"
#include "tandem/train/loop/learner.h"
#include "tandem/train/loop/measurement.h"
#include "tandem/train/loop/pending_losses.h"
#include "tandem/train/loop/run_clock.h"
#include "tandem/train/loop/run_store.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/task_calls.h"
#include "tandem/zoo/zoo.h"

namespace tandem {
namespace {

/// How many parts of the given size a whole has; the last may be smaller.
int64_t parts_of(int64_t whole, int64_t part) { return whole / part + (whole % part != 0 ? 1 : 0); }

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

/// The loader of a run's batches.
data::LoaderOptions training_batches(const FitOptions& options, const data::Dataset& set, Device device) {
  data::LoaderOptions loading = loader_options(options.task, set, options.batch, device);
  loading.seed = options.seed;
  loading.workers = options.workers;
  loading.collate = [task = task_or_usual(options.task), collate = loading.collate](
                        const data::Dataset& from, std::span<const int64_t> indices, int64_t epoch,
                        int64_t length) {
    Named batch = collate(from, indices, epoch, length);
    check_fields(*task, batch);
    task->check_batch(batch);
    return batch;
  };
  return loading;
}

/// What a run is made of, besides its options.
struct Parts {
  nn::Module& model;
  const data::Dataset& train;
  const data::Dataset *valid = nullptr, *test = nullptr;
  std::unique_ptr<RunStore> store = std::make_unique<RunStore>();
  SettingsParts names = {};                 // of the model and the data, where they have names
  std::vector<CallbackPtr> callbacks = {};  // before the options' own
  std::vector<std::string> notices = {};    // of what came before it
  std::vector<nn::Module*> still = {};      // see StepOptions
  StartEvent start = {};                    // what is known of it
  Clock::time_point begun = Clock::now();   // before the data was opened
};

int64_t size_of(const data::Dataset* set) { return set ? set->size() : 0; }

/// The sets that are measured when an epoch ends, and besides when the run does.
ClosingTime closing_time(const Parts& parts) {
  return parts.valid ? ClosingTime(size_of(parts.valid), size_of(parts.test))
                     : ClosingTime(size_of(parts.test), 0);
}

class Run final : public Training {
 public:
  Run(const FitOptions& options, Parts parts);
  DoneEvent train();

  nn::Module& model() override { return parts_.model; }
  optim::Optimizer& optimizer() override { return learner_.optimizer(); }
  const RunState& state() const override { return state_; }
  int64_t steps_per_epoch() const override { return parts_of(loader_.batches(), options_.accumulate); }
  int64_t planned_steps() const override {
    if (options_.steps && !options_.epochs) return *options_.steps;
    const int64_t epochs = options_.epochs.value_or(1), each = steps_per_epoch();
    return epochs > kMostCount / each ? kMostCount : epochs * each;
  }
  const std::string& folder() const override { return parts_.store->folder(); }
  const data::Dataset& train_set() const override { return parts_.train; }
  const std::vector<MetricInfo>& metrics() const override { return measurement_.infos(); }
  const char* measured_part() const override { return measurement_.part(); }
  double loss() override {
    losses_.read(state_);
    return losses_.last();
  }
  double seconds() const override { return clock_.since_begun(); }
  double closing_seconds() const override {
    return clock_.closing_seconds(options_.batch * options_.accumulate);
  }
  nn::NamedTensors weights() override;
  nn::NamedTensors gradients() override;
  void stop(const std::string& why) override { stopped_ = why; }
  void replace_weights(const nn::NamedTensors& weights) override {
    model().load_state(weights, "replace_weights");
    weights_replaced_ = true;
  }

 private:
  void restore();
  void train_epoch();
  void train_step();
  std::optional<std::vector<Metric>> measured_epoch();
  void end_epoch();
  void save();
  DoneEvent end();
  DoneEvent interrupted();
  DoneEvent result() const;
  void tell(const TrainEvent& event) const { callbacks_.tell(event); }
  template <class F>
  void each_callback(const F& call) const {
    callbacks_.each(call);
  }
  bool is_interrupted() const { return options_.stop && *options_.stop; }
  /// Whether the epoch's steps are done and its test is not: so it was told to stop within the test, and goes on there.
  bool is_epoch_over() const { return state_.batch == loader_.batches(); }
  bool has_steps_left() const { return stopped_.empty() && state_.step < total_steps_; }
  bool is_done() const { return is_interrupted() || !(has_steps_left() || is_epoch_over()); }
  double mean_loss() const { return state_.loss_weight > 0 ? state_.loss_sum / state_.loss_weight : 0; }
  const FitOptions options_;
  Parts parts_;
  const Device device_;
  RunClock clock_;
  data::Loader loader_;
  Learner learner_;
  PendingLosses losses_;
  Measurement measurement_;
  CallbackList callbacks_;
  std::string settings_;

  RunState state_;
  int64_t epochs_ = 0, total_steps_ = 0, first_step_ = 0;
  std::string stopped_;
  bool weights_replaced_ = false;

  double last_lr_ = 0;  // of the latest step
};

Run::Run(const FitOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      device_(device_of(parts_.model)),
      clock_(parts_.begun, closing_time(parts_)),
      loader_(parts_.train, training_batches(options, parts_.train, device_)),
      learner_(parts_.model, options_, parts_.still),
      losses_(options_, learner_.scaler()),
      measurement_(learner_, clock_, options_, parts_.valid, parts_.test),
      callbacks_(parts_.callbacks, options_.callbacks) {
  total_steps_ = planned_steps();
  if (options_.steps) total_steps_ = std::min(total_steps_, *options_.steps);
  epochs_ = parts_of(total_steps_, steps_per_epoch());

  parts_.names.train_samples = parts_.train.size();
  parts_.names.valid_samples = size_of(parts_.valid);
  parts_.names.test_samples = size_of(parts_.test);
  parts_.names.dtype = dtype_of(parts_.model);
  parts_.names.arithmetic = backend(device_).arithmetic();
  parts_.names.train_data = parts_.store->fingerprint(&parts_.train);
  parts_.names.valid_data = parts_.store->fingerprint(parts_.valid);
  parts_.names.test_data = parts_.store->fingerprint(parts_.test);
  parts_.names.callbacks = callbacks_.begin(*this);
  settings_ = settings_json(parts_.start.config, parts_.names);
}

/// Takes up the newest usable checkpoint of the folder. A run that was stopped before its first begins again.
void Run::restore() {
  std::vector<std::string> warnings;
  const std::optional<FoundCheckpoint> found = parts_.store->resume(warnings);
  for (const std::string& warning : warnings) tell(NoticeEvent{warning + " Using the checkpoint before it."});
  if (!found) {
    tell(NoticeEvent{str("'", folder(), "' holds no checkpoint yet: beginning at step 0.")});
    return;
  }
  const Checkpoint& saved = found->checkpoint;
  const std::string source = str("'", found->path, "'");
  settings_ = check_same_settings(saved.settings, settings_, source);
  learner_.load(saved, source);
  callbacks_.load(saved, source);
  state_ = saved.state;
  if (state_.switches) set_switches(model(), *state_.switches);
  clock_.resume(state_.seconds);
  last_lr_ = optimizer().lr();
  first_step_ = state_.step;
  set_generator_state(state_.generator);
  take_choices(state_.choices);
  if (state_.step > total_steps_)
    tell(NoticeEvent{str("'", folder(), "' is at step ", state_.step, " already, beyond the ", total_steps_,
                         " asked for: nothing is left to train.")});
}

DoneEvent Run::train() {
  const AnomalyScope anomaly(options_.anomaly);
  for (const std::string& notice : parts_.notices) tell(NoticeEvent{notice});
  if (options_.resume) restore();
  parts_.store->begin(parts_.start.config, settings_, device_);
  StartEvent event = parts_.start;
  event.train_samples = parts_.names.train_samples;
  event.valid_samples = parts_.names.valid_samples;
  event.test_samples = parts_.names.test_samples;
  event.parameters = count_parameters(model());
  event.lr = starting_lr(options_);
  event.epochs = epochs_;
  event.steps = total_steps_;
  event.first_step = state_.step;
  event.threads = threads();
  event.out = folder();
  tell(event);
  each_callback([&](Callback& callback) { callback.on_start(*this); });
  while (!is_done()) train_epoch();
  return end();
}

DoneEvent Run::interrupted() {
  if (state_.step > 0) save();
  tell(InterruptedEvent{state_.step, total_steps_, folder()});
  DoneEvent done = result();
  done.interrupted = true;
  return done;
}

DoneEvent Run::end() {
  if (is_interrupted() && (has_steps_left() || is_epoch_over())) return interrupted();
  if (!stopped_.empty()) tell(NoticeEvent{stopped_});
  // A run that ends within an epoch is measured there; one that ends with an epoch has been.
  std::vector<Metric> last = state_.history.empty() ? std::vector<Metric>() : state_.history.back().values;
  if (state_.batch > 0) {
    std::optional<std::vector<Metric>> values = measured_epoch();
    if (!values) return interrupted();
    last = std::move(*values);
  }
  save();
  learner_.keep_average();
  each_callback([&](Callback& callback) { callback.on_end(*this); });
  if (weights_replaced_) {  // the training loss stays what it was
    last.resize(std::min<size_t>(last.size(), 1));
    if (!measurement_.judge(last)) return interrupted();
  }
  if (!measurement_.test(last)) return interrupted();
  parts_.store->finish(model().state(), settings_);
  DoneEvent done = result();
  done.values = std::move(last);
  tell(done);
  return done;
}

DoneEvent Run::result() const {
  return {.model = parts_.names.model,
          .data = parts_.names.data,
          .engine = engine_of(options_),
          .device = device_,
          .epochs = state_.epoch + (state_.batch > 0 ? 1 : 0),
          .steps = state_.step,
          .infos = metrics(),
          .seconds = clock_.since_opened(),
          .samples_per_second = clock_.samples_per_second(),
          .weights_sha256 = io::weights_sha256(parts_.model.state()),
          .out = folder(),
          .history = state_.history,
          .stopped = stopped_};
}

void Run::train_epoch() {
  loader_.start_epoch(state_.epoch, state_.batch);
  if (state_.batch == 0) learner_.step().forget_carried();
  clock_.start_training();
  while (!is_done() && state_.batch < loader_.batches()) {
    train_step();
    last_lr_ = optimizer().lr();
    each_callback([&](Callback& callback) { callback.on_step(*this); });
    const int64_t every = options_.checkpoint_every.value_or(500);
    const bool wants_checkpoint =
        every > 0 && state_.step % every == 0 && (options_.checkpoint_every || clock_.is_worth_saving());
    if (wants_checkpoint && state_.batch < loader_.batches()) save();
  }
  losses_.read(state_);
  clock_.stop_training();
  if (is_epoch_over()) end_epoch();
}

/// One update, of one batch or of several. A step is never left half done: checkpoints lie between steps.
void Run::train_step() {
  TrainingStep& step = learner_.step();
  for (int64_t part = 1; state_.batch < loader_.batches(); ++part) {
    const data::Batch batch = *loader_.next();
    const bool is_last = part == options_.accumulate || state_.batch + 1 == loader_.batches();
    try {
      losses_.add(is_last ? step(batch.tensors) : step.accumulate(batch.tensors), state_.step + 1,
                  batch.size);
    } catch (Error& error) {
      if (options_.anomaly)
        error.prepend(str("train: step ", state_.step + 1, " (epoch ", state_.epoch + 1, "): "));
      throw;
    }
    ++state_.batch;
    clock_.trained(batch.size);
    if (is_last) break;
  }
  ++state_.step;
  if (!losses_.are_due()) return;
  losses_.read(state_);
  const double seconds = clock_.training_seconds();
  const auto done = static_cast<double>(state_.step - first_step_);
  tell(ProgressEvent{.epoch = state_.epoch + 1,
                     .epochs = epochs_,
                     .step = state_.step,
                     .steps = total_steps_,
                     .loss = losses_.last(),
                     .samples_per_second = clock_.samples_per_second(),
                     .seconds_left = seconds / done * static_cast<double>(total_steps_ - state_.step)});
}

std::optional<std::vector<Metric>> Run::measured_epoch() {
  std::vector<Metric> values = {{"train_loss", mean_loss()}};
  if (!measurement_.judge(values)) return {};
  return values;
}

nn::NamedTensors Run::weights() {
  const auto averaged = learner_.averaged();
  const NoGrad off;
  nn::NamedTensors copies = model().state();
  for (auto& [name, tensor] : copies) tensor = clone(tensor);
  return copies;
}

nn::NamedTensors Run::gradients() {
  data::LoaderOptions loading = training_batches(options_, parts_.train, device_);
  loading.shuffle = false;
  loading.workers = 0;
  data::Loader loader(parts_.train, loading);
  loader.start_epoch(0);
  return loss_gradients(model(), {.task = options_.task, .loss = options_.loss}, loader.next()->tensors);
}

void Run::end_epoch() {
  std::optional<std::vector<Metric>> values = measured_epoch();
  if (!values) return;
  state_.epoch += 1;
  state_.history.push_back({.epoch = state_.epoch,
                            .step = state_.step,
                            .lr = last_lr_,
                            .seconds = clock_.of_run(),
                            .values = std::move(*values)});
  state_.batch = 0;
  state_.loss_sum = 0;
  state_.loss_weight = 0;
  tell(EpochEvent{state_.history.back(), epochs_, metrics()});
  each_callback([&](Callback& callback) { callback.on_epoch(*this); });
  if (clock_.is_worth_saving()) save();
}

void Run::save() {
  if (!parts_.store->needs(state_)) return;
  losses_.read(state_);
  const Clock::time_point begin = Clock::now();
  state_.generator = generator_state();
  state_.switches = switches_of(model());
  if (convolution_choice().mode == ChoiceMode::profile || matmul_choice().mode == ChoiceMode::profile)
    state_.choices = choices_made();
  state_.seconds = clock_.of_run();
  Checkpoint checkpoint;
  checkpoint.state = state_;
  checkpoint.settings = settings_;
  learner_.save(checkpoint);
  callbacks_.save(checkpoint);
  const std::string path = parts_.store->save(checkpoint);
  tell(CheckpointEvent{state_.step, path});
  each_callback([&](Callback& callback) { callback.on_checkpoint(*this, path); });
  clock_.saved(begin);
}

/// What a run by names writes, and what its settings ask for.
std::vector<CallbackPtr> callbacks_of(const TrainConfig& config) {
  std::vector<CallbackPtr> out = {csv_log(), jsonl_log(), plots()};
  if (config.schedule.kind != "constant" || config.schedule.warm_up > 0)
    out.push_back(learning_rate(config.schedule));
  if (config.early_stop)
    out.push_back(early_stopping({.monitor = config.monitor,
                                  .patience = *config.early_stop,
                                  .min_delta = config.min_delta,
                                  .restore_best = config.restore_best}));
  if (config.best) out.push_back(best_weights({.monitor = config.monitor}));
  if (config.time_budget) out.push_back(time_budget(*config.time_budget));
  if (config.tensorboard) out.push_back(tensorboard());
  return out;
}

}  // namespace

FitResult fit(nn::Module& model, const data::Dataset& train_set, const FitOptions& options) {
  check(options);
  TD_CHECK(!options.resume || !options.out.empty(), "fit: resume needs the run's folder. Give it as out.");
  Parts parts{.model = model, .train = train_set, .valid = options.validation, .test = options.test};
  static_cast<FitOptions&>(parts.start.config) = options;
  parts.start.config.device = device_of(model);
  parts.start.config.dtype = dtype_of(model);
  parts.start.title = train_set.describe();
  if (!options.out.empty()) parts.store = store_in(open_run_folder(options, ""));
  return Run(options, std::move(parts)).train();
}

namespace {

/// A run by names whose data is open.
DoneEvent train_in(std::unique_ptr<RunStore> store, const TrainConfig& config, const zoo::ChosenModel& chosen,
                   const zoo::ChosenModel& fitting, const TrainingData& data,
                   std::vector<std::string> notices, Clock::time_point begun) {
  manual_seed(config.seed);
  const std::unique_ptr<nn::Module> model = zoo::make_model(fitting);
  std::vector<std::string> drawn;
  if (!config.weights.empty()) drawn = load_fitting_weights(*model, config.weights, notices);
  const std::string first_weights = config.weights.empty() ? "" : io::weights_sha256(model->state());
  std::vector<nn::Module*> still = freeze_named(*model, config.freeze, drawn, notices);
  model->to(config.dtype);
  model->to(config.device);
  FitOptions options = config;
  options.task = data.task;
  Parts parts{.model = *model,
              .train = *data.splits.train,
              .valid = data.valid.get(),
              .test = data.splits.test.get(),
              .store = std::move(store),
              .names = {.model = chosen.info.name,
                        .data = data.splits.name,
                        .description = fitting.description ? zoo::to_toml(*fitting.description) : "",
                        .weights = first_weights,
                        .data_names = fingerprints_of_names(data.record)},
              .callbacks = callbacks_of(config)};
  parts.start.config = config;
  parts.start.config.task = data.task;
  parts.start.model = chosen.info.name;
  parts.start.data = data.splits.name;
  parts.start.title = data.splits.info.title;
  parts.start.where = data.splits.where;
  parts.start.taken = data.taken;
  parts.notices = std::move(notices);
  parts.still = std::move(still);
  parts.begun = begun;
  return Run(options, std::move(parts)).train();
}

}  // namespace

DoneEvent train(const TrainConfig& config) {
  const Clock::time_point begun = Clock::now();
  check(config);
  const MachineScope machine(config.machine);
  check_device(config.device);  // a missing device is said before anything is written
  const zoo::ChosenModel chosen = choose_model(config);
  const TrainingData data = open_training_data(config, chosen.info);
  std::vector<std::string> notices = data.splits.notices;
  const zoo::ChosenModel fitting = adapted(chosen, data, notices);
  return train_in(store_in(open_run_folder(config, chosen.info.name), data.record), config, chosen, fitting,
                  data, std::move(notices), begun);
}

}  // namespace tandem
