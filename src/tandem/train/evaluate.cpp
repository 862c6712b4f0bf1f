// Testing a saved run, and explaining a training step.
#include <chrono>

#include "tandem/core/rng.h"
#include "tandem/core/threads.h"
#include "tandem/io/file.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/random.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

void check(const EvalConfig& config) {
  check_data_name(config.data, config.data_dir);
  check_at_least("limit", config.limit, 1);
  check_at_least("threads", config.threads, 1);
}

EvalReport evaluate(const EvalConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  check(config);
  if (config.threads) set_threads(static_cast<int>(*config.threads));
  check_device(config.device);
  SavedRun run = load_run(config.folder);
  const std::unique_ptr<nn::Module> model = zoo::make_model(run.model);
  model->to(parse_dtype(run.dtype));
  model->to(config.device);
  model->load_state(run.weights, cat("load '", io::one_line(run.path), "'"),
                    cat("config.json says that the model is ", run.model, "."));
  const data::Splits splits =
      open_data(run.model, config.data.empty() ? run.data : config.data, config.data_dir, config.limit);
  const TestResult test = Evaluation(*model, config.engine)(*splits.test);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {.model = run.model,
          .data = splits.name,
          .path = run.path,
          .samples = splits.test->size(),
          .test_loss = test.loss,
          .test_accuracy = test.accuracy,
          .seconds = seconds.count(),
          .weights_sha256 = io::weights_sha256(model->state()),
          .warnings = run.warnings};
}

GraphReport explain(const TrainConfig& config, const CompileOptions& options) {
  check(config);
  if (config.threads) set_threads(static_cast<int>(*config.threads));
  check_device(config.device);
  manual_seed(config.seed);
  const std::unique_ptr<nn::Module> model = zoo::make_model(config.model);
  model->to(config.dtype);
  model->to(config.device);
  const std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer(
      config.optimizer, model->named_parameters(), {.lr = starting_lr(config), .momentum = config.momentum});
  TrainingStep step(*model, *optimizer, Engine::graph, options);
  Dims shape = zoo::model_info(config.model).input;
  shape.insert(0, config.batch);
  step(zeros(shape, DType::f32, config.device), zeros({config.batch}, DType::i64, config.device));
  return step.reports().at(0);
}

}  // namespace tandem
