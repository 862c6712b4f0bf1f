// Training by hand and by names: what a run is made of. The loop is in loop/.
#include "tandem/train/train.h"

#include "tandem/core/rng.h"
#include "tandem/io/safetensors.h"
#include "tandem/train/loop/loop.h"
#include "tandem/train/parameter_names.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_folder.h"
#include "tandem/zoo/zoo.h"

namespace tandem {
namespace {

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
  RunParts parts{.model = model, .train = train_set, .valid = options.validation, .test = options.test};
  static_cast<FitOptions&>(parts.start.config) = options;
  parts.start.config.device = device_of(model);
  parts.start.config.dtype = dtype_of(model);
  parts.start.title = train_set.describe();
  if (!options.out.empty()) parts.store = store_in(open_run_folder(options, ""));
  return train_loop(options, std::move(parts));
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
  RunParts parts{.model = *model,
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
  return train_loop(options, std::move(parts));
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
