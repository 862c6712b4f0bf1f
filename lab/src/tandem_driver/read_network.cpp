// Turns the straight line of the protocol into a description of the library: one layer for each call, with the names of its values.
#include <algorithm>

#include "lab/src/protocol/whole_model.h"
#include "lab/src/tandem_driver/request.h"
#include "tandem/zoo/layer_types.h"

namespace tandem::lab::tandem_driver {
namespace {

constexpr size_t kMostCalls = 10'000;

/// A value's name in the description, where v1, v2 … are not allowed: straight_line() uses them.
std::string value_name(const std::string& name) {
  const bool numbered =
      name.size() > 1 && name[0] == 'v' && name.find_first_not_of("0123456789", 1) == std::string::npos;
  return numbered ? "made_" + name.substr(1) : name;
}

std::vector<int64_t> whole_numbers(const Json& list, const std::string& path) {
  std::vector<int64_t> out;
  for (const Json& value : list) {
    TD_CHECK(value.is_number_integer(), path, ": must be whole numbers; got ", io::one_line(list.dump(), 80),
             ".");
    out.push_back(value.get<int64_t>());
  }
  return out;
}

/// The protocol has a pair for each axis: zeros before and after. Tandem's layers have one number for each axis, or "same".
zoo::Setting padding_of(const Json& value, const std::string& path) {
  std::vector<int64_t> each;
  bool even = true;
  for (const Json& pair : value) {
    if (!pair.is_array()) return whole_numbers(value, path);  // a kind with one number for each axis
    const std::vector<int64_t> two = whole_numbers(pair, path);
    TD_CHECK(two.size() == 2, path, ": must be pairs; got ", io::one_line(value.dump(), 80), ".");
    TD_CHECK(two[0] == two[1] || two[0] + 1 == two[1], path,
             ": must be even, or have one more at the end; got ", io::one_line(value.dump(), 80), ".");
    even = even && two[0] == two[1];
    each.push_back(two[0]);
  }
  return even ? zoo::Setting(each) : zoo::Setting(std::string("same"));
}

zoo::Setting setting_of(const std::string& name, const Json& value, const std::string& path) {
  if (name == "padding" && value.is_array()) return padding_of(value, path);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  TD_CHECK(value.is_array(), path, ": must be a number, true, false, a text or a list; got ",
           io::one_line(value.dump(), 80), ".");
  return whole_numbers(value, path);
}

/// Reads a network of one call, a class of the zoo. The request has all that would otherwise be worked out from a description.
void read_whole(const Json& network, CellRequest& cell) {
  cell.is_whole = true;
  zoo::StraightLine& line = cell.line;
  line.name = cell.model, line.inputs = cell.description.inputs;
  const Json& call = network["calls"][0];
  zoo::LayerCall& whole = line.calls.emplace_back();
  whole.layer.type = call["kind"];
  const std::string path = "network.calls.settings";
  for (const auto& [name, value] : object_field(call, "settings", path).items())
    whole.layer.settings.emplace_back(name, setting_of(name, value, str(path, ".", io::one_line(name, 40))));
  for (const auto& [name, shape] : object_field(call, "parameters", "network.calls.parameters").items())
    cell.parameters[name] = whole_numbers(shape, "network.calls.parameters");
  for (const Json& output : list_field(network, "outputs", "network.outputs"))
    line.outputs.push_back({text_field(output, "name", "network.outputs.name"),
                            text_field(output, "value", "network.outputs.value"),
                            sizes_field(output, "shape", "network.outputs.shape")});
  TD_CHECK(!line.inputs.empty() && !line.outputs.empty(),
           "network: must have inputs and outputs; got none of one.");
}

}  // namespace

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const zoo::LayerType& type : zoo::layer_types())
    if (type.make) names.emplace_back(type.name);  // blocks are unrolled before they are sent
  for (const std::string& model : whole_model_names()) names.push_back(model);
  return names;
}

void read_network(const Json& network, CellRequest& cell) {
  cell.model = text_field(network, "name", "network.name");
  const std::vector<zoo::ModelInfo>& all = zoo::models();
  cell.in_zoo =
      std::any_of(all.begin(), all.end(), [&](const auto& info) { return info.name == cell.model; });
  zoo::ModelDescription& d = cell.description;
  d.name = cell.model;
  for (const Json& input : list_field(network, "inputs", "network.inputs"))
    d.inputs.push_back({text_field(input, "name", "network.inputs.name"),
                        sizes_field(input, "shape", "network.inputs.shape"),
                        type_field(input, "network.inputs.type")});
  const Json& calls = list_field(network, "calls", "network.calls");
  TD_CHECK(!calls.empty() && calls.size() <= kMostCalls, "network.calls: must be 1 to ", kMostCalls,
           " calls; got ", calls.size(), ".");
  const auto kind_of = [](const Json& call) { return text_field(call, "kind", "network.calls.kind"); };
  if (calls.size() == 1 && is_whole_model(kind_of(calls[0]))) return read_whole(network, cell);
  const std::vector<std::string> kinds = kind_names();
  for (const Json& call : calls) {
    zoo::LayerDescription& layer = d.layers.emplace_back();
    layer.type = kind_of(call);
    if (is_whole_model(layer.type))
      throw Declined("kind", str("kind: ", layer.type, " must be the only call of its network; got ",
                                 calls.size(), " calls."));
    if (std::find(kinds.begin(), kinds.end(), layer.type) == kinds.end())
      throw Declined("kind", str("kind: Tandem has no layer '", io::one_line(layer.type, 60), "'."));
    const bool is_named = call.contains("name") && call["name"] != "";
    layer.name = is_named ? text_field(call, "name", "network.calls.name") : str("sum_", d.layers.size());
    for (const Json& value : list_field(call, "in", "network.calls.in")) {
      TD_CHECK(value.is_string(), "network.calls.in: must be names; got ", io::one_line(value.dump(), 80),
               ".");
      layer.from.push_back(value_name(value));
    }
    layer.to = value_name(text_field(call, "out", "network.calls.out"));
    Json settings = object_field(call, "settings", "network.calls.settings");
    if (layer.type == "transpose" && settings.contains("axes") && settings["axes"].is_array() &&
        settings["axes"].size() == 2)
      settings = {{"first", settings["axes"][0]}, {"second", settings["axes"][1]}};
    for (const auto& [name, value] : settings.items()) {
      zoo::Setting setting = setting_of(name, value, str("network.calls.settings.", io::one_line(name, 40)));
      layer.settings.emplace_back(
          name, zoo::checked_setting(zoo::layer_type(layer.type), name, std::move(setting)));
    }
    for (const auto& [name, shape] : object_field(call, "parameters", "network.calls.parameters").items())
      cell.parameters[name] = whole_numbers(shape, "network.calls.parameters");
  }
  std::map<std::string, std::string> names;  // of outputs, by the names of their values
  for (const Json& output : list_field(network, "outputs", "network.outputs")) {
    names[value_name(text_field(output, "value", "network.outputs.value"))] =
        text_field(output, "name", "network.outputs.name");
    d.outputs.push_back(value_name(output["value"].get<std::string>()));
  }
  cell.line = zoo::straight_line(d);
  for (zoo::StraightLine::Output& output : cell.line.outputs) output.name = names.at(output.name);
}

}  // namespace tandem::lab::tandem_driver
