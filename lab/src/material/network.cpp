#include "lab/src/material/network.h"

#include <algorithm>
#include <filesystem>

#include "lab/src/base/toml.h"
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
  throw Error(cat("network: ", call.layer.type, " must have the setting ", name, "."));
}

/// Zeros before and after, for each axis. "same" keeps the size at stride 1, and has the odd one at the end.
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
      continue;  // the weights come from a file, or are the framework's own
    std::visit([&, &name = name](const auto& v) { out[name] = v; }, value);
  }
  if (call.layer.type == "conv" || call.layer.type == "max_pool") out["padding"] = padding_pairs(call);
  if (call.layer.type == "transpose") out = {{"axes", {out["first"], out["second"]}}};
  return out;
}

Json inputs(const std::vector<zoo::InputDescription>& all) {
  Json out = Json::array();
  for (const zoo::InputDescription& input : all)
    out.push_back({{"name", input.name},
                   {"type", input.dtype == DType::i64 ? "i64" : "f32"},
                   {"shape", sizes(input.shape)}});
  return out;
}

/// The loss must find its output, and what that gives must fit the target.
void check_loss(const Workload& workload, const zoo::StraightLine& line) {
  const auto refuse = [&](const std::string& why) {
    throw Error(cat("workload ", workload.name, ": ", why));
  };
  std::vector<std::string> names;
  const zoo::StraightLine::Output* output = nullptr;
  for (const auto& each : line.outputs) {
    names.push_back(each.name);
    if (each.name == workload.loss.at("output").get<std::string>()) output = &each;
  }
  if (!output)
    refuse(cat("loss.output must be an output of the network ", line.name, ", ", listed(names), "; got '",
               workload.loss.at("output").get<std::string>(), "'."));
  const std::string target = workload.loss.at("target");
  const Json& rule = workload.targets.at(target);
  std::vector<int64_t> wanted = rule.at("shape"), got(output->shape.begin(), output->shape.end());
  if (workload.loss.at("kind") == "cross_entropy") {
    if (got.empty() || got.back() != rule.value("below", int64_t{0}))
      refuse(cat("the last axis of ", output->name, " must have as many classes as target ", target, ", ",
                 rule.value("below", int64_t{0}), "; got ", output->shape, "."));
    wanted.push_back(got.back());
  }
  if (wanted != got)
    refuse(cat("target ", target, " must have the shape of the output ", output->name, ", ", output->shape,
               workload.loss.at("kind") == "cross_entropy" ? " without its classes" : "", "; got ",
               rule.at("shape").dump(), "."));
  const auto is_length = [&](const zoo::InputDescription& input) {
    return input.name == workload.loss.value("lengths", "") && input.dtype == DType::i64 &&
           input.shape.rank() == 0;
  };
  if (workload.loss.contains("lengths") && std::none_of(line.inputs.begin(), line.inputs.end(), is_length))
    refuse(cat("loss.lengths must name an input of whole numbers without axes; got '",
               workload.loss.at("lengths").get<std::string>(), "'."));
  for (const auto& input : line.inputs)
    if (workload.targets.contains(input.name))
      refuse(cat("a target must have another name than the inputs; got '", input.name, "' for both."));
}

/// Its text has been made here, so that its lines are nobody's.
void forget_lines(std::vector<zoo::LayerDescription>& layers) {
  for (zoo::LayerDescription& layer : layers) {
    layer.line = 0;
    forget_lines(layer.layers);
    forget_lines(layer.shortcut);
  }
}

/// The description that stands in the workload itself.
zoo::ModelDescription described_inside(const Workload& workload) {
  const std::string source = cat(workload.file, ": workload ", workload.name, ": network");
  try {
    zoo::ModelDescription description = zoo::parse_description(toml_text(workload.description), source);
    if (!workload.description.contains("name")) description.name = workload.network;
    forget_lines(description.layers);
    return description;
  } catch (const Error& error) {
    std::string why = error.what();
    const std::string line = cat("model '", source, "', line ");
    if (why.starts_with(line)) {
      const size_t end = why.find_first_not_of("0123456789", line.size());
      why = cat("model '", source, "'", end == std::string::npos ? "" : why.substr(end));
    }
    throw Error(why);
  }
}

zoo::ModelDescription described_in_file(const Workload& workload) {
  const fs::path path = fs::path(lab_home()) / "networks" / (workload.network + ".toml");
  const bool plain = !workload.network.empty() && workload.network.find('/') == std::string::npos &&
                     workload.network[0] != '.';
  std::error_code ignored;
  TD_CHECK(plain && fs::exists(path, ignored), "workload ", workload.name,
           ": network must be the name of a description in lab/networks; got '", workload.network,
           "'. lab/docs/workloads.md says how to write one.");
  return zoo::read_description(path.string());
}

}  // namespace

Json Network::json() const {
  Json calls = Json::array(), outputs = Json::array();
  for (const zoo::LayerCall& call : line.calls)
    calls.push_back({{"kind", call.layer.type},
                     {"name", call.layer.name},
                     {"in", call.in},
                     {"out", call.out},
                     {"shape", sizes(call.shape)},
                     {"settings", settings(call)},
                     {"parameters", shapes(call.parameters)},
                     {"buffers", shapes(call.buffers)}});
  for (const auto& output : line.outputs)
    outputs.push_back({{"name", output.name}, {"value", output.value}, {"shape", sizes(output.shape)}});
  return {{"name", line.name},
          {"inputs", inputs(line.inputs)},
          {"states", inputs(line.states)},
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
  zoo::ModelOptions options;
  const std::vector<int64_t>& sizes = input.empty() ? workload.input : input;
  if (!sizes.empty()) options.input = Dims(sizes);
  if (workload.classes() > 0) options.classes = workload.classes();
  Network network;
  network.description = zoo::with_options(
      workload.description.is_null() ? described_in_file(workload) : described_inside(workload), options);
  network.line = zoo::straight_line(network.description);
  network.targets = workload.targets;
  check_loss(workload, network.line);
  return network;
}

bool has_dropout(const Network& network) {
  // By their probability, as zoo::with_options finds them.
  return std::any_of(network.line.calls.begin(), network.line.calls.end(), [](const zoo::LayerCall& call) {
    return zoo::has_setting(zoo::layer_type(call.layer.type), "p");
  });
}

int64_t embedding_rows(const Network& network, const std::string& input) {
  for (const zoo::LayerCall& call : network.line.calls)
    if (call.layer.type == "embedding" && call.in[0] == input)
      for (const auto& [name, value] : call.layer.settings)
        if (name == "rows") return std::get<int64_t>(value);
  return 0;
}

}  // namespace tandem::lab
