// Reading and checking `prepare`.
#include "lab/src/own/request.h"

#include <algorithm>

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

const Json& object_field(const Json& holder, const std::string& name, const std::string& path = "") {
  const auto place = holder.find(name);
  TD_CHECK(place != holder.end() && place->is_object(), path.empty() ? name : path,
           ": must be an object; got ", place == holder.end() ? "nothing" : place->type_name(), ".");
  return *place;
}

std::string model_of(const Json& workload) {
  const std::string model =
      text_field(workload, workload.contains("model") ? "model" : "name", "workload.model");
  const std::vector<zoo::ModelInfo>& all = zoo::models();
  const bool known =
      std::any_of(all.begin(), all.end(), [&](const auto& info) { return info.name == model; });
  if (!known)
    throw Declined("workload", cat("workload: the model must be one of Tandem's zoo; got '",
                                   io::one_line(model, 80), "'. 'tandem models' lists them."));
  return model;
}

Dims input_of(const Json& request, const Json& workload) {
  const Json& holder = request.contains("input") ? request : workload;
  const Json sizes = holder.value("input", Json());
  bool is_right = sizes.is_array() && sizes.size() == 3;
  Dims input;
  for (size_t i = 0; is_right && i < 3; ++i) {
    is_right = sizes[i].is_number_integer() && sizes[i] >= 1 && sizes[i] <= 1 << 20;
    if (is_right) input.push_back(sizes[i].get<int64_t>());
  }
  TD_CHECK(is_right, "input: must be three sizes [channels, height, width], each 1 to 1048576; got ",
           io::one_line(sizes.dump(), 80), ".");
  return input;
}

DataFiles data_files(const Json& data, const std::string& part) {
  if (!data.contains(part) || data[part].is_null()) return {};
  const Json& files = object_field(data, part, "data." + part);
  return {text_field(files, "x", "data." + part + ".x"), text_field(files, "y", "data." + part + ".y")};
}

void read_weights(const Json& request, CellRequest& cell) {
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
  std::map<std::string, std::vector<std::string>> known = {{"graph", {"on", "off"}}};
  for (const ChoiceMode mode : kChoiceModes) known["conv"].push_back(name(mode));
  for (const std::string& pass : all_stages()) known["graph." + pass] = {"on", "off"};
  return known;
}

CellRequest read_prepare(const Json& request) {
  CellRequest cell;
  const Json& workload = object_field(request, "workload");
  cell.model = model_of(workload);
  std::vector<std::string> variants = {"eager", "graph"};
  variants.insert(variants.end(), search_names().begin(), search_names().end());
  const std::string variant = offered(request, "variant", variants);
  if (variant == "eager" || variant == "graph")
    cell.engine = parse_engine(variant);
  else
    cell.search = variant, cell.engine = Engine::graph;
  cell.trains = offered(request, "phase", {"train", "infer"}) == "train";
  cell.equal = !request.contains("track") || offered(request, "track", {"equal", "as_shipped"}) == "equal";
  cell.device = parse_device(offered(request, "device", device_names()));
  cell.precision = offered(request, "precision", precision_names());
  if (cell.precision == "tf32" && cell.device.is_cpu())
    throw Declined("precision", "precision: tf32 is a mode of the GPU; got it for cpu.");
  cell.batch = integer_field(request, "batch", 1, 1 << 24);
  cell.threads = integer_field(request, "threads", 1, 4096, 1);
  cell.seed = static_cast<uint64_t>(integer_field(request, "seed", 0, kMany, 0));
  cell.classes = integer_field(workload, "classes", 1, 1 << 24, {}, "workload.classes");
  cell.input = input_of(request, workload);
  cell.dropout = flag_field(request, "dropout", true);
  if (cell.trains) {
    cell.optimizer = object_field(workload, "optimizer", "workload.optimizer");
    text_field(cell.optimizer, "name", "workload.optimizer.name");
  }
  read_weights(request, cell);
  const Json& data = object_field(request, "data");
  cell.train = data_files(data, "train");
  cell.test = data_files(data, "test");
  TD_CHECK(cell.train.given() || (!cell.trains && cell.test.given()), "data: must have the part train; got ",
           cell.test.given() ? "test alone" : "nothing", ".");
  read_switches(request, cell);
  return cell;
}

}  // namespace tandem::lab::own
