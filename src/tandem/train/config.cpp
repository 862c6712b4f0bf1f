// The rules that settings must keep.
#include "tandem/train/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/core/backend.h"
#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

using nlohmann::ordered_json;

const char* name(Engine engine) { return engine == Engine::eager ? "eager" : "graph"; }

Engine parse_engine(const std::string& text) {
  if (text == "eager") return Engine::eager;
  if (text == "graph") return Engine::graph;
  throw Error(cat("engine: must be eager or graph; got '", text, "'."));
}

void check_data_name(const std::string& data, const std::string& data_dir) {
  if (data.empty()) return;
  std::string names;
  for (const data::DatasetStatus& row : data::list_datasets(data_dir)) {
    if (row.info.name == data) return;
    names += (names.empty() ? "" : ", ") + row.info.name;
  }
  throw Error(cat("data: must be one of ", names, "; got '", data, "'. 'tandem datasets' describes them."));
}

void check_at_least(const char* setting, std::optional<int64_t> value, int64_t least) {
  TD_CHECK(!value || *value >= least, setting, ": must be at least ", least, "; got ", value.value_or(0),
           ".");
}

void check(const TrainConfig& config) {
  zoo::model_info(config.model);
  optim::optimizer_info(config.optimizer);
  check_data_name(config.data, config.data_dir);
  check_at_least("batch", config.batch, 1);
  check_at_least("epochs", config.epochs, 1);
  check_at_least("steps", config.steps, 1);
  check_at_least("limit", config.limit, 1);
  check_at_least("threads", config.threads, 1);
  check_at_least("checkpoint-every", config.checkpoint_every, 0);
  const double lr = starting_lr(config);
  TD_CHECK(std::isfinite(lr) && lr > 0, "lr: must be a number above 0; got ", lr, ". Try ",
           optim::optimizer_info(config.optimizer).lr, ".");
  TD_CHECK(!config.momentum || optim::optimizer_info(config.optimizer).momentum,
           "momentum: ", config.optimizer, " takes none; got ", config.momentum.value_or(0),
           ". Leave it out, or choose --optimizer sgd.");
  TD_CHECK(!config.momentum || (*config.momentum >= 0 && *config.momentum < 1),
           "momentum: must be at least 0 and below 1; got ", config.momentum.value_or(0), ".");
  TD_CHECK(is_floating(config.dtype), "dtype: must be f32, f64, bf16 or f16; got ", config.dtype, ".");
}

void check_device(Device device) {
  const int count = backend(device).device_count();
  TD_CHECK(device.index < count, "device: this machine has ", count, " of that kind; got ", device,
           ". 'tandem info' lists them.");
}

double starting_lr(const TrainConfig& config) {
  return config.lr.value_or(optim::optimizer_info(config.optimizer).lr);
}

std::optional<double> starting_momentum(const TrainConfig& config) {
  const std::optional<double> usual = optim::optimizer_info(config.optimizer).momentum;
  return usual ? config.momentum.value_or(*usual) : usual;
}

data::Splits open_data(const std::string& model, const std::string& data, const std::string& data_dir,
                       std::optional<int64_t> limit) {
  const zoo::ModelInfo& info = zoo::model_info(model);
  data::Splits splits = data.empty() ? data::open_default(data_dir) : data::open_dataset(data, data_dir);
  TD_CHECK(splits.info.sample_shape == info.input && splits.info.classes <= info.classes, "train: ", model,
           " takes samples of ", info.input, " in at most ", info.classes, " classes; ", splits.name, " has ",
           splits.info.sample_shape, " in ", splits.info.classes, ". Choose another --data.");
  if (limit) {
    splits.train = data::first(splits.train, *limit);
    splits.test = data::first(splits.test, *limit);
  }
  return splits;
}

std::string settings_json(const TrainConfig& config, const data::Splits& splits) {
  ordered_json settings;
  settings["model"] = config.model;
  settings["data"] = splits.name;
  settings["train_samples"] = splits.train->size();
  settings["test_samples"] = splits.test->size();
  settings["batch"] = config.batch;
  settings["optimizer"] = config.optimizer;
  settings["lr"] = starting_lr(config);
  if (const std::optional<double> momentum = starting_momentum(config)) settings["momentum"] = *momentum;
  settings["dtype"] = name(config.dtype);
  settings["seed"] = config.seed;
  return settings.dump();
}

void check_same_settings(const std::string& saved, const std::string& wanted, const std::string& source) {
  const ordered_json before = ordered_json::parse(saved), now = ordered_json::parse(wanted);
  for (const auto& [key, value] : now.items()) {
    const ordered_json old = before.contains(key) ? before[key] : ordered_json();
    if (old == value) continue;
    const bool is_samples = key == "train_samples" || key == "test_samples";
    throw Error(cat("resume ", source, ": the run was begun with ", key, " ", old.dump(), "; got ", key, " ",
                    value.dump(), ". ",
                    is_samples ? "Give the same data and --limit" : "Give --" + key + " as it was",
                    ", or begin a new run in another --out."));
  }
}

}  // namespace tandem
