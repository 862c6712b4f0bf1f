// A run: its parts and where it stands. Callbacks see it as Training; loop.h says what happens to it, and when.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/data/loader.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/loop/callback_list.h"
#include "tandem/train/loop/learner.h"
#include "tandem/train/loop/measurement.h"
#include "tandem/train/loop/pending_losses.h"
#include "tandem/train/loop/run_clock.h"
#include "tandem/train/loop/run_store.h"

namespace tandem {

/// What a run is made of, besides its options.
struct RunParts {
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

/// The data members are public for the loop (loop.cpp); callbacks see a run as Training.
struct Run final : public Training {
  Run(const FitOptions& fit_options, RunParts run_parts);

  /// Goes on from the newest usable checkpoint of the store. A run that was stopped before its first one begins again.
  void restore();
  /// Writes a checkpoint if the store needs one of this state.
  void save();

  nn::Module& model() override { return parts.model; }
  optim::Optimizer& optimizer() override { return learner.optimizer(); }
  const RunState& state() const override { return at; }
  int64_t steps_per_epoch() const override;
  int64_t planned_steps() const override;
  const std::string& folder() const override { return parts.store->folder(); }
  const data::Dataset& train_set() const override { return parts.train; }
  const std::vector<MetricInfo>& metrics() const override { return measurement.infos(); }
  const char* measured_part() const override { return measurement.part(); }
  double loss() override {
    losses.read(at);
    return losses.last();
  }
  double seconds() const override { return clock.since_begun(); }
  double closing_seconds() const override {
    return clock.closing_seconds(options.batch * options.accumulate);
  }
  nn::NamedTensors weights() override;
  nn::NamedTensors gradients() override;
  void stop(const std::string& why) override { stopped = why; }
  void replace_weights(const nn::NamedTensors& weights) override {
    model().load_state(weights, "replace_weights");
    weights_replaced = true;
  }

  const FitOptions options;
  RunParts parts;
  const Device device;
  RunClock clock;
  data::Loader loader;
  Learner learner;
  PendingLosses losses;
  Measurement measurement;
  CallbackList callbacks;
  std::string settings;  // on which the bits depend, as JSON text
  int64_t epochs = 0, steps = 0, first_step = 0;

  RunState at;
  double last_lr = 0;   // of the latest step
  std::string stopped;  // why a callback ended it; empty: none did
  bool weights_replaced = false;
};

}  // namespace tandem
