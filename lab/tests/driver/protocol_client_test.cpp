// The lab's side of the protocol against its schema: what the client writes, and what it makes of each field of an answer.
#include <gtest/gtest.h>

#include <functional>

#include "lab/src/driver/client.h"
#include "lab/tests/driver/protocol_schema.h"

namespace tandem::lab {
namespace {

using nlohmann::json;
using Names = std::set<std::string>;

/// One call of the client, and an answer that it accepts. Where an answer depends on what was asked, a call stands here twice.
struct Case {
  std::string call;
  std::function<void(Client&)> ask;
  json answer;
  Names asks_for;  // fields that the schema lets be absent, and this call needs
  Names takes;     // all fields that are read; others go into the record as they are, or are of another call
};

Preparation preparation() {
  Preparation out;
  out.workload = example_of("workload");
  out.network = example_of("network");
  out.variant = "eager", out.phase = "train";
  out.weights = example_of("weights"), out.data = example_of("data");
  out.trim = {{"n", example_of("trim")}};
  out.switches = {{"conv", "fixed"}};
  return out;
}

json answer_of(const std::string& call, const json& changes = json::object()) {
  json out = example_of_fields(fields_of(call, "answer"));
  out.update(changes);
  return out;
}

std::vector<Case> cases() {
  const auto run = [](Region region) { return [region](Client& client) { client.run(region, 1, 5); }; };
  const Names of_every_run = {"loss", "updates", "output_sum", "samples_sum", "wait_ns"};
  Names latency = of_every_run, throughput = of_every_run;
  latency.insert("steps");
  throughput.insert({"begin", "end", "count"});
  return {
      {"hello",
       [](Client& client) { client.hello(); },
       answer_of("hello", {{"protocol", protocol_schema()["protocol"]}}),
       {},
       {"protocol", "framework", "version", "variants", "devices", "kinds", "losses", "listings", "phases",
        "precisions", "switches", "trims"}},
      {"prepare",
       [](Client& client) { client.prepare(preparation()); },
       answer_of("prepare", {{"obeyed", {{"conv", "fixed"}}}}),
       {},
       {"parameters", "prepare_ns", "obeyed", "notes"}},
      {"check",
       [](Client& client) { client.check(1); },
       answer_of("check"),
       {"loss", "gradients", "losses"},
       {"parameters", "outputs", "loss", "gradients", "losses"}},
      {"check", [](Client& client) { client.check(0); }, answer_of("check"), {}, {"parameters", "outputs"}},
      {"run", run(Region::latency), answer_of("run", {{"steps", {{1, 2}}}}), {"steps"}, latency},
      {"run", run(Region::throughput), answer_of("run"), {"begin", "end", "count"}, throughput},
      {"fit",
       [](Client& client) { client.fit(1, 5); },
       answer_of("fit"),
       {},
       {"epochs", "capped", "confusion", "tests"}},
      {"breakdown",
       [](Client& client) { client.breakdown(1); },
       answer_of("breakdown"),
       {},
       {"kernel_share", "copy_share", "launches", "nodes_before", "nodes_after"}},
  };
}

/// Asks a driver of a few lines of shell, which writes the request down and answers with these lines; -> why the call failed.
std::string failure_of(const Case& one, const json& answer, json progress, json* request = nullptr) {
  const testing::TempFolder folder;
  json line = answer;
  line["id"] = 1, line["ok"] = true;
  std::string lines = line.dump() + "\n";
  if (one.call == "fit") lines = json{{"id", 1}, {"progress", std::move(progress)}}.dump() + "\n" + lines;
  testing::write_text(folder / "answer", lines);
  const std::string script = "read -r line || exit 0; printf '%s' \"$line\" >'" + (folder / "request") +
                             "'; cat '" + (folder / "answer") + "'; cat >/dev/null";
  std::string why;
  {
    Client client(ProcessOptions{.command = {"sh", "-c", script}});
    try {
      one.ask(client);
    } catch (const DriverFailure& failure) {
      EXPECT_EQ(to_string(failure.status), "garbage") << failure.what();
      why = failure.what();
    }
  }
  if (request) *request = json::parse(testing::read_text(folder / "request"));
  return why;
}

json progress() { return example_of_fields(fields_of("fit", "progress")); }

TEST(ProtocolClient, WritesRequestsOfTheSchemaWithEveryField) {
  for (const Case& one : cases()) {
    json request;
    EXPECT_EQ(failure_of(one, one.answer, progress(), &request), "") << one.call;
    EXPECT_EQ(request["call"], one.call);
    EXPECT_EQ(request["id"], 1);
    request.erase("call"), request.erase("id");
    Names written, wanted;
    EXPECT_EQ(fields_fault(request, fields_of(one.call, "request"), one.call), "");
    for (const auto& [name, value] : request.items()) written.insert(name);
    for (const auto& [name, rule] : fields_of(one.call, "request").items()) wanted.insert(name);
    EXPECT_EQ(written, wanted) << one.call;
  }
}

/// Tries each field of an object: absent, null and of another type. `call` gives why the client refuses the object.
void try_fields(const std::string& where, const json& whole, const json& rules, const Names& takes,
                const Names& needs, const std::function<std::string(const json&)>& call) {
  for (const auto& [name, rule] : rules.items()) {
    SCOPED_TRACE(where + "." + name);
    json changed = whole;
    changed.erase(name);
    EXPECT_EQ(call(changed).empty(), !needs.contains(name)) << call(changed);
    if (rule.value("null", false)) {
      changed[name] = nullptr;
      EXPECT_EQ(call(changed), "");
    }
    changed[name] = other_than(rule["type"]);
    const std::string why = call(changed);
    EXPECT_EQ(why.find("'" + name + "'") != std::string::npos, takes.contains(name)) << why;
  }
}

TEST(ProtocolClient, ReadsAnswersByTheSchema) {
  for (const Case& one : cases()) {
    Names needs = one.asks_for;
    for (const std::string& name : one.takes) {
      const json& rule = fields_of(one.call, "answer").at(name);
      // Where null is right, the client takes an absent field for it.
      if (rule.value("required", true) && !rule.value("null", false)) needs.insert(name);
    }
    try_fields(one.call, one.answer, fields_of(one.call, "answer"), one.takes, needs,
               [&](const json& answer) { return failure_of(one, answer, progress()); });
  }
}

TEST(ProtocolClient, ReadsProgressByTheSchema) {
  const std::vector<Case> all = cases();
  const auto fit = std::find_if(all.begin(), all.end(), [](const Case& one) { return one.call == "fit"; });
  const Names times = {"epoch", "begin", "train_end", "end", "loss"};
  Names takes = times;
  takes.insert({"metrics", "test_loss", "test_metrics"});
  try_fields("progress", progress(), fields_of("fit", "progress"), takes, times,
             [&](const json& line) { return failure_of(*fit, fit->answer, line); });
}

TEST(ProtocolClient, ReadsErrorsByTheSchema) {
  for (const json& kind : object_fields("error")->at("kind").at("one_of")) {
    const testing::TempFolder folder;
    const json line = {
        {"id", 1}, {"ok", false}, {"error", {{"kind", kind}, {"what", "conv"}, {"message", "no"}}}};
    EXPECT_EQ(fields_fault(line["error"], *object_fields("error"), "error"), "");
    testing::write_text(folder / "answer", line.dump() + "\n");
    Client client(ProcessOptions{
        .command = {"sh", "-c", "read line; cat '" + (folder / "answer") + "'; cat >/dev/null"}});
    try {
      client.hello();
      ADD_FAILURE() << kind;
    } catch (const DriverFailure& failure) {
      EXPECT_EQ(to_string(failure.status), kind);
    }
  }
}

}  // namespace
}  // namespace tandem::lab
