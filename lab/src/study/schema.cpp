// Reading of a study's file: which keys there are, and what each may hold.
#include "lab/src/study/schema.h"

#include <algorithm>
#include <set>

#include "lab/src/files/toml.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

EffortChange read_effort(Table& table) {
  EffortChange change;
  // Each is asked for, there or not, so that a message about an unknown key can list them.
  const auto whole = [&](const char* key, Whole range, std::optional<int64_t>& to) {
    if (const int64_t value = table.integer(key, range.least, range); table.has(key)) to = value;
  };
  const auto seconds = [&](const char* key, std::optional<double>& to) {
    if (const double value = table.number(key, 0, limits::seconds); table.has(key)) to = value;
  };
  whole("runs", limits::runs, change.runs);
  whole("warmup_steps", limits::warmup_steps, change.warmup_steps);
  whole("timed_steps", limits::timed_steps, change.timed_steps);
  whole("epochs", limits::epochs, change.epochs);
  seconds("timed_s", change.timed_s);
  seconds("least_s", change.least_s);
  seconds("cap_s", change.cap_s);
  if (const bool value = table.flag("breakdown", false); table.has("breakdown")) change.breakdown = value;
  return change;
}

EffortChange read_effort_table(const std::string& file, const std::string& where, const Json& json) {
  Table table(file, where, json);
  const EffortChange change = read_effort(table);
  table.finish();
  return change;
}

void check_devices(const Table& table, const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    const bool cuda = device.rfind("cuda:", 0) == 0 && device.size() > 5 &&
                      device.find_first_not_of("0123456789-", 5) == std::string::npos;
    if (device != "cpu" && device != "auto" && !cuda) {
      table.refuse(
          "device",
          "name devices such as \"cpu\", \"cuda:0\", \"auto\" or, for several at once, \"cuda:0-3\"");
    }
  }
}

/// The lists that a part multiplies; keys that are absent leave their list empty.
Axes read_axes(Table& table) {
  Axes axes;
  axes.frameworks = table.texts("frameworks");
  axes.workloads = table.texts("workloads");
  axes.device = table.texts("device");
  check_devices(table, axes.device);
  axes.precision = table.texts("precision");
  table.require("precision", axes.precision, {"f32", "tf32", "bf16", "f16", "f64"});
  axes.batch = table.integers("batch", limits::batch);

  const std::string input_rule = "be a list of sizes of one sample, such as [[3, 32, 32], [3, 224, 224]]";
  const Json inputs = table.any("input");
  if (!inputs.is_null() && (!inputs.is_array() || inputs.empty())) table.refuse("input", input_rule);
  for (const Json& input : inputs) {
    if (!input.is_array() || input.empty()) table.refuse("input", input_rule);
    for (const Json& size : input) {
      if (!is_within(size, limits::size))
        table.refuse("input", str(input_rule, ", each from ", limits::size.least, " to ", limits::size.most));
    }
    axes.input.push_back(input.get<std::vector<int64_t>>());
    check_sample(table, "input", axes.input.back());
  }

  const std::string optimizer_rule =
      "be a list of names or of tables such as { name = \"adam\", lr = 0.001 }";
  const Json optimizers = table.any("optimizer");
  if (!optimizers.is_null() && (!optimizers.is_array() || optimizers.empty()))
    table.refuse("optimizer", optimizer_rule);
  for (const Json& optimizer : optimizers) {
    const bool named = optimizer.is_object() && optimizer.contains("name") && optimizer["name"].is_string();
    if (!optimizer.is_string() && !named) table.refuse("optimizer", optimizer_rule);
    if (named) check_optimizer(table, "optimizer", optimizer);
    axes.optimizer.push_back(optimizer);
  }

  const std::string switch_rule = "be a list of tables of texts, such as [{}, { conv = \"profile\" }]";
  const Json switches = table.any("switches");
  if (!switches.is_null() && (!switches.is_array() || switches.empty()))
    table.refuse("switches", switch_rule);
  for (const Json& entry : switches) {
    if (!entry.is_object()) table.refuse("switches", switch_rule);
    std::map<std::string, std::string> map;
    for (const auto& [key, value] : entry.items()) {
      if (key.empty() || !value.is_string()) table.refuse("switches", switch_rule);
      map[key] = value.get<std::string>();
      if (key == kStorage && value != "disk" && value != "memory")
        table.refuse("switches", "have \"disk\" or \"memory\" as storage");
    }
    axes.switches.push_back(std::move(map));
  }
  return axes;
}

/// The switches that are about where samples come from: only where the phase takes them from there.
void check_feed(const Table& table, const std::string& phase, const Axes& axes) {
  for (const auto& turned : axes.switches) {
    const auto feed = turned.find("feed");
    if (feed != turned.end() && phase != "train") table.refuse("switches", "have feed in phase train alone");
    if (turned.contains(kStorage) && phase != "load" && (feed == turned.end() || feed->second != "loader"))
      table.refuse("switches", "have storage in phase load, or beside feed = \"loader\", alone");
  }
}

Figure read_figure(const std::string& file, const std::string& where, const Json& json,
                   const std::string& phase) {
  Table table(file, where, json);
  Figure figure;
  figure.kind = table.choice(
      "kind", "", {"box", "bars", "lines", "convergence", "timeline", "table", "confusion", "scatter"});
  figure.counterpart = table.text("counterpart", "");
  figure.title = table.text("title");
  figure.note = table.text("note", "");
  figure.metrics = table.texts("metrics");
  figure.x = table.choice(
      "x", "", {"", "batch", "input", "precision", "device", "optimizer", "switches", "workload", "system"});
  table.finish();
  const bool of_epochs = figure.kind == "convergence" || figure.kind == "confusion";
  if (of_epochs && phase != "fit")
    table.refuse("kind", "be another one in a part whose phase is not \"fit\"");
  if (figure.kind != "confusion" && figure.metrics.empty())
    table.refuse("metrics", "name at least one metric");
  check_metrics(table, figure.kind, figure.metrics);
  if (figure.kind == "scatter" && figure.metrics.size() != 2)
    table.refuse("metrics", "name two metrics, across and up");
  if (figure.kind == "lines" && figure.x.empty()) table.refuse("x", "name the axis of a line chart");
  return figure;
}

Part read_part(const std::string& file, const Json& json) {
  Part part;
  part.name = json.is_object() && json.contains("name") && json["name"].is_string()
                  ? json["name"].get<std::string>()
                  : "";
  Table table(file, "part '" + part.name + "'", json);
  part.name = table.text("name");
  part.title = table.text("title");
  part.counterpart = table.text("counterpart", "");
  part.note = table.text("note", "");
  part.phase = table.choice("phase", "", {"train", "infer", "fit", "load"});
  part.track = table.choice("track", "equal", {"equal", "as_shipped"});
  part.axes = read_axes(table);
  check_feed(table, part.phase, part.axes);
  if (!trains(part.phase) && !part.axes.optimizer.empty())
    table.refuse("optimizer", "be absent in phase infer and load");
  if (table.has("control")) part.control = table.text("control", "");
  part.effort = read_effort_table(file, "part '" + part.name + "', effort", table.table("effort"));
  const Json quick = table.table("quick");
  const std::vector<Json> figures = table.tables("figure");
  table.text("control", "");
  table.finish();

  Table quick_table(file, "part '" + part.name + "', quick", quick);
  part.quick_axes = read_axes(quick_table);
  check_feed(quick_table, part.phase, part.quick_axes);
  part.quick_effort = read_effort(quick_table);
  part.quick_skip = quick_table.text("skip", "");
  if (quick_table.has("control")) part.quick_control = quick_table.text("control", "");
  quick_table.finish();

  for (size_t i = 0; i < figures.size(); ++i) {
    part.figures.push_back(
        read_figure(file, str("part '", part.name, "', figure ", i + 1), figures[i], part.phase));
  }
  return part;
}

/// What a workload of a study may be called: files are named after it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 80 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                  c == '-' || c == '.';
         });
}

Workloads read_workloads(const std::string& path, const std::vector<Json>& tables) {
  const std::vector<std::string> files = workload_names();
  std::vector<Workload> own;
  for (const Json& json : tables) {
    const bool named = json.contains("name") && json["name"].is_string();
    const std::string where = str("workload '", named ? json["name"].get<std::string>() : "", "'");
    own.push_back(read_workload(path, where, json));
    const Table table(path, where, json);
    const std::string& name = own.back().name;
    if (!is_plain_name(name))
      table.refuse("name", "have at most 80 letters, digits, _, - and dots, and begin with no dot");
    if (std::find(files.begin(), files.end(), name) != files.end())
      table.refuse("name", "be another one than that of a file in studies/workloads/", " Rename it.");
    if (std::any_of(own.begin(), own.end() - 1, [&](const Workload& other) { return other.name == name; }))
      table.refuse("name", "be given once", " Rename one of the two.");
  }
  return Workloads(std::move(own));
}

}  // namespace

void apply(const EffortChange& change, Effort& effort) {
  if (change.runs) effort.runs = *change.runs;
  if (change.warmup_steps) effort.warmup_steps = *change.warmup_steps;
  if (change.timed_steps) effort.timed_steps = *change.timed_steps;
  if (change.epochs) effort.epochs = *change.epochs;
  if (change.timed_s) effort.timed_s = *change.timed_s;
  if (change.least_s) effort.least_s = *change.least_s;
  if (change.cap_s) effort.cap_s = *change.cap_s;
  if (change.breakdown) effort.breakdown = *change.breakdown;
}

StudyFile read_study(const std::string& name, const std::string& path) {
  const Json json = read_toml(path);
  Table table(path, "", json);
  StudyFile study;
  study.name = table.text("name");
  study.path = path;
  if (study.name != name) table.refuse("name", "be that of the file, '" + name + "'");
  study.title = table.text("title");
  study.paper = table.text("paper", "");
  study.question = table.text("question", "");
  study.hypotheses = table.texts("hypotheses");
  study.axes.frameworks = table.texts("frameworks");
  if (study.axes.frameworks.empty())
    table.refuse("frameworks", "be a list of systems, such as [\"tandem\", \"pytorch:eager\"]");
  study.axes.workloads = table.texts("workloads");
  study.axes.device = table.texts("device");
  check_devices(table, study.axes.device);
  study.control = table.text("control", "");
  study.effort = read_effort_table(path, "[effort]", table.table("effort"));
  study.quick_effort = read_effort_table(path, "[quick]", table.table("quick"));
  const std::vector<Json> parts = table.tables("part"), missing = table.tables("missing"),
                          workloads = table.tables("workload");
  table.finish();
  if (parts.empty())
    table.refuse("part", "be there at least once", " Write [[part]] with name, title and phase.");

  study.workloads = read_workloads(path, workloads);
  std::set<std::string> names;
  for (const Json& part : parts) {
    study.parts.push_back(read_part(path, part));
    const Part& read = study.parts.back();
    TD_CHECK(names.insert(read.name).second, table.place(), ": parts must have different names; got '",
             read.name, "' twice. Rename one.");
    TD_CHECK(!study.axes.workloads.empty() || !read.axes.workloads.empty(), table.place(), ", part '",
             read.name,
             "': workloads must stand in the part or at the top of the file; got none. Name at least one.");
  }
  for (const Json& entry : missing) {
    Table line(path, "[[missing]]", entry);
    study.missing.push_back({line.text("part", ""), line.text("what"), line.text("why")});
    line.finish();
  }
  return study;
}

}  // namespace tandem::lab
