// Reads `prepare`.
#include "cell.h"

#include <algorithm>

namespace libtorch_driver {
namespace {

using Sizes = std::vector<int64_t>;

std::string joined(const Json& names) {
  std::string text;
  for (const Json& name : names)
    text += (text.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : name.dump());
  return text.empty() ? "none" : text;
}

bool holds(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Json object(const Json& holder, const std::string& name) {
  const Json value = field(holder, name);
  if (!value.is_object()) throw std::runtime_error(name + ": must be an object; got " + value.dump() + ".");
  return value;
}

void read_network(Cell& cell, const Json& request, const Json& hello) {
  cell.network = object(request, "network");
  cell.name = cell.network.at("name").get<std::string>();
  cell.dropout = request.value("dropout", true);
  const Json definition = request.value("definition", Json("description"));
  cell.listing = must_be_one_of("definition", definition, {"description", "listing"}) == "listing";
  if (cell.listing && !holds(hello.at("listings"), cell.name))
    throw Declined("definition", "definition: this driver has listings of " + joined(hello.at("listings")) +
                                     "; got " + cell.name + ".");
  for (const Json& input : cell.network.at("inputs"))
    cell.inputs.push_back({input.at("name").get<std::string>(),
                           must_be_one_of("type", input.at("type"), {"f32", "i64"}), "",
                           input.at("shape").get<Sizes>()});
  if (!cell.network.contains("states")) cell.network["states"] = Json::array();
  for (Json& call : cell.network.at("calls")) {
    const auto kind = call.at("kind").get<std::string>();
    if (!cell.listing && !holds(hello.at("kinds"), kind))
      throw Declined(kind, kind + ": this driver builds " + joined(hello.at("kinds")) + "; got the layer " +
                               call.at("name").dump() + ".");
    if (!cell.dropout && call.at("settings").contains("p")) call["settings"]["p"] = 0.0;
    for (const auto& [name, shape] : call.at("parameters").items())
      cell.parameters[name] = shape.get<Sizes>();
  }
  for (const Json& output : cell.network.at("outputs"))
    cell.outputs.push_back({output.at("name").get<std::string>(), "", output.at("value").get<std::string>(),
                            output.at("shape").get<Sizes>()});
}

void read_loss(Cell& cell, const Json& workload, const Json& hello) {
  const Json loss = object(workload, "loss"), targets = object(workload, "targets");
  cell.loss.kind = field(loss, "kind").is_string() ? loss.at("kind").get<std::string>() : "loss";
  if (!holds(hello.at("losses"), cell.loss.kind))
    throw Declined(cell.loss.kind,
                   cell.loss.kind + ": this driver has the losses " + joined(hello.at("losses")) + ".");
  Json names = Json::array(), lengths = Json::array();
  for (const Value& output : cell.outputs) names.push_back(output.name);
  for (const Value& input : cell.inputs) lengths.push_back(input.name);
  for (const auto& target : targets.items()) lengths.push_back(target.key());
  const auto named = [&](const std::string& part, const Json& known) {
    const Json value = field(loss, part);
    if (!holds(known, value))
      throw std::runtime_error("workload.loss." + part + ": must be one of " + joined(known) + "; got " +
                               value.dump() + ".");
    return value.get<std::string>();
  };
  const std::string output = named("output", names);
  cell.loss.output = static_cast<size_t>(std::find(names.begin(), names.end(), output) - names.begin());
  cell.loss.target = loss.value("target", "");
  if (!targets.contains(cell.loss.target))
    throw std::runtime_error("workload.loss.target: must be one of the targets; got \"" + cell.loss.target +
                             "\".");
  if (!field(loss, "lengths").is_null()) cell.loss.lengths = named("lengths", lengths);
  const Json& target = targets.at(cell.loss.target);
  const bool classes = cell.loss.kind == "cross_entropy";
  Sizes wanted = cell.outputs[cell.loss.output].shape;
  if (classes && !wanted.empty()) wanted.pop_back();
  cell.loss.target_shape = target.at("shape").get<Sizes>();
  if (target.at("type") != (classes ? "i64" : "f32") || cell.loss.target_shape != wanted)
    throw std::runtime_error("workload.targets." + cell.loss.target + ": " + cell.loss.kind + " takes " +
                             (classes ? "i64 " : "f32 ") + Json(wanted).dump() + " here; got " +
                             target.dump() + ".");
  if (!field(target, "below").is_null()) cell.classes = target.at("below").get<int64_t>();
  const Json known = classes ? Json{"accuracy", "perplexity"} : Json{"mse", "mae"};
  for (const Json& metric : workload.value("metrics", Json::array()))
    cell.metrics.push_back(must_be_one_of("metrics", metric, known));
}

/// Whole numbers that have bounds: rows of an embedding, lengths of a sequence, classes.
std::map<std::string, std::pair<int64_t, int64_t>> bounds(const Cell& cell, const Json& targets) {
  std::map<std::string, std::pair<int64_t, int64_t>> found;
  std::map<std::string, Sizes> shapes;
  for (const Value& input : cell.inputs) shapes[input.name] = input.shape;
  const auto is_input = [&](const std::string& name) {
    return std::any_of(cell.inputs.begin(), cell.inputs.end(),
                       [&](const Value& input) { return input.name == name && input.type == "i64"; });
  };
  const auto at_most = [&](const std::string& name, int64_t time) {
    const auto there = found.find(name);
    found[name] = {1, there == found.end() ? time : std::min(time, there->second.second)};
  };
  for (const Json& call : cell.network.at("calls")) {
    const auto kind = call.at("kind").get<std::string>();
    const auto in = call.at("in").get<std::vector<std::string>>();
    shapes[call.at("out").get<std::string>()] = call.at("shape").get<Sizes>();
    if (kind == "embedding" && is_input(in[0]))
      found[in[0]] = {0, call.at("settings").at("rows").get<int64_t>() - 1};
    else if ((kind == "lstm" || kind == "attention" || kind == "mean") && is_input(in.back()))
      at_most(in.back(), shapes.at(in[in.size() > 3 ? 1 : 0]).at(0));  // of the keys, or of the only values
  }
  for (const auto& [name, target] : targets.items())
    if (!field(target, "below").is_null()) found[name] = {0, target.at("below").get<int64_t>() - 1};
  if (!cell.loss.lengths.empty()) at_most(cell.loss.lengths, cell.outputs[cell.loss.output].shape.at(0));
  return found;
}

void read_data(Cell& cell, const Json& data, const Json& targets) {
  std::vector<Column> columns;
  for (const Value& input : cell.inputs) columns.push_back({input.name, input.type, input.shape});
  for (const auto& [name, target] : targets.items())
    columns.push_back({name, must_be_one_of(name + ".type", target.at("type"), {"f32", "i64"}),
                       target.at("shape").get<Sizes>()});
  const auto known = bounds(cell, targets);
  for (Column& column : columns)
    if (const auto found = known.find(column.name); found != known.end()) {
      column.bounded = column.type == "i64";
      std::tie(column.least, column.most) = found->second;
    }
  for (const auto& [part, entry] : data.items()) {
    if (entry.is_null()) continue;
    std::map<std::string, std::string> paths;
    for (const auto& [name, path] : entry.items())
      if (path.is_string()) paths[name] = path.get<std::string>();
    const auto read = [&] { return Samples("data." + part, paths, columns); };
    if (part == "train") cell.train = std::make_unique<Samples>(read());
    if (part == "test") cell.test = std::make_unique<Samples>(read());
    if (part.rfind("test_", 0) == 0) cell.more_tests.emplace(part, read());
  }
  if (!cell.train && (cell.phase == "train" || !cell.test))
    throw std::runtime_error("data: must have the part train; got " + data.dump() + ".");
}

}  // namespace

std::string must_be_one_of(const std::string& what, const Json& value, const Json& offered) {
  if (!holds(offered, value))
    throw Declined(what, what + ": must be one of " + joined(offered) + "; got " + value.dump() + ".");
  return value.get<std::string>();
}

Json field(const Json& holder, const std::string& name) {
  return holder.contains(name) ? holder.at(name) : Json();
}

int64_t whole_number(const Json& holder, const std::string& name, int64_t least) {
  const Json value = field(holder, name);
  if (!value.is_number_integer() || value.get<int64_t>() < least)
    throw std::runtime_error(name + ": must be an integer, at least " + std::to_string(least) + "; got " +
                             value.dump() + ".");
  return value.get<int64_t>();
}

Cell cell_of(const Json& request, const Json& hello) {
  Cell cell;
  const Json workload = object(request, "workload");
  read_network(cell, request, hello);
  read_loss(cell, workload, hello);
  must_be_one_of("variant", field(request, "variant"), hello.at("variants"));
  cell.phase = must_be_one_of("phase", field(request, "phase"), hello.at("phases"));
  cell.device = must_be_one_of("device", field(request, "device"), hello.at("devices"));
  cell.precision = must_be_one_of("precision", field(request, "precision"), hello.at("precisions"));
  cell.track = must_be_one_of("track", request.value("track", Json("equal")), {"equal", "as_shipped"});
  cell.batch = whole_number(request, "batch", 1);
  cell.threads = request.contains("threads") ? whole_number(request, "threads", 1) : 1;
  cell.seed = request.contains("seed") ? whole_number(request, "seed", 0) : 0;
  if (const Json trim = field(request, "trim"); !trim.empty())
    throw Declined("trim", "trim: this driver takes batches of one size alone; got " + trim.dump() + ".");
  cell.switches = field(request, "switches");
  if (cell.switches.is_null()) cell.switches = Json::object();
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
  read_data(cell, object(request, "data"), workload.at("targets"));
  return cell;
}

}  // namespace libtorch_driver
