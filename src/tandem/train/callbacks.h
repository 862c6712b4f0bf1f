// Callbacks: what else happens while a run goes, and who hears how it goes. They are called in the order in which they are
// given; what they do and keep must be a function of the run alone, so that a resumed run goes on as if it had never stopped.
//   fit(net, train_set, {.callbacks = {listen([](const EpochEvent& e) { std::printf("%f\n", e["train_loss"]); })}});
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/nn/module.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/callback_options.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/config.h"
#include "tandem/train/events.h"

namespace tandem {

/// The run, as a callback sees it.
class Training {
 public:
  virtual nn::Module& model() = 0;
  virtual optim::Optimizer& optimizer() = 0;
  virtual const RunState& state() const = 0;  ///< epoch, step, and the metrics of all epochs so far
  virtual int64_t steps_per_epoch() const = 0;
  virtual int64_t planned_steps()
      const = 0;  ///< epochs · steps_per_epoch, or TrainConfig::steps where no epochs are given
  virtual const std::string& folder() const = 0;  ///< of the run; empty: none
  virtual const data::Dataset& train_set() const = 0;
  /// What each epoch measures: "train_loss", "test_loss", "test_accuracy" …, and how to read it.
  virtual const std::vector<MetricInfo>& metrics() const = 0;
  /// The part of the data that epochs are judged by: "valid", "test", or "train" where there is no other.
  virtual const char* measured_part() const = 0;
  virtual double loss() = 0;           ///< of the latest step; waits for the device
  virtual double seconds() const = 0;  ///< since this process began the run, opening its data included
  /// What one more step, and an end of the run after it, would take: the tests that are due and a checkpoint, by those so far.
  virtual double closing_seconds() const = 0;
  virtual nn::NamedTensors
  weights() = 0;  ///< copies of what is tested: the moving average, where there is one
  virtual nn::NamedTensors
  gradients() = 0;  ///< of the loss over the first batch of the data, in evaluation mode
  virtual void stop(const std::string& why) = 0;                      ///< end after this step
  virtual void replace_weights(const nn::NamedTensors& weights) = 0;  ///< in on_end: keep these instead

 protected:
  ~Training() = default;
};

class Callback {
 public:
  virtual ~Callback() = default;
  /// A word of its own among the callbacks of a run, under which its state is saved. Empty: it has neither state nor
  /// settings.
  virtual std::string name() const { return ""; }
  /// What the run's bits depend on, as text; empty: nothing. A resumed run must have the same.
  virtual std::string settings(const Training&) const { return ""; }

  virtual void on_start(Training&) {}                           ///< before the first step, after a resume
  virtual void on_step(Training&) {}                            ///< after each
  virtual void on_epoch(Training&) {}                           ///< measured, and before its checkpoint
  virtual void on_checkpoint(Training&, const std::string&) {}  ///< written there
  virtual void on_end(Training&) {}                             ///< not where the run was interrupted
  /// All that the run tells (train/events.h). An event comes before the call above that is of the same moment; DoneEvent
  /// comes last, when the weights are written.
  virtual void on_event(const TrainEvent&) {}

  /// What a checkpoint must hold. load_state comes before every on_start; empty: begin anew.
  virtual std::string state() const { return ""; }
  virtual nn::NamedTensors tensors() const { return {}; }
  virtual void load_state(const std::string& /*state*/, const nn::NamedTensors& /*tensors*/) {}
};

/// A callback from a function: it is called with each event that it takes, as in listen([](const EpochEvent& e) { … }).
/// One that takes TrainEvent is called with all, and an object with several operator() with those.
template <class F>
CallbackPtr listen(F function) {
  class Listener final : public Callback {
   public:
    explicit Listener(F f) : function_(std::move(f)) {}
    void on_event(const TrainEvent& event) override {
      std::visit(
          [&](const auto& e) {
            if constexpr (std::is_invocable_v<F&, decltype(e)>) function_(e);
          },
          event);
    }

   private:
    F function_;
  };
  return std::make_shared<Listener>(std::move(function));
}

/// The ready-made ones; their options are in callback_options.h.
CallbackPtr learning_rate(const ScheduleOptions& options);

CallbackPtr early_stopping(const EarlyStopOptions& options = {});
/// Writes the weights of the best epoch so far.
CallbackPtr best_weights(const BestOptions& options = {});

/// Ends the run so that this process has done all of it within so many seconds, as near as can be foreseen: opening the data,
/// training, tests and checkpoints. At least half of them are for training, even where the tests take longer than the rest.
/// No step and no test is cut short. The run can be resumed.
CallbackPtr time_budget(double seconds);

/// One row per epoch, rewritten whole and atomically: no row twice after a resume. Path empty: metrics.csv or
/// metrics.jsonl in the run's folder.
CallbackPtr csv_log(const std::string& path = "");
CallbackPtr jsonl_log(const std::string& path = "");

/// loss.svg, and one plot for each main metric of the task (accuracy.svg), in the folder (empty: the run's), after each
/// epoch.
CallbackPtr plots(const std::string& folder = "");

/// Event files for TensorBoard (io/tensorboard.h).
CallbackPtr tensorboard(const TensorBoardOptions& options = {});

}  // namespace tandem
