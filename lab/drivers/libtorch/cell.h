// What `prepare` asks for, checked against what the driver offers. What it does not offer is declined by name.
#pragma once

#include <nlohmann/json.hpp>

#include "inputs.h"

namespace libtorch_driver {

using Json = nlohmann::json;

/// One prepared cell; the fields have the protocol's names.
struct Cell {
  std::string model, phase, track, device, precision;
  int64_t batch = 0, threads = 1, seed = 0, classes = 0;
  std::vector<int64_t> input;
  bool dropout = true;
  Json optimizer, weights, switches;
  std::unique_ptr<Samples> train, test;

  /// The samples of check and run: those to train on, or the test's where there are no others.
  const Samples& samples() const { return train ? *train : *test; }
};

inline std::string joined(const Json& names) {
  std::string text;
  for (const Json& name : names)
    text += (text.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : name.dump());
  return text.empty() ? "none" : text;
}

inline std::string must_be_one_of(const std::string& what, const Json& value, const Json& offered) {
  if (std::find(offered.begin(), offered.end(), value) == offered.end())
    throw Declined(what, what + ": must be one of " + joined(offered) + "; got " + value.dump() + ".");
  return value.get<std::string>();
}

inline Json field(const Json& holder, const std::string& name) {
  return holder.contains(name) ? holder.at(name) : Json();
}

inline int64_t whole_number(const Json& holder, const std::string& name, int64_t least) {
  const Json value = field(holder, name);
  if (!value.is_number_integer() || value.get<int64_t>() < least)
    throw std::runtime_error(name + ": must be an integer, at least " + std::to_string(least) + "; got " +
                             value.dump() + ".");
  return value.get<int64_t>();
}

inline std::unique_ptr<Samples> samples_of(const Json& data, const std::string& part, const Cell& cell) {
  const Json entry = field(data, part);
  if (entry.is_null()) return nullptr;
  const std::string what = "data." + part;
  const Json x = field(entry, "x"), y = field(entry, "y");
  if (!x.is_string() || !y.is_string())
    throw std::runtime_error(what + ": must have the paths x and y; got " + entry.dump() + ".");
  return std::make_unique<Samples>(what, x.get<std::string>(), y.get<std::string>(), cell.input,
                                   cell.classes);
}

inline Cell cell_of(const Json& request, const Json& hello) {
  Cell cell;
  const Json workload = field(request, "workload");
  if (!workload.is_object())
    throw std::runtime_error("workload: must be an object; got " + workload.dump() + ".");
  const Json model = workload.contains("model") ? workload.at("model") : field(workload, "name");
  cell.model = must_be_one_of("workload", model, hello.at("workloads"));
  must_be_one_of("variant", field(request, "variant"), hello.at("variants"));
  cell.phase = must_be_one_of("phase", field(request, "phase"), hello.at("phases"));
  cell.device = must_be_one_of("device", field(request, "device"), hello.at("devices"));
  cell.precision = must_be_one_of("precision", field(request, "precision"), hello.at("precisions"));
  cell.track = must_be_one_of("track", request.value("track", Json("equal")), {"equal", "as_shipped"});
  cell.batch = whole_number(request, "batch", 1);
  cell.threads = request.contains("threads") ? whole_number(request, "threads", 1) : 1;
  cell.seed = request.contains("seed") ? whole_number(request, "seed", 0) : 0;
  cell.classes = whole_number(workload, "classes", 1);
  cell.dropout = request.value("dropout", true);

  const Json sizes = request.contains("input") ? request.at("input") : field(workload, "input");
  const auto is_size = [](const Json& n) { return n.is_number_integer() && n.get<int64_t>() > 0; };
  if (!sizes.is_array() || sizes.size() != 3 || !std::all_of(sizes.begin(), sizes.end(), is_size))
    throw std::runtime_error("input: must be three sizes [C, H, W]; got " + sizes.dump() + ".");
  cell.input = sizes.get<std::vector<int64_t>>();

  cell.switches = request.value("switches", Json::object());
  const Json& known = hello.at("switches");
  for (const auto& [name, value] : cell.switches.items()) {
    if (!known.contains(name)) {
      Json names = Json::array();
      for (const auto& entry : known.items()) names.push_back(entry.key());
      throw Declined(name, name + ": this driver has no such switch; it has " + joined(names) + ".");
    }
    must_be_one_of(name, value, known.at(name));
  }
  cell.optimizer = field(workload, "optimizer");
  if (!field(cell.optimizer, "name").is_string())
    throw std::runtime_error("workload.optimizer: must have a name; got " + cell.optimizer.dump() + ".");
  cell.weights = field(request, "weights");
  if (cell.track == "equal" && !cell.weights.contains("file") && !cell.weights.contains("hash"))
    throw std::runtime_error("weights: the track equal needs a file or a hash; got " + cell.weights.dump() +
                             ".");
  const Json data = field(request, "data");
  cell.train = samples_of(data, "train", cell);
  cell.test = samples_of(data, "test", cell);
  if (!cell.train && (cell.phase == "train" || !cell.test))
    throw std::runtime_error("data: must have the part train; got " + data.dump() + ".");
  return cell;
}

}  // namespace libtorch_driver
