// Reading and checking `prepare`.
#include "lab/src/tandem_driver/request.h"

#include <algorithm>
#include <set>

#include "lab/src/tandem_driver/feed.h"

namespace tandem::lab::tandem_driver {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The value of a field. Throws Declined if it is not one of `values`.
std::string offered(const Json& request, const std::string& name, const std::vector<std::string>& values) {
  const std::string value = text_field(request, name);
  if (std::find(values.begin(), values.end(), value) == values.end())
    throw Declined(name,
                   str(name, ": must be one of ", listed(values), "; got '", io::one_line(value, 80), "'."));
  return value;
}

LossTerm read_term(const Json& loss, const std::string& path, const std::vector<std::string>& kinds,
                   const Objective& objective, const zoo::StraightLine& line) {
  LossTerm out;
  out.kind = text_field(loss, "kind", path + ".kind");
  if (std::find(kinds.begin(), kinds.end(), out.kind) == kinds.end())
    throw Declined("loss",
                   str("loss: must be one of ", listed(kinds), "; got '", io::one_line(out.kind, 80), "'."));
  const std::string output = text_field(loss, "output", path + ".output");
  const auto at = std::find_if(line.outputs.begin(), line.outputs.end(),
                               [&](const auto& each) { return each.name == output; });
  TD_CHECK(at != line.outputs.end(), path, ".output: must be an output of the network; got '",
           io::one_line(output, 80), "'.");
  out.output = static_cast<size_t>(at - line.outputs.begin());
  out.target = text_field(loss, "target", path + ".target");
  const auto named = [](const std::vector<zoo::InputDescription>& all, const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  };
  TD_CHECK(named(objective.targets, out.target), path, ".target: must be one of workload.targets; got '",
           io::one_line(out.target, 80), "'.");
  if (out.kind == "cross_entropy" || out.kind == "ctc") {
    const auto below = objective.below.find(out.target);
    TD_CHECK(below != objective.below.end(), "workload.targets.", out.target,
             ".below: must be an integer from 1 to 16777216; got nothing.");
    TD_CHECK(at->shape.rank() >= 1 && at->shape.back() == below->second, path,
             ".output: must have the target's classes, ", below->second, ", on its last axis; got ",
             at->shape, ".");
  }
  if (loss.contains("lengths")) out.lengths = text_field(loss, "lengths", path + ".lengths");
  TD_CHECK(out.lengths.empty() || named(line.inputs, out.lengths) || named(objective.targets, out.lengths),
           path, ".lengths: must be an input of the network or a target; got '",
           io::one_line(out.lengths, 80), "'.");
  out.stride = integer_field(loss, "stride", 1, 1024, 1, path + ".stride");
  TD_CHECK(out.kind != "ctc" || (at->shape.rank() == 2 && !out.lengths.empty()), path,
           ": ctc takes an output of steps and classes, and lengths; got ", at->shape,
           out.lengths.empty() ? " without lengths." : ".");
  return out;
}

Objective read_objective(const Json& workload, const zoo::StraightLine& line) {
  Objective out;
  const Json& targets = object_field(workload, "targets", "workload.targets");
  for (const auto& [name, rule] : targets.items()) {
    const std::string path = "workload.targets." + name;
    out.targets.push_back(
        {name, sizes_field(rule, "shape", path + ".shape"), type_field(rule, path + ".type")});
    if (out.targets.back().dtype == DType::i64 && rule.contains("below"))
      out.below[name] = integer_field(rule, "below", 1, 1 << 24, {}, path + ".below");
  }
  const Json& loss = object_field(workload, "loss", "workload.loss");
  out.is_sum = loss.value("kind", Json()) == "sum";
  if (out.is_sum) {
    const Json& terms = list_field(loss, "terms", "workload.loss.terms");
    TD_CHECK(!terms.empty() && terms.size() <= 64, "workload.loss.terms: must be 1 to 64 losses; got ",
             terms.size(), ".");
    const std::vector<std::string> kinds = {"cross_entropy", "mse", "mae", "bce"};
    for (size_t i = 0; i < terms.size(); ++i) {
      const std::string path = str("workload.loss.terms[", i, "]");
      TD_CHECK(terms[i].is_object(), path, ": must be an object; got ", terms[i].type_name(), ".");
      out.terms.push_back(read_term(terms[i], path, kinds, out, line));
    }
  } else {
    out.terms.push_back(read_term(loss, "workload.loss", loss_names(), out, line));
    if (out.first().kind == "cross_entropy") out.classes = out.below.at(out.first().target);
  }
  const Json metrics = workload.value("metrics", Json::array());
  TD_CHECK(metrics.is_array(), "workload.metrics: must be a list; got ", metrics.type_name(), ".");
  for (const Json& name : metrics) {
    const bool known =
        name.is_string() && out.has_metrics() &&
        (out.classes > 0 ? name == "accuracy" || name == "perplexity" : name == "mse" || name == "mae");
    if (!known)
      throw Declined("metrics", str("metrics: must be accuracy or perplexity of a cross-entropy, mse or mae "
                                    "of others, and none of ctc and sum; got ",
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
      out[field.name] = text_field(files, field.name, str("data.", part, ".", field.name));
  return out;
}

/// Reads `trim`. Each length must be an input or a target of whole numbers without axes, and must trim fields that have axes.
std::vector<TrimRule> read_trim(const Json& request, const CellRequest& cell) {
  std::vector<TrimRule> rules;
  if (!request.contains("trim") || request["trim"].is_null()) return rules;
  std::map<std::string, const zoo::InputDescription*> fields;
  for (const auto* all : {&cell.line.inputs, &cell.objective.targets})
    for (const zoo::InputDescription& field : *all) fields[field.name] = &field;
  std::set<std::string> taken;
  for (const auto& [length, given] : object_field(request, "trim").items()) {
    const std::string path = "trim." + io::one_line(length, 80);
    const auto counted = fields.find(length);
    TD_CHECK(
        counted != fields.end() && counted->second->dtype == DType::i64 && counted->second->shape.rank() == 0,
        path, ": must be an input or a target of whole numbers without axes; got another name.");
    TrimRule rule{length, {}, integer_field(given, "multiple", 1, 1 << 24, 1, path + ".multiple")};
    int64_t places = 0;
    for (const Json& name : list_field(given, "of", path + ".of")) {
      const auto at = name.is_string() ? fields.find(name.get<std::string>()) : fields.end();
      TD_CHECK(at != fields.end() && at->second->shape.rank() >= 1 &&
                   (places == 0 || at->second->shape[0] == places) && taken.insert(at->first).second,
               path, ".of: must be inputs and targets of as many places each, and each once; got ",
               io::one_line(given["of"].dump(), 80), ".");
      places = at->second->shape[0];
      rule.of.push_back(at->first);
    }
    TD_CHECK(!rule.of.empty(), path, ".of: must name what the length trims; got nothing.");
    rules.push_back(rule);
  }
  for (const LossTerm& term : cell.objective.terms)
    for (const TrimRule& rule : rules)
      TD_CHECK(std::find(rule.of.begin(), rule.of.end(), term.target) == rule.of.end() ||
                   (term.lengths == rule.length && term.kind != "ctc"),
               "trim.", rule.length,
               ".of: a target of the loss is trimmed by the lengths of its term alone; got ", term.target,
               ".");
  return rules;
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

/// Whether the network has an LSTM layer: a call of that kind or, in a whole model, a recurrent weight with four gates. The cell of
/// a decoder's loop is no layer: its weights have no layer number in their names.
bool has_lstm(const CellRequest& cell) {
  const auto is_lstm = [](const auto& call) { return call.layer.type == "lstm"; };
  const auto is_weight = [](const auto& row) {
    const auto& [name, shape] = row;
    return name.ends_with("weight_hh_l0") && shape.size() == 2 && shape[0] == 4 * shape[1];
  };
  return std::any_of(cell.line.calls.begin(), cell.line.calls.end(), is_lstm) ||
         (cell.is_whole && std::any_of(cell.parameters.begin(), cell.parameters.end(), is_weight));
}

void read_switches(const Json& request, CellRequest& cell) {
  const Json switches = request.value("switches", Json::object());
  TD_CHECK(switches.is_object() || switches.is_null(), "switches: must be an object; got ",
           switches.type_name(), ".");
  const auto known = known_switches();
  std::map<std::string, bool> on;  // whether each pass runs, by name
  const auto whole = switches.is_object() ? switches.find("graph") : switches.end();
  for (const std::string& pass : all_stages())
    on[pass] = !switches.is_object() || whole == switches.end() || *whole != "off";
  for (const auto& [name, value] : switches.items()) {
    const auto row = known.find(name);
    if (row == known.end()) {
      std::vector<std::string> names;
      for (const auto& [each, values] : known) names.push_back(each);
      throw Declined(name,
                     str(io::one_line(name, 80), ": Tandem has no such switch; it has ", listed(names), "."));
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (std::find(row->second.begin(), row->second.end(), text) == row->second.end())
      throw Declined(
          name, str(name, ": must be one of ", listed(row->second), "; got '", io::one_line(text, 80), "'."));
    if (cell.loads)
      throw Declined(name, str(name, ": phase load has no network, and nothing to turn; got '", text, "'."));
    if (name == "feed" && text == "loader" && !cell.trains)
      throw Declined(name, "feed: the loader feeds training steps; phase infer has resident batches alone.");
    if (name == "lstm" && !has_lstm(cell))
      throw Declined(name, "lstm: the network has no such layer, and nothing to turn.");
    if (name.starts_with("graph")) {
      if (cell.engine == Engine::eager)
        throw Declined(name, str(name, ": the eager variant has no graph. Ask the variant graph."));
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
  // Read as int64_t, a number of 2^63 or more would be negative.
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
  static const std::vector<std::string> names = {"cross_entropy", "mse", "mae", "bce", "ctc", "sum"};
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
    for (int i = 0; i < count; ++i) names.push_back(str("cuda:", i));
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
    throw Declined("precision", str("precision: phase load makes samples of f32; got ", cell.precision, "."));
  cell.batch = integer_field(request, "batch", 1, 1 << 24);
  cell.threads = integer_field(request, "threads", 1, 4096, 1);
  cell.seed = static_cast<uint64_t>(integer_field(request, "seed", 0, kMany, 0));
  cell.dropout = flag_field(request, "dropout", true);
  if (cell.trains) {
    cell.optimizer = object_field(workload, "optimizer", "workload.optimizer");
    text_field(cell.optimizer, "name", "workload.optimizer.name");
  }
  cell.trim = read_trim(request, cell);
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
  if (!cell.trim.empty() && cell.takes_from_loader())
    throw Declined(
        "trim", "trim: batches of the loader are whole; got lengths to trim them by. Take feed = resident.");
  return cell;
}

}  // namespace tandem::lab::tandem_driver
