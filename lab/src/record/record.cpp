// Records as JSON. What is empty is left out, so that a line of runs.jsonl holds only what the run has; numbers that
// JSON does not know (a loss that diverged) are the texts "NaN", "Infinity" and "-Infinity".
#include "lab/src/record/record.h"

#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

constexpr std::pair<Status, const char*> kStatuses[] = {
    {Status::ok, "ok"},
    {Status::absent, "absent"},
    {Status::declined, "declined"},
    {Status::not_same_model, "not_same_model"},
    {Status::dishonest, "dishonest"},
    {Status::disturbed, "disturbed"},
    {Status::out_of_memory, "out_of_memory"},
    {Status::crashed, "crashed"},
    {Status::hung, "hung"},
    {Status::garbage, "garbage"},
    {Status::failed, "failed"},
};

Json number_to_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json numbers_to_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (double value : values) list.push_back(number_to_json(value));
  return list;
}

[[noreturn]] void refuse(const std::string& name, const char* rule, const Json& got) {
  const std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  throw Error(str("run record: '", name, "' must be ", rule, "; got ", io::one_line(text, 120),
                  ". Fix the record or remove its line."));
}

/// The member of that name, or null where it is absent.
const Json* member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

double number(const Json& json, const std::string& name) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  refuse(name, "a number", json);
}

int64_t integer(const Json& json, const std::string& name) {
  const bool fits =
      json.is_number_unsigned() ? json.get<uint64_t>() <= uint64_t{INT64_MAX} : json.is_number_integer();
  if (!fits) refuse(name, "a whole number of 64 bits", json);
  return json.get<int64_t>();
}

std::string text(const Json& json, const std::string& name) {
  if (!json.is_string()) refuse(name, "a text", json);
  return json.get<std::string>();
}

const Json& list(const Json& json, const std::string& name) {
  if (!json.is_array()) refuse(name, "a list", json);
  return json;
}

const Json& object(const Json& json, const std::string& name) {
  if (!json.is_object()) refuse(name, "an object", json);
  return json;
}

std::vector<double> numbers(const Json& json, const std::string& name) {
  std::vector<double> values;
  values.reserve(list(json, name).size());
  for (const Json& value : json) values.push_back(number(value, name));
  return values;
}

std::vector<int64_t> integers(const Json& json, const std::string& name) {
  std::vector<int64_t> values;
  values.reserve(list(json, name).size());
  for (const Json& value : json) values.push_back(integer(value, name));
  return values;
}

std::map<std::string, std::string> texts(const Json& json, const std::string& name) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : object(json, name).items()) values[key] = text(value, name + "." + key);
  return values;
}

std::map<std::string, double> named_numbers(const Json& json, const std::string& name) {
  std::map<std::string, double> values;
  for (const auto& [key, value] : object(json, name).items()) values[key] = number(value, name + "." + key);
  return values;
}

/// Reads the members of one object: each call takes one by name and leaves the default where it is absent.
class Members {
 public:
  Members(const Json& json, std::string prefix) : json_(json), prefix_(std::move(prefix)) {}

  void take(const char* name, std::string& to) const { get(name, to, text); }
  void take(const char* name, int64_t& to) const { get(name, to, integer); }
  void take(const char* name, double& to) const { get(name, to, number); }
  void take(const char* name, std::vector<double>& to) const { get(name, to, numbers); }
  void take(const char* name, std::vector<int64_t>& to) const { get(name, to, integers); }
  void take(const char* name, std::map<std::string, std::string>& to) const { get(name, to, texts); }
  void take(const char* name, std::map<std::string, double>& to) const { get(name, to, named_numbers); }
  void take(const char* name, std::optional<double>& to) const {
    if (const Json* value = member(json_, name); value && !value->is_null())
      to = number(*value, prefix_ + name);
  }
  void take(const char* name, Json& to) const {
    if (const Json* value = member(json_, name)) to = *value;
  }
  void take(const char* name, uint64_t& to) const {
    const Json* value = member(json_, name);
    if (!value) return;
    if (!value->is_number_unsigned()) refuse(prefix_ + name, "a whole number that is not negative", *value);
    to = value->get<uint64_t>();
  }
  /// A text that must be there.
  std::string need(const char* name) const {
    const Json* value = member(json_, name);
    TD_CHECK(value, "run record: it must have '", prefix_, name,
             "'; got none. Fix the record or remove its line.");
    return text(*value, prefix_ + name);
  }

 private:
  template <class Value, class Read>
  void get(const char* name, Value& to, Read read) const {
    if (const Json* value = member(json_, name)) to = read(*value, prefix_ + name);
  }

  const Json& json_;
  std::string prefix_;
};

Json condition_to_json(const Condition& condition) {
  Json json = {{"workload", condition.workload},   {"phase", condition.phase},
               {"track", condition.track},         {"device", condition.device},
               {"precision", condition.precision}, {"batch", condition.batch}};
  if (!condition.input.empty()) json["input"] = condition.input;
  if (!condition.optimizer.empty()) json["optimizer"] = condition.optimizer;
  if (!condition.switches.empty()) json["switches"] = condition.switches;
  return json;
}

Condition condition_from_json(const Json& json) {
  const Members members(object(json, "condition"), "condition.");
  Condition condition;
  condition.workload = members.need("workload");
  condition.phase = members.need("phase");
  members.take("track", condition.track);
  members.take("device", condition.device);
  members.take("precision", condition.precision);
  members.take("batch", condition.batch);
  members.take("input", condition.input);
  members.take("optimizer", condition.optimizer);
  members.take("switches", condition.switches);
  return condition;
}

Json epoch_to_json(const Epoch& epoch) {
  Json json = {{"epoch", epoch.epoch},
               {"train_s", number_to_json(epoch.train_s)},
               {"test_s", number_to_json(epoch.test_s)},
               {"loss", number_to_json(epoch.loss)}};
  if (epoch.test_loss) json["test_loss"] = number_to_json(*epoch.test_loss);
  if (epoch.rss_mib) json["rss_mib"] = number_to_json(*epoch.rss_mib);
  for (const auto& [key, values] :
       {std::pair{"metrics", &epoch.metrics}, {"test_metrics", &epoch.test_metrics}})
    for (const auto& [name, value] : *values) json[key][name] = number_to_json(value);
  return json;
}

Epoch epoch_from_json(const Json& json) {
  const Members members(object(json, "epochs"), "epochs.");
  Epoch epoch;
  members.take("epoch", epoch.epoch);
  members.take("train_s", epoch.train_s);
  members.take("test_s", epoch.test_s);
  members.take("loss", epoch.loss);
  members.take("metrics", epoch.metrics);
  members.take("test_loss", epoch.test_loss);
  members.take("test_metrics", epoch.test_metrics);
  members.take("rss_mib", epoch.rss_mib);
  return epoch;
}

Trace trace_from_json(const Json& json) {
  const Members members(object(json, "traces"), "traces.");
  Trace trace;
  members.take("metric", trace.metric);
  members.take("unit", trace.unit);
  members.take("source", trace.source);
  members.take("seconds", trace.seconds);
  members.take("values", trace.values);
  TD_CHECK(trace.seconds.size() == trace.values.size(),
           "run record: a trace must have as many seconds as values; got ", trace.seconds.size(), " and ",
           trace.values.size(), " in '", io::one_line(trace.metric, 80),
           "'. Fix the record or remove its line.");
  return trace;
}

}  // namespace

std::string Condition::text() const {
  std::string text = str(workload, " ", phase, ", batch ", batch, ", ", device, ", ", precision);
  if (!input.empty()) {
    text += ", input ";
    for (size_t i = 0; i < input.size(); ++i) text += str(i ? "x" : "", input[i]);
  }
  if (!optimizer.empty()) text += ", " + optimizer;
  if (track != "equal") text += ", " + (track == "as_shipped" ? std::string("as shipped") : track);
  for (const auto& [name, value] : switches) text += ", " + name + "=" + value;
  return text;
}

std::string to_string(Status status) {
  for (const auto& [value, name] : kStatuses)
    if (value == status) return name;
  throw InternalError(str("no name for status ", static_cast<int>(status)));
}

Status parse_status(const std::string& text) {
  std::string known;
  for (const auto& [value, name] : kStatuses) {
    if (text == name) return value;
    known += str(known.empty() ? "" : ", ", name);
  }
  throw Error(str("run record: 'status' must be one of ", known, "; got '", io::one_line(text, 80),
                  "'. Fix the record or remove its line."));
}

bool is_real_data(const std::string& name) { return !name.empty() && !name.starts_with("synthetic"); }

Json to_json(const Run& run) {
  Json json = {{"part", run.part},
               {"system", run.system},
               {"condition", condition_to_json(run.condition)},
               {"block", run.block},
               {"order", run.order},
               {"seed", run.seed},
               {"status", to_string(run.status)}};
  if (!run.control.empty()) json["control"] = run.control;
  if (!run.data.empty()) json["data"] = run.data;
  if (!run.started.empty()) json["started"] = run.started;
  if (!run.why.empty()) json["why"] = run.why;
  if (!run.last_words.empty()) json["last_words"] = run.last_words;
  if (!run.disturbed.empty()) json["disturbed"] = run.disturbed;
  for (const auto& [name, value] : run.metrics) json["metrics"][name] = number_to_json(value);
  if (!run.unavailable.empty()) json["unavailable"] = run.unavailable;
  if (!run.sources.empty()) json["sources"] = run.sources;
  if (!run.notes.empty()) json["notes"] = run.notes;
  if (!run.step_s.empty()) json["step_s"] = numbers_to_json(run.step_s);
  for (const Epoch& epoch : run.epochs) json["epochs"].push_back(epoch_to_json(epoch));
  if (!run.confusion.empty()) json["confusion"] = run.confusion;
  for (const Trace& trace : run.traces)
    json["traces"].push_back({{"metric", trace.metric},
                              {"unit", trace.unit},
                              {"source", trace.source},
                              {"seconds", numbers_to_json(trace.seconds)},
                              {"values", numbers_to_json(trace.values)}});
  if (!run.breakdown.is_null()) json["breakdown"] = run.breakdown;
  if (!run.gate.is_null()) json["gate"] = run.gate;
  if (!run.hello.is_null()) json["hello"] = run.hello;
  return json;
}

Run run_from_json(const Json& json) {
  TD_CHECK(json.is_object(), "run record: it must be an object; got a JSON ", json.type_name(),
           ". Fix the record or remove its line.");
  const Members members(json, "");
  Run run;
  run.part = members.need("part");
  run.system = members.need("system");
  run.status = parse_status(members.need("status"));
  const Json* condition = member(json, "condition");
  TD_CHECK(condition, "run record: it must have 'condition'; got none. Fix the record or remove its line.");
  run.condition = condition_from_json(*condition);
  members.take("control", run.control);
  members.take("block", run.block);
  members.take("order", run.order);
  members.take("seed", run.seed);
  members.take("started", run.started);
  members.take("why", run.why);
  members.take("last_words", run.last_words);
  members.take("disturbed", run.disturbed);
  members.take("metrics", run.metrics);
  members.take("unavailable", run.unavailable);
  members.take("sources", run.sources);
  if (const Json* notes = member(json, "notes"))
    for (const Json& note : list(*notes, "notes")) run.notes.push_back(text(note, "notes"));
  members.take("step_s", run.step_s);
  if (const Json* epochs = member(json, "epochs"))
    for (const Json& epoch : list(*epochs, "epochs")) run.epochs.push_back(epoch_from_json(epoch));
  if (const Json* confusion = member(json, "confusion"))
    for (const Json& row : list(*confusion, "confusion")) run.confusion.push_back(integers(row, "confusion"));
  if (const Json* traces = member(json, "traces"))
    for (const Json& trace : list(*traces, "traces")) run.traces.push_back(trace_from_json(trace));
  members.take("breakdown", run.breakdown);
  members.take("gate", run.gate);
  members.take("hello", run.hello);
  members.take("data", run.data);
  // Where older records have it.
  if (const Json* data = run.hello.is_object() ? member(run.hello, "data") : nullptr;
      run.data.empty() && data && data->is_string())
    run.data = data->get<std::string>();
  return run;
}

}  // namespace tandem::lab
