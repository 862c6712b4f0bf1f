// Reading of the ledger: which keys a claim of each kind has, and what each may hold.
#include "lab/src/claims/ledger.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "lab/src/files/toml.h"
#include "lab/src/study/catalogue.h"
#include "lab/src/study/study.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

namespace {

constexpr std::pair<CheckKind, const char*> kKinds[] = {
    {CheckKind::order, "order"},
    {CheckKind::ratio, "ratio"},
    {CheckKind::equal, "equal"},
    {CheckKind::level, "level"},
    {CheckKind::extreme, "extreme"},
    {CheckKind::across, "across"},
    {CheckKind::trend, "trend"},
    {CheckKind::not_normal, "not_normal"},
    {CheckKind::correlation, "correlation"},
    {CheckKind::spread, "spread"},
    {CheckKind::within_run, "within_run"},
    {CheckKind::no_winner, "no_winner"},
};

CheckKind read_kind(Table& table) {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kKinds) names.push_back(name);
  const std::string read = table.choice("kind", "", names);
  for (const auto& [kind, name] : kKinds) {
    if (read == name) return kind;
  }
  throw InternalError("a kind of check that is allowed has no value");
}

/// Reads the keys that `json` has over those that `where` holds already.
Where read_where(const std::string& file, const std::string& place, const Json& json, Where where) {
  Table table(file, place + ", where", json);
  if (table.has("workload")) where.workload = table.texts("workload");
  where.phase = table.choice("phase", where.phase, {"", "train", "infer", "fit", "load"});
  where.track = table.choice("track", where.track, {"equal", "as_shipped"});
  if (table.has("device")) where.device = table.texts("device");
  table.require("device", where.device, {"cpu", "cuda"});
  if (table.has("batch")) where.batch = table.integers("batch", limits::batch);
  if (table.has("precision")) where.precision = table.texts("precision");
  if (table.has("optimizer")) where.optimizer = table.texts("optimizer");
  if (table.has("switches")) where.switches = table.text_map("switches");
  for (const char* key : {"workload", "device", "precision", "optimizer"}) table.texts(key);
  table.integers("batch", limits::batch);
  table.text_map("switches");
  where.any_switches = table.flag("any_switches", where.any_switches);
  table.finish();
  return where;
}

std::vector<Published> read_published(const std::string& file, const std::string& place,
                                      const std::vector<Json>& list) {
  std::vector<Published> published;
  for (const Json& entry : list) {
    Table table(file, place + ", published", entry);
    Published number;
    number.what = table.text("what");
    const std::vector<double> value = table.numbers("value", limits::number);
    if (value.size() != 1) table.refuse("value", "be one number");
    number.value = value[0];
    number.unit = table.text("unit", "");
    number.system = table.text("system", "");
    table.finish();
    published.push_back(number);
  }
  return published;
}

std::optional<double> read_bound(Table& table, const std::string& key) {
  const std::vector<double> value = table.numbers(key, limits::number);
  if (value.size() > 1) table.refuse(key, "be one number");
  return value.empty() ? std::nullopt : std::optional<double>(value[0]);
}

/// low and high, of which `both` or one must be there.
void read_bounds(Table& table, Claim& claim) {
  claim.low = read_bound(table, "low");
  claim.high = read_bound(table, "high");
  if (!claim.low && !claim.high) table.refuse("low", "be a number, or high must be one");
  if (claim.low && claim.high && *claim.low >= *claim.high) table.refuse("low", "be less than high");
}

std::vector<std::string> at_least(Table& table, const std::string& key, size_t count) {
  std::vector<std::string> list = table.texts(key);
  if (list.size() < count)
    table.refuse(key, str("name at least ", count, count == 1 ? " entry" : " entries"));
  return list;
}

void read_extreme(Table& table, Claim& claim) {
  claim.metrics = {table.text("metric")};
  claim.systems = {table.text("system")};
  for (const std::string& other : at_least(table, "among", 1)) {
    if (other != claim.systems[0]) claim.systems.push_back(other);
  }
  if (claim.systems.size() < 2)
    table.refuse("among", "name another system than the one that the claim is about");
  claim.direction = table.choice("end", "", {"highest", "lowest"});
}

void read_across(Table& table, Claim& claim) {
  claim.metrics = {table.text("metric")};
  claim.systems = at_least(table, "systems", 1);
  claim.axis =
      table.choice("vary", "", {"switches", "device", "precision", "optimizer", "batch", "workload"});
  claim.from = table.any("from");
  claim.to = table.any("to");
  for (const auto& [key, value] : {std::pair{"from", claim.from}, {"to", claim.to}}) {
    const bool fits = claim.axis == "switches" ? value.is_object()
                      : claim.axis == "batch"  ? is_within(value, limits::batch)
                                               : value.is_string();
    if (!fits) table.refuse(key, "be a table of switches, a batch size or a text, as `vary` asks for");
  }
  read_bounds(table, claim);
}

/// The keys that belong to the claim's kind.
void read_check(Table& table, Claim& claim) {
  switch (claim.kind) {
    case CheckKind::order:
    case CheckKind::spread:
      claim.metrics = {table.text("metric")};
      claim.systems = {table.text("less"), table.text("more")};
      if (claim.systems[0] == claim.systems[1]) table.refuse("more", "be another system than less");
      return;
    case CheckKind::ratio:
      claim.metrics = {table.text("metric")};
      claim.systems = {table.text("of"), table.text("to")};
      return read_bounds(table, claim);
    case CheckKind::equal:
      claim.metrics = {table.text("metric")};
      claim.systems = at_least(table, "systems", 2);
      claim.within = table.number("within", 0, {0, 1e6});
      return;
    case CheckKind::level:
      claim.metrics = {table.text("metric")};
      claim.systems = at_least(table, "systems", 1);
      return read_bounds(table, claim);
    case CheckKind::extreme:
      return read_extreme(table, claim);
    case CheckKind::across:
      return read_across(table, claim);
    case CheckKind::trend:
      claim.metrics = {table.text("metric")};
      claim.systems = at_least(table, "systems", 1);
      claim.axis = table.choice("along", "", {"batch", "input"});
      claim.direction = table.choice("direction", "", {"rises", "falls", "flat"});
      claim.relative = table.text("relative", "");
      claim.within = table.number("within", claim.direction == "flat" ? 0.05 : 0.0, {0, 1e6});
      return;
    case CheckKind::not_normal:
      claim.metrics = at_least(table, "metrics", 1);
      claim.systems = at_least(table, "systems", 1);
      claim.direction = table.choice("test", "lilliefors", {"ks", "lilliefors"});
      return;
    case CheckKind::correlation:
      claim.metrics = {table.text("x"), table.text("y")};
      claim.systems = table.texts("systems");
      return read_bounds(table, claim);
    case CheckKind::within_run:
      claim.metrics = {table.text("less"), table.text("more")};
      claim.systems = at_least(table, "systems", 1);
      return;
    case CheckKind::no_winner:
      claim.metrics = {table.text("metric")};
      claim.systems = at_least(table, "among", 2);
      return;
  }
}

Claim read_claim(const std::string& file, const Json& json, const std::string& paper, const Where& defaults) {
  const bool named = json.contains("id") && json["id"].is_string();
  const std::string place = "claim '" + (named ? json["id"].get<std::string>() : "") + "'";
  Table table(file, place, json);
  Claim claim;
  claim.id = table.text("id");
  claim.paper = paper;
  if (claim.id.rfind(paper + ".", 0) != 0) table.refuse("id", "begin with the paper's number and a point");
  claim.source = table.text("source");
  claim.text = table.text("text");
  claim.kind = read_kind(table);
  claim.where = read_where(file, place, table.table("where"), defaults);
  claim.published = read_published(file, place, table.tables("published"));
  claim.later = table.text("later", "");
  claim.most = table.flag("most", false);
  read_check(table, claim);
  table.finish();
  return claim;
}

}  // namespace

std::string to_string(CheckKind kind) {
  for (const auto& [value, name] : kKinds) {
    if (value == kind) return name;
  }
  return "?";
}

const Claim* Ledger::find(const std::string& id) const {
  for (const Claim& claim : claims) {
    if (claim.id == id) return &claim;
  }
  return nullptr;
}

Ledger parse_ledger(const Json& json, const std::string& path) {
  Table table(path, "", json);
  Ledger ledger;
  const std::string paper = table.text("paper");
  ledger.machines[paper] = table.text("machine", "");
  const Where defaults = read_where(path, "[defaults]", table.table("defaults"), {});
  const std::vector<Json> claims = table.tables("claim");
  table.finish();
  const std::vector<Framework> known = frameworks();
  for (const Json& entry : claims) {
    ledger.claims.push_back(read_claim(path, entry, paper, defaults));
    const Claim& claim = ledger.claims.back();
    for (const std::string& system : claim.systems) {
      TD_CHECK(system.find(':') != std::string::npos && systems_of(system, known).size() == 1, "read '", path,
               "', claim '", claim.id, "': a system must have a variant; got '", system,
               "'. Write for example pytorch:eager.");
    }
    for (size_t i = 0; i + 1 < ledger.claims.size(); ++i) {
      TD_CHECK(ledger.claims[i].id != claim.id, "read '", path,
               "': each claim must have an id of its own; got '", claim.id, "' twice. Rename one.");
    }
  }
  return ledger;
}

Ledger load_ledger() {
  const fs::path folder = fs::path(lab_home()) / "studies" / "claims";
  std::set<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".toml") files.insert(entry->path());
  }
  TD_CHECK(!error, "list '", folder.string(),
           "': the ledger's folder must be readable; got: ", error.message(),
           ". Set TANDEM_LAB_HOME to the folder that holds studies/.");
  Ledger all;
  for (const fs::path& file : files) {
    Ledger one = parse_ledger(read_toml(file.string()), file.string());
    all.machines.merge(one.machines);
    for (Claim& claim : one.claims) all.claims.push_back(std::move(claim));
  }
  return all;
}

}  // namespace tandem::lab
