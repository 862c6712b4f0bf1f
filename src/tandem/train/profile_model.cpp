#include "tandem/train/profile_model.h"

#include <algorithm>
#include <array>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/task_calls.h"

namespace tandem {
namespace {

constexpr int kSettlingSteps = 3;  // until a compiled step is recorded and replayed

/// Steps of one kind on one batch of noise.
class Steps {
 public:
  Steps(const TrainConfig& config, bool infer) : config_(config) {
    const zoo::ChosenModel chosen = choose_model(config);
    model_ = zoo::make_model(chosen);
    model_->to(config.dtype);
    model_->to(config.device);
    task_ = make_task(chosen.info.task);
    batch_ = moved(task_->made_up_batch(made_up_sample(config, chosen.info), config.batch), config.device);
    if (infer) {
      make_forward();
      return;
    }
    optimizer_ = make_optimizer(config, *model_);
    if (config.autocast == DType::f16) scaler_ = std::make_unique<optim::LossScaler>(config.device);
    training_ = std::make_unique<TrainingStep>(
        *model_, *optimizer_, config.engine,
        StepOptions{.task = task_, .autocast = config.autocast, .scaler = scaler_.get()});
  }

  /// -> how long they took.
  int64_t take(int64_t count) {
    const int64_t begin = steady_now_ns();
    for (int64_t i = 0; i < count && !is_stopped(); ++i) {
      const Scope scope("step " + std::to_string(i + 1));
      step();
    }
    backend(config_.device).synchronize(config_.device);
    return steady_now_ns() - begin;
  }

 private:
  void make_forward() {
    model_->eval();
    batch_ = in_type(*task_, batch_, config_.dtype);
    state_ = task_->first_state(*model_, config_.batch);
    forward_ = std::make_unique<Runner>(
        [this](const std::vector<Named>& in) -> std::vector<Named> {
          const NoGrad off;
          const Scope scope("forward");
          const Autocast precision(config_.autocast);
          Named state = state_;
          return {task_->forward(*model_, in.at(0), state)};
        },
        config_.engine == Engine::graph);
  }
  void step() {
    if (training_)
      (void)(*training_)(batch_);
    else
      (void)(*forward_)({batch_});
  }
  bool is_stopped() const { return config_.stop && *config_.stop; }

  const TrainConfig& config_;
  std::unique_ptr<nn::Module> model_;
  TaskPtr task_;
  Named batch_, state_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LossScaler> scaler_;
  std::unique_ptr<TrainingStep> training_;
  std::unique_ptr<Runner> forward_;
};

}  // namespace

ModelProfile profile_model(const TrainConfig& config, bool infer) {
  check(config);
  check_between("steps", config.steps, 1, kMostProfiledSteps);
  const MachineScope machine(config.machine);
  check_device(config.device);
  manual_seed(config.seed);
  ModelProfile result;
  result.steps = config.steps.value_or(kProfiledSteps);
  result.threads = threads();
  result.peaks = measure_peaks(config.device, config.autocast.value_or(config.dtype));
  Steps steps(config, infer);
  steps.take(kSettlingSteps);
  result.unprofiled_ns = static_cast<double>(steps.take(result.steps)) / static_cast<double>(result.steps);
  result.profile = profile([&] { steps.take(result.steps); }, {.device = config.device});
  return result;
}

double step_nanoseconds(const TrainConfig& config, bool infer) {
  constexpr double kRoundNs = 2e8;
  check(config);
  const MachineScope machine(config.machine);
  check_device(config.device);
  manual_seed(config.seed);
  Steps steps(config, infer);
  steps.take(kSettlingSteps);
  const double one = static_cast<double>(std::max<int64_t>(1, steps.take(1)));
  const auto count = static_cast<int64_t>(std::max(1.0, kRoundNs / one));
  std::array<double, kTimedRounds> rounds{};
  for (double& ns : rounds) ns = static_cast<double>(steps.take(count)) / static_cast<double>(count);
  std::nth_element(rounds.begin(), rounds.begin() + kTimedRounds / 2, rounds.end());
  return rounds[kTimedRounds / 2];
}

}  // namespace tandem
