#include "lab/src/inputs/network.h"

#include <algorithm>
#include <filesystem>

#include "lab/src/files/toml.h"
#include "lab/src/protocol/whole_model.h"
#include "tandem/core/error.h"
#include "tandem/zoo/layer_types.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

Json sizes(const Dims& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

Json shapes(const std::vector<std::pair<std::string, Dims>>& named) {
  Json out = Json::object();
  for (const auto& [name, shape] : named) out[name] = sizes(shape);
  return out;
}

const zoo::Setting& setting(const zoo::LayerCall& call, const std::string& name) {
  for (const auto& [key, value] : call.layer.settings)
    if (key == name) return value;
  throw Error(str("network: ", call.layer.type, " must have the setting ", name, "."));
}

/// Zeros before and after, for each axis. "same" keeps the size at stride 1; of an odd number of zeros the extra one is at the end.
Json padding_pairs(const zoo::LayerCall& call) {
  Json pairs = Json::array();
  const zoo::Setting& padding = setting(call, "padding");
  if (const auto* each = std::get_if<std::vector<int64_t>>(&padding)) {
    for (const int64_t zeros : *each) pairs.push_back({zeros, zeros});
    return pairs;
  }
  const auto& kernel = std::get<std::vector<int64_t>>(setting(call, "kernel"));
  const auto& dilation = std::get<std::vector<int64_t>>(setting(call, "dilation"));
  for (size_t axis = 0; axis < kernel.size(); ++axis) {
    const int64_t zeros = dilation[axis] * (kernel[axis] - 1);
    pairs.push_back({zeros / 2, zeros - zeros / 2});
  }
  return pairs;
}

Json settings(const zoo::LayerCall& call) {
  Json out = Json::object();
  for (const auto& [name, value] : call.layer.settings) {
    if (name.starts_with("init") || name == "forget_bias")
      continue;  // the weights come from a file, or the framework draws them
    std::visit([&, &name = name](const auto& v) { out[name] = v; }, value);
  }
  if (call.layer.type == "conv" || call.layer.type == "max_pool") out["padding"] = padding_pairs(call);
  if (call.layer.type == "transpose") out = {{"axes", {out["first"], out["second"]}}};
  return out;
}

Json inputs(const std::vector<zoo::InputDescription>& all, const std::map<std::string, Whole>& ranges) {
  Json out = Json::array();
  for (const zoo::InputDescription& input : all) {
    out.push_back({{"name", input.name},
                   {"type", input.dtype == DType::i64 ? "i64" : "f32"},
                   {"shape", sizes(input.shape)}});
    if (const auto at = ranges.find(input.name); at != ranges.end())
      out.back()["range"] = {at->second.least, at->second.most};
  }
  return out;
}

/// Checks a term of the loss: the network must have its output, and the output's shape must fit the target.
void check_term(const Workload& workload, const Json& loss, const zoo::StraightLine& line) {
  const auto refuse = [&](const std::string& why) {
    throw Error(str("workload ", workload.name, ": ", why));
  };
  std::vector<std::string> names;
  const zoo::StraightLine::Output* output = nullptr;
  for (const auto& each : line.outputs) {
    names.push_back(each.name);
    if (each.name == loss.at("output").get<std::string>()) output = &each;
  }
  if (!output)
    refuse(str("loss.output must be an output of the network ", line.name, ", ", listed(names), "; got '",
               loss.at("output").get<std::string>(), "'."));
  const std::string target = loss.at("target"), kind = loss.at("kind");
  const Json& rule = workload.targets.at(target);
  std::vector<int64_t> wanted = rule.at("shape"), got(output->shape.begin(), output->shape.end());
  if (kind == "cross_entropy" || kind == "ctc") {
    if (got.empty() || got.back() != rule.value("below", int64_t{0}))
      refuse(str("the last axis of ", output->name, " must have as many classes as target ", target, ", ",
                 rule.value("below", int64_t{0}), "; got ", output->shape, "."));
    wanted.push_back(got.back());
  }
  if (kind == "ctc" && got.size() != 2)
    refuse(str("ctc takes an output of steps and classes; got ", output->shape, "."));
  if (kind != "ctc" && wanted != got)
    refuse(str("target ", target, " must have the shape of the output ", output->name, ", ", output->shape,
               kind == "cross_entropy" ? " without its classes" : "", "; got ", rule.at("shape").dump(),
               "."));
  const std::string lengths = loss.value("lengths", "");
  const auto is_length = [&](const zoo::InputDescription& input) {
    return input.name == lengths && input.dtype == DType::i64 && input.shape.rank() == 0;
  };
  const bool is_target = workload.targets.contains(lengths) && workload.targets[lengths]["type"] == "i64" &&
                         workload.targets[lengths]["shape"].empty();
  if (loss.contains("lengths") && !is_target &&
      std::none_of(line.inputs.begin(), line.inputs.end(), is_length))
    refuse(str("loss.lengths must name an input or a target of whole numbers without axes; got '", lengths,
               "'."));
}

void check_loss(const Workload& workload, const zoo::StraightLine& line) {
  const auto refuse = [&](const std::string& why) {
    throw Error(str("workload ", workload.name, ": ", why));
  };
  for (const Json& term : workload.loss_terms()) check_term(workload, term, line);
  for (const auto& input : line.inputs)
    if (workload.targets.contains(input.name))
      refuse(str("a target must have another name than the inputs; got '", input.name, "' for both."));
}

/// Checks `trim`: lengths must be whole numbers without axes, and what they trim must have as many places as they can count.
void check_trim(const Workload& workload, const Network& network) {
  const auto refuse = [&](const std::string& length, const std::string& why) {
    throw Error(str("workload ", workload.name, ": trim.", length, " must ", why));
  };
  struct Field {
    std::vector<int64_t> shape;
    bool is_whole;
    int64_t most;  // the largest of whole numbers; -1: not known
  };
  std::map<std::string, Field> fields;
  for (const auto& input : network.line.inputs) {
    const auto range = network.ranges.find(input.name);
    fields[input.name] = {{input.shape.begin(), input.shape.end()},
                          input.dtype == DType::i64,
                          range == network.ranges.end() ? -1 : range->second.most};
  }
  for (const auto& [name, rule] : workload.targets.items())
    fields[name] = {rule.at("shape"), rule.at("type") == "i64", rule.value("below", int64_t{0}) - 1};
  std::map<std::string, std::string> trimmed_by;
  for (const auto& [length, rule] : workload.trim.items()) {
    const auto counted = fields.find(length);
    if (counted == fields.end() || !counted->second.is_whole || !counted->second.shape.empty())
      refuse(length, "be an input or a target of whole numbers without axes; it is none.");
    int64_t places = 0;
    for (const std::string name : rule.at("of")) {
      const auto at = fields.find(name);
      if (at == fields.end() || at->second.shape.empty())
        refuse(length, str("trim inputs and targets that have places; got '", name, "'."));
      if (places > 0 && at->second.shape[0] != places)
        refuse(length, str("trim what has as many places each; got ", name, " of ", at->second.shape[0],
                           " beside others of ", places, "."));
      places = at->second.shape[0];
      if (!trimmed_by.emplace(name, length).second)
        refuse(length,
               str("trim what nothing else trims; got ", name, ", which ", trimmed_by[name], " trims."));
    }
    if (counted->second.most > places)
      refuse(length, str("count the places that it trims, ", places, "; got a length of up to ",
                         counted->second.most, "."));
  }
  for (const Json& term : workload.loss_terms())
    if (const auto by = trimmed_by.find(term.at("target").get<std::string>());
        by != trimmed_by.end() && (term.at("kind") == "ctc" || term.value("lengths", "") != by->second))
      refuse(
          by->second,
          str("trim a target of the loss only where its lengths are the term's, and no labels of ctc; got ",
              by->first, "."));
}

/// The lab has generated the text of this description, so that its line numbers mean nothing to the user.
void forget_lines(std::vector<zoo::LayerDescription>& layers) {
  for (zoo::LayerDescription& layer : layers) {
    layer.line = 0;
    forget_lines(layer.layers);
    forget_lines(layer.shortcut);
  }
}

/// The description that the workload itself contains.
zoo::ModelDescription described_inside(const Workload& workload) {
  const std::string source = str(workload.file, ": workload ", workload.name, ": network");
  try {
    zoo::ModelDescription description = zoo::parse_description(toml_text(workload.description), source);
    if (!workload.description.contains("name")) description.name = workload.network;
    forget_lines(description.layers);
    return description;
  } catch (const Error& error) {
    std::string why = error.what();
    const std::string line = str("model '", source, "', line ");
    if (why.starts_with(line)) {
      const size_t end = why.find_first_not_of("0123456789", line.size());
      why = str("model '", source, "'", end == std::string::npos ? "" : why.substr(end));
    }
    throw Error(why);
  }
}

std::string file_of(const Workload& workload) {
  const fs::path path = fs::path(lab_home()) / "networks" / (workload.network + ".toml");
  const bool plain = !workload.network.empty() && workload.network.find('/') == std::string::npos &&
                     workload.network[0] != '.';
  std::error_code ignored;
  TD_CHECK(plain && fs::exists(path, ignored), "workload ", workload.name,
           ": network must be the name of a description in lab/networks; got '", workload.network,
           "'. lab/docs/workloads.md says how to write one.");
  return path.string();
}

zoo::Setting number_of(Table& table, const std::string& key) {
  const Json value = table.any(key);
  if (is_within(value, Whole{0, 1 << 24})) return value.get<int64_t>();
  if (!is_within(value, Real{0, 1})) table.refuse(key, "be a size, or a probability from 0 to 1");
  return value.get<double>();
}

/// Adds the names and shapes of the class's parameters and buffers. They are found once for the same settings, because making the
/// class takes the memory of all weights.
void add_parameters(zoo::LayerCall& call) {
  using Shapes = std::vector<std::pair<std::string, Dims>>;
  static std::map<std::string, std::pair<Shapes, Shapes>>& known =
      *new std::map<std::string, std::pair<Shapes, Shapes>>;
  const std::string key = str(call.layer.type, " ", settings(call).dump());
  const auto [at, is_new] = known.try_emplace(key);
  if (is_new) {
    try {
      const auto model = zoo::make_model(call.layer.type, options_of(call.layer.settings));
      for (const auto& [name, tensor] : model->named_parameters())
        at->second.first.emplace_back(name, tensor.shape());
      for (const auto& [name, tensor] : model->named_buffers())
        at->second.second.emplace_back(name, tensor.shape());
    } catch (const Error&) {
      known.erase(at);
      throw;
    }
  }
  call.parameters = at->second.first, call.buffers = at->second.second;
}

/// The network of a file, or of a table in a workload, that has the key `model`.
Network whole_network(const Workload& workload, const std::string& file, const std::string& where,
                      const Json& json) {
  Network network;
  network.is_whole = true;
  Table table(file, where, json);
  network.line.name = table.text("name", workload.network);
  zoo::LayerCall& call = network.line.calls.emplace_back();
  call.layer.type = table.text("model");
  if (!is_whole_model(call.layer.type))
    table.refuse("model", "be a class of the zoo that is no list of layers: " + listed(whole_model_names()));
  const Json given = table.table("settings");
  Table sizes_of_it(file, where.empty() ? "[settings]" : where + ", settings", given);
  for (const auto& [name, value] : given.items())
    call.layer.settings.emplace_back(name, number_of(sizes_of_it, name));
  const auto inside = [&](const char* kind, const std::string& name) {
    return str(where.empty() ? "" : where + ", ", kind, " ", name);
  };
  const auto shape_of = [](Table& entry) {
    return entry.any("shape") == Json::array() ? Dims() : Dims(entry.integers("shape", limits::size));
  };
  for (const Json& each : table.tables("inputs")) {
    Table entry(file, inside("input", each.value("name", Json("?")).dump()), each);
    const bool is_whole = entry.choice("type", "f32", {"f32", "i64"}) == "i64";
    network.line.inputs.push_back({entry.text("name"), shape_of(entry), is_whole ? DType::i64 : DType::f32});
    const std::vector<int64_t> range = entry.integers("range", {0, limits::classes.most});
    if (is_whole != (range.size() == 2) || (is_whole && range[0] > range[1]))
      entry.refuse("range", "be the least and the most of an input of type i64, and of no other");
    if (is_whole) network.ranges[network.line.inputs.back().name] = {range[0], range[1]};
    entry.finish();
    call.in.push_back(network.line.inputs.back().name);
  }
  for (const Json& each : table.tables("outputs")) {
    Table entry(file, inside("output", each.value("name", Json("?")).dump()), each);
    network.line.outputs.push_back(
        {entry.text("name"), str("v", network.line.outputs.size() + 1), shape_of(entry)});
    entry.finish();
  }
  if (call.in.empty()) table.refuse("inputs", "name what the model takes, in its order");
  if (network.line.outputs.empty()) table.refuse("outputs", "name what the model gives, in its order");
  table.finish();
  call.layer.name = call.layer.type;
  call.out = network.line.outputs[0].value;
  call.shape = network.line.outputs[0].shape;
  return network;
}

/// From the workload itself or from its file, as layers or as a whole model.
Network found_network(const Workload& workload, const zoo::ModelOptions& options) {
  const auto from_layers = [&](zoo::ModelDescription description) {
    Network network;
    network.description = zoo::with_options(std::move(description), options);
    network.line = zoo::straight_line(network.description);
    return network;
  };
  const auto check_input = [&] {
    TD_CHECK(!options.input, "workload ", workload.name,
             ": input must be left out, as the network is a whole model with inputs of its own; got ",
             *options.input, ".");
  };
  if (!workload.description.is_null()) {
    if (!workload.description.contains("model")) return from_layers(described_inside(workload));
    check_input();
    return whole_network(workload, workload.file, str("workload ", workload.name, ", network"),
                         workload.description);
  }
  const std::string file = file_of(workload);
  const Json json = read_toml(file);
  if (!json.contains("model")) return from_layers(zoo::read_description(file));
  check_input();
  return whole_network(workload, file, "", json);
}

/// The network with everything except the parameters of a whole model.
Network checked_network(const Workload& workload, const std::vector<int64_t>& input) {
  zoo::ModelOptions options;
  const std::vector<int64_t>& sizes = input.empty() ? workload.input : input;
  if (!sizes.empty()) options.input = Dims(sizes);
  if (workload.classes() > 0) options.classes = workload.classes();
  Network network = found_network(workload, options);
  network.targets = workload.targets;
  check_loss(workload, network.line);
  check_trim(workload, network);
  return network;
}

}  // namespace

Json Network::json() const {
  Json calls = Json::array(), outputs = Json::array(), values = Json::array();
  for (const zoo::LayerCall& call : line.calls)
    calls.push_back({{"kind", call.layer.type},
                     {"name", call.layer.name},
                     {"in", call.in},
                     {"out", call.out},
                     {"shape", sizes(call.shape)},
                     {"settings", settings(call)},
                     {"parameters", shapes(call.parameters)},
                     {"buffers", shapes(call.buffers)}});
  for (const auto& output : line.outputs) {
    outputs.push_back({{"name", output.name}, {"value", output.value}, {"shape", sizes(output.shape)}});
    values.push_back(output.value);
  }
  if (is_whole) calls[0]["outs"] = values;
  return {{"name", line.name},
          {"inputs", inputs(line.inputs, ranges)},
          {"states", inputs(line.states, {})},
          {"calls", calls},
          {"outputs", outputs}};
}

int64_t Network::sample_bytes() const {
  int64_t bytes = 0;
  for (const zoo::InputDescription& input : line.inputs)
    bytes += size_of(input.shape) * (input.dtype == DType::i64 ? 8 : 4);
  for (const auto& [name, target] : targets.items())
    bytes +=
        size_of(Dims(target.at("shape").get<std::vector<int64_t>>())) * (target.at("type") == "i64" ? 8 : 4);
  return bytes;
}

Network load_network(const Workload& workload, const std::vector<int64_t>& input) {
  Network network = checked_network(workload, input);
  if (network.is_whole) add_parameters(network.line.calls[0]);
  return network;
}

void check_network(const Workload& workload) { checked_network(workload, {}); }

bool has_dropout(const Network& network) {
  if (network.is_whole) return draws(network.line.calls.at(0).layer.settings);
  // Layers with dropout are those with a setting `p`; zoo::with_options finds them in the same way.
  return std::any_of(network.line.calls.begin(), network.line.calls.end(), [](const zoo::LayerCall& call) {
    return zoo::has_setting(zoo::layer_type(call.layer.type), "p");
  });
}

std::unique_ptr<nn::Module> Network::make() const {
  if (!is_whole) return zoo::make_model(description);
  const zoo::LayerDescription& layer = line.calls.at(0).layer;
  return zoo::make_model(layer.type, options_of(layer.settings));
}

int64_t embedding_rows(const Network& network, const std::string& input) {
  if (const auto at = network.ranges.find(input); at != network.ranges.end()) return at->second.most + 1;
  for (const zoo::LayerCall& call : network.line.calls)
    if (call.layer.type == "embedding" && call.in[0] == input)
      for (const auto& [name, value] : call.layer.settings)
        if (name == "rows") return std::get<int64_t>(value);
  return 0;
}

}  // namespace tandem::lab
