// The training loop. It is the same for every engine and device, and reads from the device only now and then: the
// losses of many steps are fetched at once.
#include "tandem/train/loop/loop.h"

#include <algorithm>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/io/safetensors.h"

namespace tandem {
namespace {

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

class Loop {
 public:
  explicit Loop(Run& run) : run_(run) {}
  DoneEvent train();

 private:
  void train_epoch();
  void train_step();
  void end_epoch();
  /// The metrics of the epoch under way; nothing where the run was told to stop meanwhile.
  std::optional<std::vector<Metric>> measured_epoch();
  DoneEvent end();
  DoneEvent interrupted();
  DoneEvent result() const;
  StartEvent start_event() const;

  bool is_interrupted() const { return options_.stop && *options_.stop; }
  /// Whether the epoch's steps are done and its test is not: so it was told to stop within the test, and goes on there.
  bool is_epoch_over() const { return at_.batch >= loader_.batches(); }
  bool has_work_left() const { return (run_.stopped.empty() && at_.step < run_.steps) || is_epoch_over(); }
  template <class F>
  void each_callback(const F& call) const {
    run_.callbacks.each(call);
  }
  void tell(const TrainEvent& event) const { run_.callbacks.tell(event); }

  Run& run_;
  RunState& at_ = run_.at;
  data::Loader& loader_ = run_.loader;
  const FitOptions& options_ = run_.options;
};

DoneEvent Loop::train() {
  const AnomalyScope anomaly(options_.anomaly);
  for (const std::string& notice : run_.parts.notices) tell(NoticeEvent{notice});
  if (options_.resume) run_.restore();
  run_.parts.store->begin(run_.parts.start.config, run_.settings, run_.device);
  tell(start_event());
  each_callback([&](Callback& callback) { callback.on_start(run_); });
  while (!is_interrupted() && has_work_left()) train_epoch();
  return end();
}

StartEvent Loop::start_event() const {
  StartEvent event = run_.parts.start;
  event.train_samples = run_.parts.names.train_samples;
  event.valid_samples = run_.parts.names.valid_samples;
  event.test_samples = run_.parts.names.test_samples;
  event.parameters = count_parameters(run_.model());
  event.lr = starting_lr(options_);
  event.epochs = run_.epochs;
  event.steps = run_.steps;
  event.first_step = at_.step;
  event.threads = threads();
  event.out = run_.folder();
  return event;
}

void Loop::train_epoch() {
  loader_.start_epoch(at_.epoch, at_.batch);
  if (at_.batch == 0) run_.learner.step().forget_carried();
  run_.clock.start_training();
  while (!is_interrupted() && has_work_left() && !is_epoch_over()) {
    train_step();
    run_.last_lr = run_.optimizer().lr();
    each_callback([&](Callback& callback) { callback.on_step(run_); });
    const int64_t every = options_.checkpoint_every.value_or(500);
    const bool wants_checkpoint =
        every > 0 && at_.step % every == 0 && (options_.checkpoint_every || run_.clock.is_worth_saving());
    if (wants_checkpoint && !is_epoch_over()) run_.save();
  }
  run_.losses.read(at_);
  run_.clock.stop_training();
  if (is_epoch_over()) end_epoch();
}

/// One update, of one batch or of several. A step is never left half done: checkpoints lie between steps.
void Loop::train_step() {
  TrainingStep& step = run_.learner.step();
  for (int64_t part = 1; !is_epoch_over(); ++part) {
    const data::Batch batch = *loader_.next();
    const bool is_last = part == options_.accumulate || at_.batch + 1 == loader_.batches();
    try {
      run_.losses.add(is_last ? step(batch.tensors) : step.accumulate(batch.tensors), at_.step + 1,
                      batch.size);
    } catch (Error& error) {
      if (options_.anomaly)
        error.prepend(str("train: step ", at_.step + 1, " (epoch ", at_.epoch + 1, "): "));
      throw;
    }
    ++at_.batch;
    run_.clock.trained(batch.size);
    if (is_last) break;
  }
  ++at_.step;
  if (!run_.losses.are_due()) return;
  run_.losses.read(at_);
  const double seconds = run_.clock.training_seconds();
  const auto done = static_cast<double>(at_.step - run_.first_step);
  tell(ProgressEvent{.epoch = at_.epoch + 1,
                     .epochs = run_.epochs,
                     .step = at_.step,
                     .steps = run_.steps,
                     .loss = run_.losses.last(),
                     .samples_per_second = run_.clock.samples_per_second(),
                     .seconds_left = seconds / done * static_cast<double>(run_.steps - at_.step)});
}

std::optional<std::vector<Metric>> Loop::measured_epoch() {
  std::vector<Metric> values = {{"train_loss", at_.loss_weight > 0 ? at_.loss_sum / at_.loss_weight : 0}};
  if (!run_.measurement.judge(values)) return {};
  return values;
}

void Loop::end_epoch() {
  std::optional<std::vector<Metric>> values = measured_epoch();
  if (!values) return;
  at_.epoch += 1;
  at_.history.push_back({.epoch = at_.epoch,
                         .step = at_.step,
                         .lr = run_.last_lr,
                         .seconds = run_.clock.of_run(),
                         .values = std::move(*values)});
  at_.batch = 0;
  at_.loss_sum = 0;
  at_.loss_weight = 0;
  tell(EpochEvent{at_.history.back(), run_.epochs, run_.metrics()});
  each_callback([&](Callback& callback) { callback.on_epoch(run_); });
  if (run_.clock.is_worth_saving()) run_.save();
}

DoneEvent Loop::end() {
  if (is_interrupted() && has_work_left()) return interrupted();
  if (!run_.stopped.empty()) tell(NoticeEvent{run_.stopped});
  // A run that ends within an epoch is measured there; one that ends with an epoch has been.
  std::vector<Metric> last = at_.history.empty() ? std::vector<Metric>() : at_.history.back().values;
  if (at_.batch > 0) {
    std::optional<std::vector<Metric>> values = measured_epoch();
    if (!values) return interrupted();
    last = std::move(*values);
  }
  run_.save();
  run_.learner.keep_average();
  each_callback([&](Callback& callback) { callback.on_end(run_); });
  if (run_.weights_replaced) {  // the training loss stays what it was
    last.resize(std::min<size_t>(last.size(), 1));
    if (!run_.measurement.judge(last)) return interrupted();
  }
  if (!run_.measurement.test(last)) return interrupted();
  run_.parts.store->finish(run_.model().state(), run_.settings);
  DoneEvent done = result();
  done.values = std::move(last);
  tell(done);
  return done;
}

DoneEvent Loop::interrupted() {
  if (at_.step > 0) run_.save();
  tell(InterruptedEvent{at_.step, run_.steps, run_.folder()});
  DoneEvent done = result();
  done.interrupted = true;
  return done;
}

DoneEvent Loop::result() const {
  return {.model = run_.parts.names.model,
          .data = run_.parts.names.data,
          .engine = engine_of(options_),
          .device = run_.device,
          .epochs = at_.epoch + (at_.batch > 0 ? 1 : 0),
          .steps = at_.step,
          .infos = run_.metrics(),
          .seconds = run_.clock.since_opened(),
          .samples_per_second = run_.clock.samples_per_second(),
          .weights_sha256 = io::weights_sha256(run_.model().state()),
          .out = run_.folder(),
          .history = at_.history,
          .stopped = run_.stopped};
}

}  // namespace

DoneEvent train_loop(const FitOptions& options, RunParts parts) {
  Run run(options, std::move(parts));
  return Loop(run).train();
}

}  // namespace tandem
