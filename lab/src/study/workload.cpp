// Workloads, read and checked: studies/workloads/NAME.toml, and what a study brings along.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lab/src/files/toml.h"
#include "lab/src/protocol/optimizer.h"
#include "lab/src/study/schema.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/core/nearest.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void check_optimizer(const Table& owner, const std::string& key, const Json& optimizer) {
  if (!optimizer.is_object() || !optimizer.contains("name") || !optimizer["name"].is_string())
    owner.refuse(key, "be a table with name and lr, such as { name = \"sgd\", lr = 0.01 }");
  const std::string name = optimizer["name"];
  const std::vector<std::string> names = optimizer_names();
  if (!holds(names, name))
    owner.refuse(key, str("have a name among ", listed(names)), did_you_mean(name, names));
  const Json rate = optimizer.value("lr", Json());
  if (!is_within(rate, limits::learning_rate) || rate.get<double>() == 0)
    owner.refuse(key, str("have a learning rate lr above 0 and up to ", limits::learning_rate.most));

  const std::vector<std::string> known = optimizer_settings(name);
  const auto is_share = [](const Json& value) { return is_within(value, Real{0, 1}) && value != 1; };
  for (const auto& [setting, value] : optimizer.items()) {
    if (setting == "name" || setting == "lr") continue;
    if (!holds(known, setting))
      owner.refuse(key,
                   str("have some of ", listed(known), " beside its name, ", name, ", and no ",
                       io::one_line(setting, 80)),
                   did_you_mean(setting, known));
    if (setting == "momentum" && !is_share(value))
      owner.refuse(key, "have a momentum of at least 0 and below 1");
    if (setting == "betas" &&
        !(value.is_array() && value.size() == 2 && is_share(value[0]) && is_share(value[1])))
      owner.refuse(key, "have two betas, each at least 0 and below 1");
    if ((setting == "eps" || setting == "weight_decay") && !is_within(value, Real{0, limits::number.most}))
      owner.refuse(key, str("have a number from 0 to ", limits::number.most, " as ", setting));
  }
  if (name == "nesterov" && optimizer.value("momentum", 0.0) == 0)
    owner.refuse(key, "have a momentum above 0 beside the name nesterov");
}

void check_sample(const Table& owner, const std::string& key, const std::vector<int64_t>& sizes) {
  int64_t numbers = 1;
  for (const int64_t size : sizes) {
    if (numbers > limits::sample / size)
      owner.refuse(key, str("be sizes of a sample of at most ", limits::sample, " numbers"));
    numbers *= size;
  }
}

namespace {

/// Each target with its type and shape; `below` for whole numbers alone.
Json read_targets(const std::string& file, const std::string& where, const Json& given) {
  Json out = Json::object();
  for (const auto& [name, value] : given.items()) {
    if (!value.is_object())
      Table(file, where, given).refuse(name, "be a table such as { type = \"i64\", below = 10 }");
    Table table(file, where + ", " + name, value);
    Json target = {{"type", table.choice("type", "f32", {"f32", "i64"})}, {"shape", Json::array()}};
    if (table.any("shape") != Json::array()) target["shape"] = table.integers("shape", limits::size);
    const int64_t below = table.integer("below", 0, {0, limits::classes.most});
    if ((below > 0) != (target["type"] == "i64"))
      table.refuse("below", "be the number of classes of a target of type i64, and of no other");
    if (below > 0) target["below"] = below;
    table.finish();
    out[name] = target;
  }
  return out;
}

constexpr size_t kMostTerms = 16;

/// One term: of an output and a target.
Json read_term(Table& table, const Json& targets, const std::vector<std::string>& kinds) {
  Json loss = {{"kind", table.choice("kind", "", kinds)},
               {"output", table.text("output")},
               {"target", table.text("target")}};
  const bool is_ctc = loss["kind"] == "ctc";
  if (table.has("lengths")) loss["lengths"] = table.text("lengths");
  if (table.has("stride")) loss["stride"] = table.integer("stride", 1, limits::stride);
  if (!targets.contains(loss["target"])) table.refuse("target", "be one of [targets]");
  const Json& target = targets[loss["target"].get<std::string>()];
  if ((loss["kind"] == "cross_entropy" || is_ctc) != (target["type"] == "i64"))
    table.refuse("kind", "be cross_entropy or ctc for a target of type i64, and another for one of type f32");
  if (is_ctc && (target["shape"].size() != 1 || target["below"] < 2))
    table.refuse("target", "have one axis, that of its labels, and at least two of them: 0 is the blank");
  if (is_ctc && !loss.contains("lengths")) table.refuse("lengths", "say how many steps count for ctc");
  if (!is_ctc && loss.contains("stride")) table.refuse("stride", "stand beside the kind ctc alone");
  table.finish();
  return loss;
}

Json read_loss(const std::string& file, const std::string& where, const Json& given, const Json& targets) {
  const std::vector<std::string> kinds = {"cross_entropy", "mse", "mae", "bce"};
  Table table(file, where, given);
  if (given.value("kind", Json()) != "sum") {
    std::vector<std::string> all = kinds;
    all.insert(all.end(), {"ctc", "sum"});
    return read_term(table, targets, all);
  }
  Json loss = {{"kind", table.choice("kind", "", {"sum"})}, {"terms", Json::array()}};
  const std::vector<Json> terms = table.tables("terms");
  if (terms.empty() || terms.size() > kMostTerms)
    table.refuse("terms", str("be 1 to ", kMostTerms, " losses whose sum is taken"));
  table.finish();
  for (size_t i = 0; i < terms.size(); ++i) {
    Table term(file, str(where, ", term ", i + 1), terms[i]);
    loss["terms"].push_back(read_term(term, targets, kinds));
  }
  return loss;
}

/// Each length with what it trims; that the names fit is seen once the network is there.
Json read_trim(const std::string& file, const std::string& where, const Json& given) {
  Json trim = Json::object();
  for (const auto& [length, value] : given.items()) {
    if (!value.is_object())
      Table(file, where, given).refuse(length, "be a table such as { of = [\"x\"], multiple = 8 }");
    Table table(file, str(where, ", ", length), value);
    const std::vector<std::string> of = table.texts("of");
    if (of.empty()) table.refuse("of", "name the inputs and targets whose places it counts");
    trim[length] = {{"of", of}, {"multiple", table.integer("multiple", 1, limits::size)}};
    table.finish();
  }
  return trim;
}

ImageRule read_image_rule(const std::string& file, const std::string& where, const Json& given,
                          const Workload& workload) {
  Table table(file, where, given);
  ImageRule rule;
  rule.resize = table.integer("resize", rule.resize, limits::picture);
  const auto channels = [&](const char* key, std::vector<double>& to, Real range) {
    const std::vector<double> values = table.numbers(key, range);
    if (!table.has(key)) return;
    if (values.size() != 3) table.refuse(key, "be three numbers, one for each channel");
    to = values;
  };
  channels("mean", rule.mean, {-1000, 1000});
  channels("std", rule.std, {1e-3, 1000});
  table.finish();
  const auto& input = workload.input;
  if (input.size() != 3 || input[0] != 3 || std::max(input[1], input[2]) > rule.resize)
    table.refuse("resize",
                 "be at least the height and the width of the workload's input, which must be [3, height, "
                 "width]");
  if (workload.targets.size() != 1 || workload.classes() == 0 ||
      !workload.targets.begin()->at("shape").empty())
    Table(file, "", workload.definition).refuse("targets", "be one label where [images] stands");
  return rule;
}

}  // namespace

Json Workload::loss_terms() const {
  return loss.at("kind") == "sum" ? loss.at("terms") : Json::array({loss});
}

int64_t Workload::classes() const {
  return loss.at("kind") == "cross_entropy"
             ? targets.at(loss.at("target").get<std::string>()).at("below").get<int64_t>()
             : 0;
}

Workload read_workload(const std::string& file, const std::string& where, const Json& json) {
  const auto inside = [&](const std::string& part) { return where.empty() ? part : where + ", " + part; };
  Workload workload;
  workload.file = file;
  workload.definition = json;
  Table top(file, where, json);
  workload.name = top.text("name");
  workload.title = top.text("title");
  top.text("paper", "");
  if (const Json network = top.any("network"); network.is_object()) {
    workload.network = workload.name;
    if (network.contains("name") && network["name"].is_string())
      workload.network = network["name"].get<std::string>();
    workload.description = network;
    workload.definition["network"] = workload.network;  // what it is goes to the drivers by itself
  } else {
    workload.network = top.text("network");
  }
  workload.data = top.text("data", "synthetic");
  workload.input = top.integers("input", limits::size);
  check_sample(top, "input", workload.input);
  workload.targets = read_targets(file, inside("[targets]"), top.table("targets"));
  if (workload.targets.empty())
    top.refuse("targets", "name what is learned, such as { y = { type = \"i64\", below = 10 } }");
  workload.loss = read_loss(file, inside("[loss]"), top.table("loss"), workload.targets);
  workload.metrics = top.texts("metrics");
  const bool has_metrics = workload.loss["kind"] != "sum" && workload.loss["kind"] != "ctc";
  if (!has_metrics && !workload.metrics.empty()) top.refuse("metrics", "be left out beside ctc and sum");
  top.require("metrics", workload.metrics,
              workload.classes() > 0 ? std::vector<std::string>{"accuracy", "perplexity"}
                                     : std::vector<std::string>{"mse", "mae"});
  workload.definition["targets"] = workload.targets;  // with what was left out
  workload.batch = top.integer("batch", 0, limits::batch);
  if (workload.batch == 0) top.refuse("batch", "be the number of samples per step");
  workload.precision = top.choice("precision", "f32", {"f32", "tf32", "bf16", "f16", "f64"});
  check_optimizer(top, "optimizer", top.any("optimizer"));
  const Json named = top.table("optimizers");
  for (const auto& [key, optimizer] : named.items()) check_optimizer(top, "optimizers", optimizer);
  const Json fit = top.table("fit"), gate = top.table("gate"), images = top.table("images");
  workload.trim = read_trim(file, inside("[trim]"), top.table("trim"));
  if (!workload.trim.empty() && top.has("images")) top.refuse("trim", "be left out where [images] stands");
  top.finish();
  if (top.has("images")) workload.images = read_image_rule(file, inside("[images]"), images, workload);

  Table fit_table(file, inside("[fit]"), fit);
  fit_table.integer("epochs", 1, limits::epochs);
  const bool of_accuracy = !workload.metrics.empty() && workload.metrics[0] == "accuracy";
  const Real range = of_accuracy ? limits::accuracy : Real{0, limits::number.most};
  const std::string rule =
      of_accuracy ? "accuracies above 0 and up to 1" : "values of the first metric, above 0";
  if (workload.metrics.empty() && (fit.contains("thresholds") || fit.contains("target")))
    fit_table.refuse(fit.contains("thresholds") ? "thresholds" : "target",
                     "be left out where the workload has no metrics");
  for (const double threshold : fit_table.numbers("thresholds", range))
    if (threshold == 0) fit_table.refuse("thresholds", "be " + rule);
  if (fit_table.number("target", 1, range) == 0) fit_table.refuse("target", "be among " + rule);
  workload.samples = fit_table.integer("samples", 0, limits::samples);
  workload.noise = fit_table.numbers("noise", limits::noise);
  for (const double deviation : workload.noise)
    if (deviation == 0) fit_table.refuse("noise", "be deviations above 0");
  fit_table.finish();
  Table gate_table(file, inside("[gate]"), gate);
  gate_table.integer("batch", 1, limits::batch);
  gate_table.integer("steps", 10, limits::gate_steps);
  gate_table.choice("weights", "file", {"file", "hash"});
  gate_table.finish();
  return workload;
}

Workload load_workload(const std::string& name) {
  const bool plain = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  const fs::path path = fs::path(lab_home()) / "studies" / "workloads" / (name + ".toml");
  std::error_code ignored;
  TD_CHECK(plain && fs::exists(path, ignored),
           "workload: the name must be one of studies/workloads/: ", listed(workload_names()), "; got '",
           io::one_line(name, 80), "'. lab/docs/workloads.md says how to add one.");
  const Json json = read_toml(path.string());
  Workload workload = read_workload(path.string(), "", json);
  if (workload.name != name)
    Table(path.string(), "", json).refuse("name", "be that of the file, '" + name + "'");
  return workload;
}

bool Workloads::has(const std::string& name) const {
  const std::vector<std::string> files = workload_names();
  return std::any_of(own_.begin(), own_.end(), [&](const Workload& w) { return w.name == name; }) ||
         std::find(files.begin(), files.end(), name) != files.end();
}

Workload Workloads::load(const std::string& name) const {
  std::vector<std::string> names;
  for (const Workload& workload : own_) {
    if (workload.name == name) return workload;
    names.push_back(workload.name);
  }
  TD_CHECK(own_.empty() || has(name), "workload: the name must be one of the study's, ", listed(names),
           ", or of studies/workloads/, ", listed(workload_names()), "; got '", io::one_line(name, 80), "'.");
  return load_workload(name);
}

}  // namespace tandem::lab
