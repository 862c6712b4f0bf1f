#include "tandem/train/loop/run.h"

#include <algorithm>

#include "tandem/core/backend.h"
#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/shape.h"
#include "tandem/train/task_calls.h"

namespace tandem {
namespace {

/// How many parts of the given size a whole has; the last may be smaller.
int64_t count_parts(int64_t whole, int64_t part) { return whole / part + (whole % part != 0 ? 1 : 0); }

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

int64_t size_of(const data::Dataset* set) { return set ? set->size() : 0; }

/// The sets that are measured when an epoch ends, and besides when the run does.
ClosingTime closing_time(const RunParts& parts) {
  return parts.valid ? ClosingTime(size_of(parts.valid), size_of(parts.test))
                     : ClosingTime(size_of(parts.test), 0);
}

}  // namespace

Run::Run(const FitOptions& fit_options, RunParts run_parts)
    : options(fit_options),
      parts(std::move(run_parts)),
      device(device_of(parts.model)),
      clock(parts.begun, closing_time(parts)),
      loader(parts.train, training_batches(options, parts.train, device)),
      learner(parts.model, options, parts.still),
      losses(options, learner.scaler()),
      measurement(learner, clock, options, parts.valid, parts.test),
      callbacks(parts.callbacks, options.callbacks) {
  steps = planned_steps();
  if (options.steps) steps = std::min(steps, *options.steps);
  epochs = count_parts(steps, steps_per_epoch());

  SettingsParts& names = parts.names;
  names.train_samples = parts.train.size();
  names.valid_samples = size_of(parts.valid);
  names.test_samples = size_of(parts.test);
  names.dtype = dtype_of(parts.model);
  names.arithmetic = backend(device).arithmetic();
  names.train_data = parts.store->fingerprint(&parts.train);
  names.valid_data = parts.store->fingerprint(parts.valid);
  names.test_data = parts.store->fingerprint(parts.test);
  names.callbacks = callbacks.begin(*this);
  settings = settings_json(parts.start.config, names);
}

int64_t Run::steps_per_epoch() const { return count_parts(loader.batches(), options.accumulate); }

int64_t Run::planned_steps() const {
  if (options.steps && !options.epochs) return *options.steps;
  const int64_t wanted = options.epochs.value_or(1), each = steps_per_epoch();
  return wanted > kMostCount / each ? kMostCount : wanted * each;
}

nn::NamedTensors Run::weights() {
  const auto averaged = learner.averaged();
  const NoGrad off;
  nn::NamedTensors copies = model().state();
  for (auto& [name, tensor] : copies) tensor = clone(tensor);
  return copies;
}

nn::NamedTensors Run::gradients() {
  data::LoaderOptions loading = training_batches(options, parts.train, device);
  loading.shuffle = false;
  loading.workers = 0;
  data::Loader first(parts.train, loading);
  first.start_epoch(0);
  return loss_gradients(model(), {.task = options.task, .loss = options.loss}, first.next()->tensors);
}

void Run::restore() {
  std::vector<std::string> warnings;
  const std::optional<FoundCheckpoint> found = parts.store->resume(warnings);
  for (const std::string& warning : warnings)
    callbacks.tell(NoticeEvent{warning + " Using the checkpoint before it."});
  if (!found) {
    callbacks.tell(NoticeEvent{str("'", folder(), "' holds no checkpoint yet: beginning at step 0.")});
    return;
  }
  const Checkpoint& saved = found->checkpoint;
  const std::string source = str("'", found->path, "'");
  settings = check_same_settings(saved.settings, settings, source);
  learner.load(saved, source);
  callbacks.load(saved, source);
  at = saved.state;
  if (at.switches) set_switches(model(), *at.switches);
  clock.resume(at.seconds);
  last_lr = optimizer().lr();
  first_step = at.step;
  set_generator_state(at.generator);
  take_choices(at.choices);
  if (at.step > steps)
    callbacks.tell(NoticeEvent{str("'", folder(), "' is at step ", at.step, " already, beyond the ", steps,
                                   " asked for: nothing is left to train.")});
}

void Run::save() {
  if (!parts.store->needs(at)) return;
  losses.read(at);
  const Clock::time_point begin = Clock::now();
  at.generator = generator_state();
  at.switches = switches_of(model());
  if (convolution_choice().mode == ChoiceMode::profile || matmul_choice().mode == ChoiceMode::profile)
    at.choices = choices_made();
  at.seconds = clock.of_run();
  Checkpoint checkpoint;
  checkpoint.state = at;
  checkpoint.settings = settings;
  learner.save(checkpoint);
  callbacks.save(checkpoint);
  const std::string path = parts.store->save(checkpoint);
  callbacks.tell(CheckpointEvent{at.step, path});
  callbacks.each([&](Callback& callback) { callback.on_checkpoint(*this, path); });
  clock.saved(begin);
}

}  // namespace tandem
