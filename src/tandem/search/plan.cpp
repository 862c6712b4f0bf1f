#include "tandem/search/plan.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/shortest.h"
#include "tandem/io/safetensors.h"
#include "tandem/search/halving.h"
#include "tandem/search/variant.h"
#include "tandem/train/run_data.h"
#include "tandem/train/settings.h"

namespace tandem::search {
namespace {

/// A model as it fits the data.
Candidate candidate(const std::string& name, const TrainingData& data) {
  std::vector<std::string> notices;
  zoo::ChosenModel chosen = adapted(zoo::choose_model(name), data, notices);
  return {name, true, chosen.description ? *chosen.description : zoo::describe(name)};
}

/// The models for samples of a shape, those of the zoo first.
std::vector<Candidate> candidates_for(const TrainingData& data) {
  const Dims& shape = data.splits.info.sample_shape;
  std::vector<Candidate> out;
  if (data.splits.text) {
    for (const zoo::ModelInfo& row : zoo::models())
      if (row.task == data.splits.task && row.described) out.push_back(candidate(row.name, data));
    TD_CHECK(!out.empty(), "search: ", data.splits.name, " is for ", data.splits.task,
             ", whose models have no description that could be varied. Choose other data.");
    return out;
  }
  TD_CHECK(!data.splits.sound, "search: varies models that have a description; those of ", data.splits.task,
           " have none. Train one with 'tandem train'.");
  for (const zoo::ModelInfo& row : zoo::models()) {
    if (row.vocabulary > 0 || !row.described) continue;
    const bool is_like = row.input.rank() == shape.rank();  // images of another size are another model's
    if (is_like && row.input != shape) continue;
    try {
      out.push_back(candidate(row.name, data));
    } catch (const Error&) {
      if (is_like) throw;  // made for other samples, and cannot be made to fit these
    }
  }
  zoo::ModelDescription simple = template_model(shape, outputs_for(data.splits));
  out.push_back({simple.name, false, std::move(simple)});
  return out;
}

/// What a user's word for the monitored metric means.
void choose_metric(const std::string& monitor, const Task& task, Plan& plan) {
  TD_CHECK(!monitor.starts_with("test_") && !monitor.starts_with("train_"),
           "monitor: a search must be judged by ", "the validation part; got ", monitor,
           ". Give the metric's plain name: ", monitor.substr(monitor.find('_') + 1), ".");
  const std::string word = monitor.starts_with("valid_") ? monitor.substr(6) : monitor;
  std::vector<MetricInfo> infos = task.metrics();
  infos.push_back({"loss"});
  std::string names;
  for (const MetricInfo& info : infos) {
    names += (names.empty() ? "" : ", ") + info.name;
    if (!word.empty() && info.name != word) continue;
    plan.monitor = info.name;
    plan.metric = info;
    plan.metric.name = "valid_" + info.name;
    return;
  }
  throw Error(str("monitor: must be one of ", names, "; got '", monitor, "'."));
}

/// What a description has of the parameters that change one.
void add_own_settings(const std::vector<zoo::LayerDescription>& layers, Settings& settings) {
  for (const zoo::LayerDescription& layer : layers) {
    if (layer.type == "batch_norm") settings.emplace_back("batch_norm", "true");
    if (layer.type == "dropout")
      for (const auto& [name, value] : layer.settings)
        if (name == "p") settings.emplace_back("dropout", shortest(std::get<double>(value)));
    settings.emplace_back("activation", layer.type);
    add_own_settings(layer.layers, settings);
  }
}

}  // namespace

Plan make_plan(const SearchConfig& config) {
  const TrainConfig& base = config.base;
  Plan plan;
  plan.space = config.space.value_or(default_space());
  if (base.valid > 0) plan.valid = base.valid;
  const Parameter* models = plan.space.find("model");
  TD_CHECK(!models || base.model.empty() || models->values.size() == 1,
           "space: the models are those of the space",
           " or the one that is named; got both. Give the data set in place of the model.");
  std::vector<std::string> names;  // all must fit the data, which is that of the first
  if (!base.model.empty())
    names = {base.model};
  else if (models)
    names = models->values;
  TrainConfig opening = base;
  opening.valid = plan.valid;
  const zoo::ModelInfo none{.name = "a model of the search", .description = {}, .input = {}};
  const TrainingData data =
      open_training_data(opening, names.empty() ? none : zoo::choose_model(names[0]).info);
  for (const std::string& name : names) plan.candidates.push_back(candidate(name, data));
  if (names.empty()) plan.candidates = candidates_for(data);
  if (plan.candidates.size() > 1 && !models) {
    Parameter which{.name = "model"};
    for (const Candidate& row : plan.candidates) which.values.push_back(row.name);
    plan.space.parameters.insert(plan.space.parameters.begin(), std::move(which));
  }
  plan.data = data.splits.name;
  plan.where = data.splits.where;
  plan.taken = data.taken;
  plan.notices = data.splits.notices;
  plan.train_samples = data.splits.train->size();
  plan.valid_samples = data.valid->size();
  plan.test_samples = data.splits.test->size();
  plan.train_data = data::fingerprint(*data.splits.train);
  plan.valid_data = data::fingerprint(*data.valid);
  plan.test_data = data::fingerprint(*data.splits.test);
  plan.data_names = fingerprints_of_names(data.record);
  plan.task = data.task->name() + (data.task->settings().empty() ? "" : ": " + data.task->settings());
  if (!base.weights.empty()) plan.weights = io::weights_sha256(weights_of(base.weights));
  choose_metric(config.monitor, *data.task, plan);
  const int64_t most = base.epochs.value_or(9);
  plan.rungs = config.method == "random" ? std::vector<int64_t>{most} : rungs_of(1, most, config.eta);
  return plan;
}

Point usual_point(const Plan& plan, const SearchConfig& config) {
  const TrainConfig& base = config.base;
  // Of a name that comes twice the last counts: own settings are put after these, the outermost first.
  Settings usual = {{"model", plan.candidates[0].name},
                    {"lr", shortest(starting_lr(base))},
                    {"lr_factor", shortest(starting_lr(base) / optim::optimizer_info(base.optimizer).lr)},
                    {"batch", std::to_string(base.batch)},
                    {"optimizer", base.optimizer},
                    {"schedule", "constant"},
                    {"weight_decay", shortest(base.weight_decay.value_or(0))},
                    {"momentum", shortest(starting_momentum(base).value_or(0.9))},
                    {"width", "1"},
                    {"depth", "1"},
                    {"dropout", "0"},
                    {"batch_norm", "false"}};
  const Parameter* activation = plan.space.find("activation");
  Settings own;
  add_own_settings(plan.candidates[0].description.layers, own);
  for (const auto& row : own)
    if (row.first != "activation" ||
        (activation && std::find(activation->values.begin(), activation->values.end(), row.second) !=
                           activation->values.end()))
      usual.push_back(row);
  return plan.space.nearest(usual);
}

TrialPlan trial_plan(const Plan& plan, const SearchConfig& config, const Trial& trial) {
  TrialPlan out{.config = config.base};
  TrainConfig& c = out.config;
  c.valid = plan.valid;
  c.best = true;
  c.monitor = plan.monitor;
  Variant variant;
  const Candidate* chosen = &plan.candidates[0];
  std::optional<double> lr_factor;
  for (size_t i = 0; i < plan.space.parameters.size(); ++i) {
    const Parameter& p = plan.space.parameters[i];
    const double at = trial.point[i], number = p.number(at);
    const std::string text = p.text(at);
    if (p.name == "model")
      for (const Candidate& row : plan.candidates)
        if (row.name == text) chosen = &row;
    if (p.name == "lr") c.lr = number;
    if (p.name == "lr_factor") lr_factor = number;
    if (p.name == "batch") c.batch = static_cast<int64_t>(number);
    if (p.name == "optimizer") c.optimizer = text;
    if (p.name == "schedule") c.schedule.kind = text;
    if (p.name == "weight_decay") c.weight_decay = number;
    if (p.name == "momentum") c.momentum = number;
    if (p.name == "clip_norm") c.clip_norm = number;
    if (p.name == "width") variant.width = number;
    if (p.name == "depth") variant.depth = static_cast<int64_t>(number);
    if (p.name == "activation") variant.activation = text;
    if (p.name == "dropout") variant.dropout = number;
    if (p.name == "batch_norm") variant.batch_norm = text == "true";
  }
  // What goes with the optimiser is known once that is.
  const optim::OptimizerInfo& optimizer = optim::optimizer_info(c.optimizer);
  if (!optimizer.momentum) c.momentum.reset();
  if (lr_factor) {
    char digits[40];  // the rate that is shown is the one that is used
    std::snprintf(digits, sizeof(digits), "%.4g", *lr_factor * optimizer.lr);
    c.lr = std::strtod(digits, nullptr);
  }
  for (const auto& [name, value] : plan.space.settings(trial.point)) {
    if (name == "momentum" && !optimizer.momentum) continue;
    if (name == "lr_factor")
      out.settings.emplace_back("lr", shortest(*c.lr));
    else
      out.settings.emplace_back(name, value);
  }
  // The schedule is that of the full length from the start: how far the trial gets must not change its rates.
  const int64_t most = config.base.epochs.value_or(9);
  const int64_t steps = (plan.train_samples + c.batch * c.accumulate - 1) / (c.batch * c.accumulate);
  if (c.schedule.kind == "cosine" || c.schedule.kind == "one-cycle") c.schedule.total = most * steps;
  out.description = vary(chosen->description, variant);
  const bool is_varied = zoo::to_toml(out.description) != zoo::to_toml(chosen->description);
  c.model = is_varied || !chosen->is_named ? "" : chosen->name;
  return out;
}

std::string train_command(const Plan& plan, const TrialPlan& trial, const std::string& model,
                          int64_t epochs) {
  TrainConfig c = trial.config;
  if (c.data.empty()) c.data = plan.data;
  c.model.clear();
  c.out.clear();
  c.resume = false;
  c.epochs = epochs;
  std::string out = "tandem train " + shell_word(model);
  for (const auto& [name, value] : given_settings(c)) {
    const bool* toggle = std::get_if<bool>(&value);
    if (!toggle)
      out += " --" + name + " " + shell_word(text_of(value));
    else
      out += " --" + (*toggle ? name : setting(name).opposite);
  }
  return out;
}

}  // namespace tandem::search
