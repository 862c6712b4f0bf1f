// studies/workloads/NAME.toml, read and checked.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lab/src/base/toml.h"
#include "lab/src/study/schema.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

void check_optimizer(const Table& owner, const std::string& key, const Json& optimizer) {
  const std::string rule = "be a table with name and lr, such as { name = \"sgd\", lr = 0.01 }";
  if (!optimizer.is_object() || !optimizer.contains("name") || !optimizer["name"].is_string())
    owner.refuse(key, rule);
  // What is not finite has no form in JSON, by which drivers are told.
  const auto is_setting = [](const Json& value) {
    return value.is_boolean() || (value.is_number() && std::abs(value.get<double>()) <= limits::number.most);
  };
  for (const auto& [name, value] : optimizer.items()) {
    const bool is_list = value.is_array() && std::all_of(value.begin(), value.end(), is_setting);
    if (name != "name" && !is_setting(value) && !is_list)
      owner.refuse(key, cat("have finite numbers of at most ", limits::number.most,
                            ", true, false or lists of them beside its name"));
  }
  if (optimizer.contains("lr") &&
      !(optimizer["lr"].is_number() && optimizer["lr"].get<double>() > limits::learning_rate.least &&
        optimizer["lr"].get<double>() <= limits::learning_rate.most)) {
    owner.refuse(key, cat("have a learning rate lr above 0 and up to ", limits::learning_rate.most));
  }
}

void check_sample(const Table& owner, const std::string& key, const std::vector<int64_t>& sizes) {
  int64_t numbers = 1;
  for (const int64_t size : sizes) {
    if (numbers > limits::sample / size)
      owner.refuse(key, cat("be sizes of a sample of at most ", limits::sample, " numbers"));
    numbers *= size;
  }
}

Workload load_workload(const std::string& name) {
  const bool plain = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  const fs::path path = fs::path(lab_home()) / "studies" / "workloads" / (name + ".toml");
  std::error_code ignored;
  TD_CHECK(plain && fs::exists(path, ignored),
           "workload: the name must be one of studies/workloads/: ", listed(workload_names()), "; got '",
           io::one_line(name, 80), "'. lab/docs/workloads.md says how to add one.");
  Workload workload;
  workload.definition = read_toml(path.string());
  Table top(path.string(), "", workload.definition);
  workload.name = top.text("name");
  if (workload.name != name) top.refuse("name", "be that of the file, '" + name + "'");
  workload.title = top.text("title");
  top.text("paper", "");
  workload.model = top.text("model");
  workload.data = top.text("data");
  workload.input = top.integers("input", limits::size);
  if (workload.input.empty()) top.refuse("input", "be the sizes of one sample, such as [3, 32, 32]");
  check_sample(top, "input", workload.input);
  workload.classes = top.integer("classes", 0, limits::classes);
  if (workload.classes == 0) top.refuse("classes", "be the number of classes");
  workload.batch = top.integer("batch", 0, limits::batch);
  if (workload.batch == 0) top.refuse("batch", "be the number of samples per step");
  workload.precision = top.choice("precision", "f32", {"f32", "tf32", "bf16", "f16", "f64"});
  check_optimizer(top, "optimizer", top.any("optimizer"));
  const Json named = top.table("optimizers");
  for (const auto& [key, optimizer] : named.items()) check_optimizer(top, "optimizers", optimizer);
  const Json fit = top.table("fit"), gate = top.table("gate");
  top.finish();

  Table fit_table(path.string(), "[fit]", fit);
  fit_table.integer("epochs", 1, limits::epochs);
  for (const double threshold : fit_table.numbers("thresholds", limits::accuracy)) {
    if (threshold == 0) fit_table.refuse("thresholds", "be accuracies above 0 and up to 1");
  }
  if (fit_table.number("target", 1, limits::accuracy) == 0)
    fit_table.refuse("target", "be an accuracy above 0 and up to 1");
  fit_table.finish();
  Table gate_table(path.string(), "[gate]", gate);
  gate_table.integer("batch", 1, limits::batch);
  gate_table.integer("steps", 10, limits::gate_steps);
  gate_table.choice("weights", "file", {"file", "hash"});
  gate_table.finish();
  return workload;
}

}  // namespace tandem::lab
