// Reading and checking `prepare`.
#include "lab/src/own/request.h"

#include <algorithm>

#include "lab/src/own/feed.h"

namespace tandem::lab::own {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The value of a field that must be one of those offered; declined otherwise.
std::string offered(const Json& request, const std::string& name, const std::vector<std::string>& values) {
  const std::string value = text_field(request, name);
  if (std::find(values.begin(), values.end(), value) == values.end())
    throw Declined(name,
                   cat(name, ": must be one of ", listed(values), "; got '", io::one_line(value, 80), "'."));
  return value;
}

Objective read_objective(const Json& workload, const zoo::StraightLine& line) {
  Objective out;
  const Json& targets = object_field(workload, "targets", "workload.targets");
  for (const auto& [name, rule] : targets.items())
    out.targets.push_back({name, sizes_field(rule, "shape", "workload.targets." + name + ".shape"),
                           type_field(rule, "workload.targets." + name + ".type")});
  const Json& loss = object_field(workload, "loss", "workload.loss");
  out.kind = text_field(loss, "kind", "workload.loss.kind");
  if (std::find(loss_names().begin(), loss_names().end(), out.kind) == loss_names().end())
    throw Declined("loss", cat("loss: must be one of ", listed(loss_names()), "; got '",
                               io::one_line(out.kind, 80), "'."));
  const std::string output = text_field(loss, "output", "workload.loss.output");
  const auto at = std::find_if(line.outputs.begin(), line.outputs.end(),
                               [&](const auto& each) { return each.name == output; });
  TD_CHECK(at != line.outputs.end(), "workload.loss.output: must be an output of the network; got '",
           io::one_line(output, 80), "'.");
  out.output = static_cast<size_t>(at - line.outputs.begin());
  out.target = text_field(loss, "target", "workload.loss.target");
  TD_CHECK(targets.contains(out.target), "workload.loss.target: must be one of workload.targets; got '",
           io::one_line(out.target, 80), "'.");
  if (out.kind == "cross_entropy") {
    out.classes = integer_field(targets[out.target], "below", 1, 1 << 24, {},
                                "workload.targets." + out.target + ".below");
    TD_CHECK(at->shape.rank() >= 1 && at->shape.back() == out.classes,
             "workload.loss.output: must have the target's classes, ", out.classes,
             ", on its last axis; got ", at->shape, ".");
  }
  if (loss.contains("lengths")) out.lengths = text_field(loss, "lengths", "workload.loss.lengths");
  TD_CHECK(out.lengths.empty() || std::any_of(line.inputs.begin(), line.inputs.end(),
                                              [&](const auto& input) { return input.name == out.lengths; }),
           "workload.loss.lengths: must be an input of the network; got '", io::one_line(out.lengths, 80),
           "'.");
  const Json metrics = workload.value("metrics", Json::array());
  TD_CHECK(metrics.is_array(), "workload.metrics: must be a list; got ", metrics.type_name(), ".");
  for (const Json& name : metrics) {
    const bool known =
        name.is_string() && (out.kind == "cross_entropy" ? name == "accuracy" || name == "perplexity"
                                                         : name == "mse" || name == "mae");
    if (!known)
      throw Declined("metrics", cat("metrics: must be accuracy or perplexity of a cross-entropy, mse or mae "
                                    "of others; got ",
                                    io::one_line(name.dump(), 80), "."));
    out.metrics.push_back(name);
  }
  return out;
}

DataFiles data_files(const Json& data, const std::string& part, const CellRequest& cell) {
  if (!data.contains(part) || data[part].is_null()) return {};
  const Json& files = object_field(data, part, "data." + part);
  DataFiles out;
  for (const auto* all : {&cell.line.inputs, &cell.objective.targets})
    for (const zoo::InputDescription& field : *all)
      out[field.name] = text_field(files, field.name, cat("data.", part, ".", field.name));
  return out;
}

void read_weights(const Json& request, CellRequest& cell) {
  if (cell.loads) return;  // there is no network
  const bool given = request.contains("weights") && !request["weights"].is_null();
  if (!cell.equal) {
    TD_CHECK(!given, "weights: the track as_shipped begins with Tandem's own; got some.");
    return;
  }
  TD_CHECK(given, "weights: the track equal needs {\"file\": PATH} or {\"hash\": SEED}; got nothing.");
  const Json& weights = object_field(request, "weights");
  if (weights.contains("hash"))
    cell.weights_hash =
        static_cast<uint32_t>(integer_field(weights, "hash", -kMany, kMany, {}, "weights.hash"));
  else
    cell.weights_file = text_field(weights, "file", "weights.file");
}

void read_switches(const Json& request, CellRequest& cell) {
  const Json switches = request.value("switches", Json::object());
  TD_CHECK(switches.is_object() || switches.is_null(), "switches: must be an object; got ",
           switches.type_name(), ".");
  const auto known = known_switches();
  std::map<std::string, bool> on;  // by pass
  const auto whole = switches.is_object() ? switches.find("graph") : switches.end();
  for (const std::string& pass : all_stages())
    on[pass] = !switches.is_object() || whole == switches.end() || *whole != "off";
  for (const auto& [name, value] : switches.items()) {
    const auto row = known.find(name);
    if (row == known.end()) {
      std::vector<std::string> names;
      for (const auto& [each, values] : known) names.push_back(each);
      throw Declined(name,
                     cat(io::one_line(name, 80), ": Tandem has no such switch; it has ", listed(names), "."));
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (std::find(row->second.begin(), row->second.end(), text) == row->second.end())
      throw Declined(
          name, cat(name, ": must be one of ", listed(row->second), "; got '", io::one_line(text, 80), "'."));
    if (cell.loads)
      throw Declined(name, cat(name, ": phase load has no network, and nothing to turn; got '", text, "'."));
    if (name == "feed" && text == "loader" && !cell.trains)
      throw Declined(name, "feed: the loader feeds training steps; phase infer has resident batches alone.");
    if (name == "lstm" && std::none_of(cell.line.calls.begin(), cell.line.calls.end(),
                                       [](const auto& call) { return call.layer.type == "lstm"; }))
      throw Declined(name, "lstm: the network has no such layer, and nothing to turn.");
    if (name.starts_with("graph")) {
      if (cell.engine == Engine::eager)
        throw Declined(name, cat(name, ": the eager variant has no graph. Ask the variant graph."));
      if (name != "graph") on[name.substr(6)] = text == "on";
    }
    cell.switches[name] = text;
  }
  std::vector<std::string> stages = all_stages();
  std::erase_if(stages, [&](const std::string& stage) { return !on[stage]; });
  cell.compile = with_stages(stages);
}

}  // namespace

const Json& object_field(const Json& holder, const std::string& name, const std::string& path) {
  const auto place = holder.find(name);
  TD_CHECK(place != holder.end() && place->is_object(), path.empty() ? name : path,
           ": must be an object; got ", place == holder.end() ? "nothing" : place->type_name(), ".");
  return *place;
}

const Json& list_field(const Json& holder, const std::string& name, const std::string& path) {
  const auto place = holder.find(name);
  TD_CHECK(place != holder.end() && place->is_array(), path.empty() ? name : path, ": must be a list; got ",
           place == holder.end() ? "nothing" : place->type_name(), ".");
  return *place;
}

Dims sizes_field(const Json& holder, const std::string& name, const std::string& path) {
  const Json& sizes = list_field(holder, name, path);
  Dims out;
  for (const Json& size : sizes) {
    TD_CHECK(size.is_number_integer() && size >= 1 && size <= 1 << 24 && out.rank() < 5, path,
             ": must be at most five sizes, each 1 to 16777216; got ", io::one_line(sizes.dump(), 80), ".");
    out.push_back(size.get<int64_t>());
  }
  return out;
}

DType type_field(const Json& holder, const std::string& path) {
  const std::string type = text_field(holder, "type", path);
  TD_CHECK(type == "f32" || type == "i64", path, ": must be f32 or i64; got '", io::one_line(type, 40), "'.");
  return type == "i64" ? DType::i64 : DType::f32;
}

std::string text_field(const Json& holder, const std::string& name, const std::string& path) {
  const auto place = holder.find(name);
  TD_CHECK(place != holder.end() && place->is_string() && !place->get_ref<const std::string&>().empty(),
           path.empty() ? name : path, ": must be a text; got ",
           place == holder.end() ? "nothing" : io::one_line(place->dump(), 80), ".");
  return place->get<std::string>();
}

int64_t integer_field(const Json& holder, const std::string& name, int64_t least, int64_t most,
                      std::optional<int64_t> otherwise, const std::string& path) {
  const auto place = holder.find(name);
  if (place == holder.end() && otherwise) return *otherwise;
  // A number above 2^63 would become a negative one.
  const bool fits = place != holder.end() && place->is_number_integer() &&
                    (!place->is_number_unsigned() || place->get<uint64_t>() <= uint64_t{1} << 62) &&
                    place->get<int64_t>() >= least && place->get<int64_t>() <= most;
  TD_CHECK(fits, path.empty() ? name : path, ": must be an integer from ", least, " to ", most, "; got ",
           place == holder.end() ? "nothing" : io::one_line(place->dump(), 80), ".");
  return place->get<int64_t>();
}

bool flag_field(const Json& holder, const std::string& name, bool otherwise) {
  const auto place = holder.find(name);
  if (place == holder.end()) return otherwise;
  TD_CHECK(place->is_boolean(), name, ": must be true or false; got ", io::one_line(place->dump(), 80), ".");
  return place->get<bool>();
}

DType CellRequest::dtype() const { return precision == "f64" ? DType::f64 : DType::f32; }

std::optional<DType> CellRequest::autocast() const {
  if (precision != "bf16" && precision != "f16") return {};
  return parse_dtype(precision);
}

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names = {"cross_entropy", "mse", "mae", "bce"};
  return names;
}

const std::vector<std::string>& phase_names() {
  static const std::vector<std::string> names = {"train", "infer", "load"};
  return names;
}

const std::vector<std::string>& search_names() {
  static const std::vector<std::string> names = {"tpe", "asha", "random"};
  return names;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names = {"cpu"};
  try {
    const int count = backend(DeviceKind::cuda).device_count();
    for (int i = 0; i < count; ++i) names.push_back(cat("cuda:", i));
  } catch (const Error&) {  // this machine has none
  }
  return names;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names = {"f32", "f64", "bf16", "f16"};
  if (device_names().size() > 1) names.push_back("tf32");
  return names;
}

std::map<std::string, std::vector<std::string>> known_switches() {
  std::map<std::string, std::vector<std::string>> known = {
      {"graph", {"on", "off"}}, {"feed", {"resident", "loader"}}, {"lstm", {"cell", "block", "fused"}}};
  for (const ChoiceMode mode : kChoiceModes) known["conv"].push_back(name(mode));
  for (const std::string& pass : all_stages()) known["graph." + pass] = {"on", "off"};
  return known;
}

CellRequest read_prepare(const Json& request) {
  CellRequest cell;
  const Json& workload = object_field(request, "workload");
  read_network(object_field(request, "network"), cell);
  cell.objective = read_objective(workload, cell.line);
  if (request.contains("definition")) offered(request, "definition", {"description", "listing"});
  std::vector<std::string> variants = {"eager", "graph"};
  variants.insert(variants.end(), search_names().begin(), search_names().end());
  const std::string variant = offered(request, "variant", variants);
  if (variant == "eager" || variant == "graph")
    cell.engine = parse_engine(variant);
  else
    cell.search = variant, cell.engine = Engine::graph;
  const std::string phase = offered(request, "phase", phase_names());
  cell.trains = phase == "train", cell.loads = phase == "load";
  cell.equal = !request.contains("track") || offered(request, "track", {"equal", "as_shipped"}) == "equal";
  cell.device = parse_device(offered(request, "device", device_names()));
  cell.precision = offered(request, "precision", precision_names());
  if (cell.precision == "tf32" && cell.device.is_cpu())
    throw Declined("precision", "precision: tf32 is a mode of the GPU; got it for cpu.");
  if (cell.loads && cell.precision != "f32")
    throw Declined("precision", cat("precision: phase load makes samples of f32; got ", cell.precision, "."));
  cell.batch = integer_field(request, "batch", 1, 1 << 24);
  cell.threads = integer_field(request, "threads", 1, 4096, 1);
  cell.seed = static_cast<uint64_t>(integer_field(request, "seed", 0, kMany, 0));
  cell.dropout = flag_field(request, "dropout", true);
  if (cell.trains) {
    cell.optimizer = object_field(workload, "optimizer", "workload.optimizer");
    text_field(cell.optimizer, "name", "workload.optimizer.name");
  }
  read_weights(request, cell);
  const Json& data = object_field(request, "data");
  cell.train = data_files(data, "train", cell);
  cell.test = data_files(data, "test", cell);
  for (const auto& [part, files] : data.items())
    if (part.starts_with("test_")) cell.more_tests[part] = data_files(data, part, cell);
  if (data.contains("images")) cell.images = std::make_shared<const Images>(read_images(data, cell));
  TD_CHECK(cell.loads || !cell.train.empty() || (!cell.trains && !cell.test.empty()),
           "data: must have the part train; got ", cell.test.empty() ? "nothing" : "test alone", ".");
  TD_CHECK(!cell.loads || cell.images, "data: must have images in phase load; got none.");
  read_switches(request, cell);
  return cell;
}

}  // namespace tandem::lab::own
