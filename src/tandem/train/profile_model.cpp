#include "tandem/train/profile_model.h"

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"

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
    Dims shape = chosen.info.input;
    shape.insert(0, config.batch);
    x_ = randn(shape, DType::f32, config.device);
    y_ = zeros({config.batch}, DType::i64, config.device);
    if (infer) {
      make_forward();
      return;
    }
    optimizer_ = make_optimizer(config, *model_);
    if (config.autocast == DType::f16) scaler_ = std::make_unique<optim::LossScaler>(config.device);
    training_ =
        std::make_unique<TrainingStep>(*model_, *optimizer_, config.engine,
                                       StepOptions{.autocast = config.autocast, .scaler = scaler_.get()});
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
    x_ = cast(x_, config_.dtype);
    forward_ = [this](const std::vector<Tensor>& in) {
      const NoGrad off;
      const Scope scope("forward");
      const Autocast precision(config_.autocast);
      return std::vector<Tensor>{(*model_)(in[0])};
    };
    if (config_.engine == Engine::graph) compiled_ = std::make_unique<Compiled>(compile(forward_));
  }
  void step() {
    if (training_)
      (void)(*training_)(x_, y_);
    else
      (void)(compiled_ ? (*compiled_)({x_}) : forward_({x_}));
  }
  bool is_stopped() const { return config_.stop && *config_.stop; }

  const TrainConfig& config_;
  std::unique_ptr<nn::Module> model_;
  Tensor x_, y_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LossScaler> scaler_;
  std::unique_ptr<TrainingStep> training_;
  TensorFunction forward_;
  std::unique_ptr<Compiled> compiled_;
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

}  // namespace tandem
