// The training loop. It is the same for every engine and device, and reads from the device only now and then: the
// losses of many steps are fetched at once.
#include "tandem/train/train.h"

#include <chrono>
#include <cmath>
#include <set>

#include "tandem/core/backend.h"
#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/data/loader.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/shape.h"
#include "tandem/train/closing_time.h"
#include "tandem/train/loop/run_store.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/task_calls.h"
#include "tandem/zoo/zoo.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr size_t kLossesAtOnce = 50;
constexpr double kLeastScale = 0x1p-20;        // of a loss: less means that scaling is of no help
constexpr double kSecondsBetweenReads = 0.25;  // when losses are read changes no result

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

/// Anomaly mode watches operations as they run, so it takes the eager engine: the bits are the same.
Engine engine_of(const FitOptions& options) { return options.anomaly ? Engine::eager : options.engine; }

/// The loader of a run's batches.
data::LoaderOptions training_batches(const FitOptions& options, const data::Dataset& set, Device device) {
  data::LoaderOptions loading = loader_options(options.task, set, options.batch, device);
  loading.seed = options.seed;
  loading.workers = options.workers;
  const TaskPtr task = options.task ? options.task : make_task("classification");
  loading.collate = [task, collate = loading.collate](const data::Dataset& from,
                                                      std::span<const int64_t> indices, int64_t epoch,
                                                      int64_t length) {
    Named batch = collate(from, indices, epoch, length);
    check_fields(*task, batch);
    task->check_batch(batch);
    return batch;
  };
  return loading;
}

/// What is measured of a part of the data: "test_loss", "test_accuracy" …
void add_infos(const std::string& part, const Task* task, std::vector<MetricInfo>& infos) {
  infos.push_back({part + "_loss"});
  for (MetricInfo info : task ? task->metrics() : std::vector<MetricInfo>()) {
    info.name = part + "_" + info.name;
    infos.push_back(std::move(info));
  }
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

class Run final : public Training {
 public:
  Run(const FitOptions& options, Parts parts);
  DoneEvent train();

  nn::Module& model() override { return parts_.model; }
  optim::Optimizer& optimizer() override { return *optimizer_; }
  const RunState& state() const override { return state_; }
  int64_t steps_per_epoch() const override { return parts_of(loader_.batches(), options_.accumulate); }
  int64_t planned_steps() const override {
    if (options_.steps && !options_.epochs) return *options_.steps;
    const int64_t epochs = options_.epochs.value_or(1), each = steps_per_epoch();
    return epochs > kMostCount / each ? kMostCount : epochs * each;
  }
  const std::string& folder() const override { return parts_.store->folder(); }
  const data::Dataset& train_set() const override { return parts_.train; }
  const std::vector<MetricInfo>& metrics() const override { return infos_; }
  const char* measured_part() const override {
    return parts_.valid ? "valid" : parts_.test ? "test" : "train";
  }
  double loss() override {
    read_losses();
    return last_loss_;
  }
  double seconds() const override { return seconds_since(parts_.begun); }
  double closing_seconds() const override {
    const double rate = samples_per_second(), sample = rate > 0 ? 1 / rate : 0;
    return closing_.seconds(sample * static_cast<double>(options_.batch * options_.accumulate), sample);
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
  void read_losses();
  /// Measures a set, and adds what it gives under the set's name. False where the run was told to stop meanwhile.
  bool measure(const char* part, const data::Dataset* set, std::vector<Metric>& values);
  std::optional<std::vector<Metric>> measured_epoch();
  void end_epoch();
  void save();
  bool is_worth_saving() const;
  DoneEvent end();
  DoneEvent interrupted();
  DoneEvent result() const;
  void tell(const TrainEvent& event) const {
    for (const CallbackPtr& callback : callbacks_) callback->on_event(event);
  }
  template <class F>
  void each_callback(const F& call) {
    for (const CallbackPtr& callback : callbacks_) call(*callback);
  }
  bool is_interrupted() const { return options_.stop && *options_.stop; }
  /// Whether the epoch's steps are done and its test is not: so it was told to stop within the test, and goes on there.
  bool is_epoch_over() const { return state_.batch == loader_.batches(); }
  bool has_steps_left() const { return stopped_.empty() && state_.step < total_steps_; }
  bool is_done() const { return is_interrupted() || !(has_steps_left() || is_epoch_over()); }
  double mean_loss() const { return state_.loss_weight > 0 ? state_.loss_sum / state_.loss_weight : 0; }
  double samples_per_second() const {
    const double seconds = training_seconds_ + (in_epoch_ ? seconds_since(resumed_training_) : 0);
    return seconds > 0 ? static_cast<double>(trained_samples_) / seconds : 0;
  }

  const FitOptions options_;
  Parts parts_;
  const Clock::time_point start_ = Clock::now();
  const Device device_;
  data::Loader loader_;
  std::unique_ptr<optim::Optimizer> made_optimizer_;
  optim::Optimizer* optimizer_;
  std::unique_ptr<optim::Ema> ema_;
  std::unique_ptr<optim::LossScaler> scaler_;  // with f16
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<MetricInfo> infos_;
  std::vector<CallbackPtr> callbacks_;
  std::string settings_;

  RunState state_;
  double seconds_before_ = 0;   // of the processes before this one
  double save_seconds_ = 0;     // what it took to write
  Clock::time_point saved_at_;  // when
  int64_t epochs_ = 0, total_steps_ = 0, first_step_ = 0;
  std::string stopped_;
  bool weights_replaced_ = false;

  struct PendingLoss {
    TrainingStep::Loss loss;
    int64_t step, samples;
  };
  std::vector<PendingLoss> pending_;  // not read from the device yet
  double last_loss_ = 0, last_lr_ = 0;
  Clock::time_point last_read_ = start_, resumed_training_;
  bool in_epoch_ = false;
  double training_seconds_ = 0;  // without tests and checkpoints
  int64_t trained_samples_ = 0;  // by this process
  ClosingTime closing_{0, 0};
};

Run::Run(const FitOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      device_(device_of(parts_.model)),
      loader_(parts_.train, training_batches(options, parts_.train, device_)),
      optimizer_(options.own_optimizer),
      callbacks_(parts_.callbacks) {
  nn::Module& model = parts_.model;
  if (!optimizer_) {
    made_optimizer_ = make_optimizer(options_, model);
    optimizer_ = made_optimizer_.get();
  }
  if (options_.ema)
    ema_ = std::make_unique<optim::Ema>(
        model.named_parameters(), optim::EmaOptions{.decay = *options_.ema, .warm_up = options_.ema_warm_up});
  TD_CHECK(!options_.autocast || dtype_of(model) == DType::f32,
           "autocast: the model's weights must be f32; got ", dtype_of(model),
           ". Leave autocast out, or convert the model with to(DType::f32).");
  if (options_.autocast == DType::f16) scaler_ = std::make_unique<optim::LossScaler>(device_);
  step_ = std::make_unique<TrainingStep>(model, *optimizer_, engine_of(options_),
                                         StepOptions{.task = options_.task,
                                                     .loss = options_.loss,
                                                     .clip_value = options_.clip_value,
                                                     .clip_norm = options_.clip_norm,
                                                     .accumulates = options_.accumulate > 1,
                                                     .ema = ema_.get(),
                                                     .autocast = options_.autocast,
                                                     .scaler = scaler_.get(),
                                                     .allow_unused = options_.allow_unused,
                                                     .still = parts_.still,
                                                     .compile = options_.compile});
  evaluation_ = std::make_unique<Evaluation>(model, engine_of(options_),
                                             RunOptions{.task = options_.task,
                                                        .loss = options_.loss,
                                                        .autocast = options_.autocast,
                                                        .workers = options_.workers});
  const TaskPtr task = options_.task ? options_.task : make_task("classification");
  add_infos("train", nullptr, infos_);
  if (parts_.valid) add_infos("valid", task.get(), infos_);
  if (parts_.test) add_infos("test", task.get(), infos_);
  total_steps_ = planned_steps();
  if (options_.steps) total_steps_ = std::min(total_steps_, *options_.steps);
  epochs_ = parts_of(total_steps_, steps_per_epoch());

  callbacks_.insert(callbacks_.end(), options_.callbacks.begin(), options_.callbacks.end());
  std::set<std::string> names;
  parts_.names.train_samples = parts_.train.size();
  parts_.names.valid_samples = parts_.valid ? parts_.valid->size() : 0;
  parts_.names.test_samples = parts_.test ? parts_.test->size() : 0;
  parts_.names.dtype = dtype_of(model);
  parts_.names.arithmetic = backend(device_).arithmetic();
  parts_.names.train_data = parts_.store->fingerprint(&parts_.train);
  parts_.names.valid_data = parts_.store->fingerprint(parts_.valid);
  parts_.names.test_data = parts_.store->fingerprint(parts_.test);
  for (const CallbackPtr& callback : callbacks_) {
    TD_CHECK(callback, "callbacks: must all be there; got an empty pointer.");
    if (callback->name().empty()) continue;
    TD_CHECK(names.insert(callback->name()).second,
             "callbacks: each must have a name of its own; got two of '", callback->name(), "'.");
    callback->load_state("", {});
    if (const std::string text = callback->settings(*this); !text.empty())
      parts_.names.callbacks.emplace_back(callback->name(), text);
  }
  settings_ = settings_json(parts_.start.config, parts_.names);
  const int64_t valid = parts_.names.valid_samples, test = parts_.names.test_samples;
  closing_ = ClosingTime(parts_.valid ? valid : test, parts_.valid ? test : 0);
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
  model().load_state(saved.model, "load " + source);
  optimizer_->load_state(saved.optimizer, "load " + source);
  if (ema_) ema_->load_state(saved.ema, "load " + source);
  if (scaler_) scaler_->load_state(saved.scaler, "load " + source);
  for (const Checkpoint::CallbackState& row : saved.callbacks)
    for (const CallbackPtr& callback : callbacks_) {
      if (callback->name() != row.name) continue;
      try {
        callback->load_state(row.state, row.tensors);
      } catch (const std::exception&) {
        throw Error(
            str("load ", source, ": the state of ", row.name,
                " cannot be read; it was written by another version. Begin a new run in another `out`."));
      }
    }
  step_->set_carried(saved.carried);
  state_ = saved.state;
  if (state_.switches) set_switches(model(), *state_.switches);
  seconds_before_ = state_.seconds;
  last_lr_ = optimizer_->lr();
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
  if (ema_) ema_->copy_to_parameters();
  ema_.reset();  // the model has the averages now
  each_callback([&](Callback& callback) { callback.on_end(*this); });
  if (weights_replaced_) {  // the training loss stays what it was
    last.resize(std::min<size_t>(last.size(), 1));
    if (!measure(measured_part(), parts_.valid ? parts_.valid : parts_.test, last)) return interrupted();
  }
  if (parts_.valid && !measure("test", parts_.test, last)) return interrupted();
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
          .infos = infos_,
          .seconds = seconds_since(start_),
          .samples_per_second = samples_per_second(),
          .weights_sha256 = io::weights_sha256(parts_.model.state()),
          .out = folder(),
          .history = state_.history,
          .stopped = stopped_};
}

void Run::train_epoch() {
  loader_.start_epoch(state_.epoch, state_.batch);
  if (state_.batch == 0) step_->forget_carried();
  resumed_training_ = Clock::now();
  in_epoch_ = true;
  while (!is_done() && state_.batch < loader_.batches()) {
    train_step();
    last_lr_ = optimizer_->lr();
    each_callback([&](Callback& callback) { callback.on_step(*this); });
    const int64_t every = options_.checkpoint_every.value_or(500);
    const bool wants_checkpoint =
        every > 0 && state_.step % every == 0 && (options_.checkpoint_every || is_worth_saving());
    if (wants_checkpoint && state_.batch < loader_.batches()) save();
  }
  read_losses();
  training_seconds_ += seconds_since(resumed_training_);
  in_epoch_ = false;
  if (is_epoch_over()) end_epoch();
}

/// One update, of one batch or of several. A step is never left half done: checkpoints lie between steps.
void Run::train_step() {
  for (int64_t part = 1; state_.batch < loader_.batches(); ++part) {
    const data::Batch batch = *loader_.next();
    const bool is_last = part == options_.accumulate || state_.batch + 1 == loader_.batches();
    try {
      pending_.push_back({is_last ? (*step_)(batch.tensors) : step_->accumulate(batch.tensors),
                          state_.step + 1, batch.size});
    } catch (Error& error) {
      if (options_.anomaly)
        error.prepend(str("train: step ", state_.step + 1, " (epoch ", state_.epoch + 1, "): "));
      throw;
    }
    ++state_.batch;
    trained_samples_ += batch.size;
    if (is_last) break;
  }
  ++state_.step;
  if (pending_.size() >= kLossesAtOnce || seconds_since(last_read_) >= kSecondsBetweenReads) {
    read_losses();
    const double seconds = training_seconds_ + seconds_since(resumed_training_);
    const auto done = static_cast<double>(state_.step - first_step_);
    tell(ProgressEvent{.epoch = state_.epoch + 1,
                       .epochs = epochs_,
                       .step = state_.step,
                       .steps = total_steps_,
                       .loss = last_loss_,
                       .samples_per_second = samples_per_second(),
                       .seconds_left = seconds / done * static_cast<double>(total_steps_ - state_.step)});
  }
}

/// Fetches the pending losses and adds them up in the order of the steps. A loss that is no number ends the run
/// here, before any checkpoint could hold what it did to the weights.
void Run::read_losses() {
  std::vector<Tensor> losses, counts;
  for (const PendingLoss& row : pending_) {
    losses.push_back(row.loss.value);
    if (row.loss.weight.defined()) counts.push_back(row.loss.weight);
  }
  if (scaler_ && !losses.empty()) losses.push_back(scaler_->current());
  const std::vector<double> values = read_scalars(losses), weights = read_scalars(counts);
  for (size_t i = 0; i < pending_.size(); ++i) {
    const PendingLoss& row = pending_[i];
    const double loss = values[i];
    const double weight = weights.empty() ? static_cast<double>(row.samples) : weights[i];
    // The mean of nothing is NaN; the sum of several batches leaves it out (optim::GradientSum).
    if (weight == 0 && options_.accumulate > 1) continue;
    TD_CHECK(std::isfinite(loss), "train: the loss became ", std::isnan(loss) ? "nan" : "infinite",
             " at step ", row.step, " (epoch ", state_.epoch + 1, "). Lower the learning rate (`lr` ",
             starting_lr(options_), " now), or run with `anomaly` to find the operation.");
    state_.loss_sum += loss * weight;
    state_.loss_weight += weight;
    last_loss_ = loss;
  }
  TD_CHECK(values.size() == pending_.size() || values.back() >= kLeastScale,
           "train: the gradients must be finite at some scale of the loss; they are not, down to a scale of ",
           values.back(), ", by step ", state_.step,
           ". Train with `autocast` bf16 or without, or lower the learning rate.");
  pending_.clear();
  last_read_ = Clock::now();
}

/// Of the moving average, where there is one.
bool Run::measure(const char* part, const data::Dataset* set, std::vector<Metric>& values) {
  if (!set) return true;
  std::optional<optim::Ema::Scope> averaged;
  if (ema_) averaged.emplace(*ema_);
  const Clock::time_point begin = Clock::now();
  const std::optional<Metrics> measured = evaluation_->unless_stopped(options_.stop, *set);
  if (!measured) return false;
  closing_.measured(set->size(), seconds_since(begin));
  for (const Metric& metric : measured->values) values.push_back({str(part, "_", metric.name), metric.value});
  return true;
}

std::optional<std::vector<Metric>> Run::measured_epoch() {
  std::vector<Metric> values = {{"train_loss", mean_loss()}};
  if (!measure(measured_part(), parts_.valid ? parts_.valid : parts_.test, values)) return {};
  return values;
}

nn::NamedTensors Run::weights() {
  std::optional<optim::Ema::Scope> averaged;
  if (ema_) averaged.emplace(*ema_);
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
                            .seconds = seconds_before_ + seconds_since(start_),
                            .values = std::move(*values)});
  state_.batch = 0;
  state_.loss_sum = 0;
  state_.loss_weight = 0;
  tell(EpochEvent{state_.history.back(), epochs_, infos_});
  each_callback([&](Callback& callback) { callback.on_epoch(*this); });
  if (is_worth_saving()) save();
}

/// False where a checkpoint takes long to write and the last one is young, so that a large model does not spend its
/// time on writing: a kill then costs ten times what a checkpoint takes, at most.
bool Run::is_worth_saving() const {
  constexpr double kLong = 0.5, kMostShare = 0.1;
  return save_seconds_ < kLong || seconds_since(saved_at_) * kMostShare >= save_seconds_;
}

void Run::save() {
  if (!parts_.store->needs(state_)) return;
  read_losses();
  const Clock::time_point begin = Clock::now();
  state_.generator = generator_state();
  state_.switches = switches_of(model());
  if (convolution_choice().mode == ChoiceMode::profile || matmul_choice().mode == ChoiceMode::profile)
    state_.choices = choices_made();
  state_.seconds = seconds_before_ + seconds_since(start_);
  Checkpoint checkpoint{.state = state_,
                        .settings = settings_,
                        .model = model().state(),
                        .optimizer = optimizer_->named_state(),
                        .ema = ema_ ? ema_->named_state() : nn::NamedTensors(),
                        .scaler = scaler_ ? scaler_->named_state() : nn::NamedTensors(),
                        .carried = step_->carried(),
                        .callbacks = {}};
  each_callback([&](Callback& callback) {
    if (callback.name().empty()) return;
    checkpoint.callbacks.push_back({callback.name(), callback.state(), callback.tensors()});
  });
  const std::string path = parts_.store->save(checkpoint);
  tell(CheckpointEvent{state_.step, path});
  each_callback([&](Callback& callback) { callback.on_checkpoint(*this, path); });
  saved_at_ = Clock::now();
  save_seconds_ = seconds_since(begin);
  closing_.saved(save_seconds_);
  resumed_training_ += saved_at_ - begin;  // writing is no training
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
