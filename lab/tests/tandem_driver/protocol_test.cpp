// Tandem's driver and the lab's networks and workloads against the protocol's schema.
#include <functional>

#include "lab/src/driver/client.h"
#include "lab/src/inputs/pictures.h"
#include "lab/tests/driver/protocol_schema.h"
#include "lab/tests/tandem_driver/driver_talk.h"

namespace tandem::lab {
namespace {

using Names = std::set<std::string>;

/// The fields of objects as fields_fault names them, without those of other objects and those that end in *.
Names fields_of_objects(const std::vector<std::string>& objects) {
  Names out;
  for (const std::string& object : objects)
    for (const auto& [name, rule] : object_fields(object)->items())
      if (name.back() != '*') out.insert(object + "." + name);
  return out;
}

TEST(ProtocolOwn, EveryWorkloadIsSentByTheSchemaAndTheyUseAllOfIt) {
  Names seen;
  for (const std::string& name : workload_names()) {
    const Workload workload = load_workload(name);
    Preparation preparation;
    preparation.workload = workload.definition;
    preparation.network = load_network(workload).json();
    preparation.variant = "graph", preparation.phase = "fit";
    preparation.weights = {{"hash", 1}};
    preparation.data = json::object();
    if (workload.definition.contains("trim")) preparation.trim = workload.definition["trim"];
    json request = preparation.request();
    request.erase("call");
    EXPECT_EQ(fields_fault(request, fields_of("prepare", "request"), "prepare", &seen), "") << name;
  }
  for (const std::string& field : fields_of_objects({"workload", "optimizer", "target", "loss", "trim",
                                                     "network", "input", "state", "layer", "output"}))
    EXPECT_TRUE(seen.contains(field)) << field << " is in no workload";
}

TEST(ProtocolOwn, DataOfTheLabAreSentByTheSchema) {
  const SmallCell cell("photos_cnn", {3, 64, 64}, 16, 8);
  json data = cell.data.files;
  const std::string list =
      write_pictures(cell.folder / "pictures", cell.workload, 10, 5, cell.folder / "none");
  data["images"] = images_request(cell.workload, list);
  Names seen;
  EXPECT_EQ(type_fault(data, "data", "data", &seen), "");
  for (const std::string& field : fields_of_objects({"data", "images"}))
    EXPECT_TRUE(seen.contains(field)) << field;
}

/// Sends the requests and holds each answer to the schema; `seen` gets its fields.
void expect_answers(std::vector<json> requests, Names& seen) {
  const std::vector<json> answers = answers_to(requests);
  std::vector<std::string> calls;
  for (const json& request : requests) calls.push_back(request["call"]);
  size_t at = 0;
  for (json answer : answers) {
    ASSERT_LT(at, calls.size());
    const bool is_progress = answer.contains("progress");
    const std::string call = calls[at], part = is_progress ? "progress" : "answer";
    EXPECT_EQ(answer["id"], at + 1);
    if (is_progress) {
      answer = answer["progress"];
    } else {
      succeeded(answer);
      answer.erase("id"), answer.erase("ok");
      ++at;
    }
    EXPECT_EQ(fields_fault(answer, fields_of(call, part), call + "." + part, &seen), "");
  }
  EXPECT_EQ(at, calls.size());
}

TEST(ProtocolOwn, TandemsDriverAnswersByTheSchemaAndHasAllFields) {
  const auto run = [](const char* region) { return json{{"call", "run"}, {"region", region}, {"steps", 2}}; };
  const json check = {{"call", "check"}, {"steps", 1}}, fit = {{"call", "fit"}, {"epochs", 2}, {"cap_s", 60}},
             breakdown = {{"call", "breakdown"}, {"steps", 1}};
  const SmallCell cell("lenet", {1, 28, 28}, 16, 8);
  json fed = cell.prepare("eager"), more = cell.prepare("graph");
  fed["switches"]["feed"] = "loader";
  more["data"]["test_more"] = more["data"]["test"];
  Names seen;
  expect_answers({{{"call", "hello"}},
                  more,
                  check,
                  run("latency"),
                  run("throughput"),
                  fit,
                  breakdown,
                  cell.prepare("graph", "infer"),
                  {{"call", "check"}, {"steps", 0}},
                  run("latency"),
                  breakdown,
                  fed,
                  run("throughput"),
                  breakdown,
                  {{"call", "quit"}}},
                 seen);
  const SmallCell whole("deepspeech2_small", {}, 8, 4);  // of ctc: no metrics
  json without_metrics = whole.prepare("eager", "train", 4);
  without_metrics["data"]["test_more"] = without_metrics["data"]["test"];
  expect_answers({without_metrics, check, fit}, seen);
  const SmallCell pictures("photos_cnn", {3, 64, 64}, 16, 0);
  const std::string list =
      write_pictures(cell.folder / "pictures", pictures.workload, 10, 5, cell.folder / "none");
  json load = pictures.prepare("graph", "load", 4);
  load.erase("weights");
  load["data"] = {{"images", images_request(pictures.workload, list)}};
  expect_answers({load, {{"call", "check"}, {"steps", 0}}, run("latency"), run("throughput")}, seen);
  for (const auto& [call, parts] : protocol_schema()["calls"].items())
    for (const char* part : {"progress", "answer"})
      if (parts.contains(part))
        for (const auto& [name, rule] : parts[part].items()) {
          const std::string field = str(call, ".", part, ".", name);
          EXPECT_EQ(seen.contains(field), field != "breakdown.answer.copy_share")
              << field << ", of GPUs alone";
        }
}

/// What Tandem's driver makes of a request whose fields are absent, or of another type, one at a time.
struct Tried {
  Names fields;       // all of them
  Names passed_over;  // of another type, and it prepares the cell all the same
  Names not_needed;   // required by the schema, absent, and it prepares the cell all the same
  Names needed;       // may be absent by the schema, and it refuses the request
};

/// Tries the fields of the object at that place of the request, and of the objects in it.
void try_fields(const json& request, const std::string& object, const json& rules,
                const json::json_pointer& at, Tried& tried) {
  const auto refuses = [&](const json& changed, const std::string& name) {
    const json answer = answers_to({changed})[0];
    if (answer["ok"]) return false;
    const std::string message = answer["error"]["message"];
    EXPECT_TRUE(message.find(name) != std::string::npos || message.starts_with(object))
        << name << ": " << message;
    return true;
  };
  for (const auto& [name, rule] : rules.items()) {
    if (!request.at(at).contains(name)) continue;
    const std::string field = object + "." + name, type = rule["type"];
    if (!tried.fields.insert(field).second) continue;
    json changed = request;
    changed[at].erase(name);
    const bool is_required = rule.value("required", true);
    if (refuses(changed, name) != is_required) (is_required ? tried.not_needed : tried.needed).insert(field);
    changed[at][name] = other_than(type);
    if (!refuses(changed, name)) tried.passed_over.insert(field);
    json::json_pointer inside = at / name;
    std::string inner = type;
    for (; !inner_type(inner).empty() && !request.at(inside).empty(); inner = inner_type(inner))
      inside = is_list(inner) ? inside / 0 : inside / request.at(inside).begin().key();
    if (const json* next = object_fields(inner)) try_fields(request, inner, *next, inside, tried);
  }
}

TEST(ProtocolOwn, TandemsDriverReadsPrepareByTheSchema) {
  const SmallCell cell("lenet", {1, 28, 28}, 8, 8);
  json request = cell.prepare("eager");
  request["definition"] = "description";
  Tried tried;
  try_fields(request, "prepare", fields_of("prepare", "request"), json::json_pointer(""), tried);
  // Names that it makes itself, and sizes that it works out again; the zoo's classes keep their own states.
  EXPECT_EQ(tried.passed_over,
            (Names{"layer.buffers", "layer.shape", "network.states", "output.shape", "workload.name"}));
  EXPECT_EQ(tried.not_needed,
            (Names{"layer.buffers", "layer.name", "layer.shape", "output.shape", "workload.name"}));
  // This cell is of the track equal, in phase train, with a cross-entropy, and its weights are those of the hash.
  EXPECT_EQ(tried.needed, (Names{"data.train", "loss.output", "loss.target", "prepare.weights",
                                 "target.below", "weights.hash"}));
}

}  // namespace
}  // namespace tandem::lab
