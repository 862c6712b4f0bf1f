#include "tandem/search/state.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/core/backend.h"
#include "tandem/io/json.h"
#include "tandem/train/plot.h"
#include "tandem/train/settings.h"
#include "tandem/train/settings_json.h"

namespace tandem::search {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string quoted(const std::string& path) { return "'" + io::one_line(path) + "'"; }
bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// runs/search-lenet for 1, runs/search-lenet-2 for 2 …
std::string numbered(const SearchConfig& config, int n) {
  const std::string& subject = config.base.model.empty() ? config.base.data : config.base.model;
  std::string word = fs::path(subject).stem().string();
  if (word.empty()) word = "space";
  return (fs::path("runs") / str("search-", word, n == 1 ? "" : str("-", n))).string();
}

/// 2: with all settings on which bits depend, and the data's fingerprints.
constexpr int kFormat = 2;

/// Throws Error with the name of the first setting that differs.
void check_same(const ordered_json& before, const ordered_json& now, const std::string& where) {
  const auto compare = [&](const std::string& key) {
    const auto text = [&](const ordered_json& in) { return in.contains(key) ? in[key].dump() : "none"; };
    if (text(before) == text(now)) return;
    if (const std::string names = names_of_data(key); !names.empty()) {
      if (!before.contains(key)) return;  // the search is older than these
      throw Error(str(where, "the search was begun with other ", names,
                      " in its data. Give the same data, or begin a new search in another `out`."));
    }
    const bool is_data = key.starts_with("train_") || key.starts_with("valid_") || key.starts_with("test_");
    const bool is_long = key == "models" || key == "space" || key == "eta";
    throw Error(str(where, "the search was begun with ",
                    key == "models" ? "another model, or data that asks for another"
                    : is_long       ? "another " + key
                                    : str(key, " ", text(before), "; got ", key, " ", text(now)),
                    is_data ? ". Give the same data"
                    : is_long || key == "arithmetic" || key == "task"
                        ? ". Give it as it was"
                        : ". Give " + named_setting(key) + " as it was",
                    ", or begin a new search in another `out`."));
  };
  // Fingerprints last: settings say more.
  const auto is_data = [](const std::string& key) {
    return key.ends_with("_data") || !names_of_data(key).empty();
  };
  for (const bool data : {false, true})
    for (const ordered_json* side : {&now, &before})
      for (const auto& [key, value] : side->items())
        if (is_data(key) == data) compare(key);
}

ordered_json to_json(const Trial& trial) {
  ordered_json settings = ordered_json::object(), marks = ordered_json::array();
  for (const auto& [name, value] : trial.settings) settings[name] = value;
  for (const Trial::Mark& mark : trial.marks) marks.push_back({mark.seconds, mark.value});
  return {{"trial", trial.number},          {"model", trial.model},     {"settings", settings},
          {"point", trial.point},           {"values", trial.values},   {"losses", trial.losses},
          {"reached", trial.reached},       {"running", trial.running}, {"failed", trial.failed},
          {"parameters", trial.parameters}, {"seconds", trial.seconds}, {"marks", marks}};
}

Trial trial_from(const ordered_json& in) {
  Trial trial{.number = in.at("trial").get<int64_t>(),
              .point = in.at("point").get<Point>(),
              .model = in.at("model").get<std::string>(),
              .values = in.at("values").get<std::vector<double>>(),
              .losses = in.at("losses").get<std::vector<double>>(),
              .reached = in.at("reached").get<int64_t>(),
              .running = in.at("running").get<bool>(),
              .failed = in.at("failed").get<std::string>(),
              .parameters = in.at("parameters").get<int64_t>(),
              .seconds = in.at("seconds").get<double>()};
  for (const auto& [name, value] : in.at("settings").items())
    trial.settings.emplace_back(name, value.get<std::string>());
  for (const ordered_json& mark : in.at("marks"))
    trial.marks.push_back({mark.at(0).get<double>(), mark.at(1).get<double>()});
  return trial;
}

void write_text(const std::string& path, const std::string& text, io::Sync sync) {
  io::write_atomically(
      path, [&](io::OutputFile& file) { file.write(text); }, sync);
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string leaderboard(const Plan& plan, const SearchState& state) {
  std::vector<std::string> names;  // of settings: trials need not have the same
  for (const Trial& trial : state.trials)
    for (const auto& [name, value] : trial.settings)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::string out = str("rank,trial,", plan.metric.name, ",valid_loss,best_epoch,epochs,parameters,seconds");
  for (const std::string& name : names) out += "," + name;
  out += ",failed\n";
  int64_t rank = 0;
  for (const size_t place : ranking(state.trials, plan.metric.higher_is_better)) {
    const Trial& trial = state.trials[place];
    const std::optional<size_t> best = trial.best_epoch(plan.metric.higher_is_better);
    out += str(++rank, ",", trial.number, ",");
    out += best ? str(trial.values[*best], ",", trial.losses[*best], ",", *best + 1) : std::string(",,");
    out += str(",", trial.values.size(), ",", trial.parameters, ",", trial.seconds);
    for (const std::string& name : names) {
      out += ",";
      for (const auto& [key, value] : trial.settings)
        if (key == name) out += csv_text(value);
    }
    out += "," + csv_text(trial.failed) + "\n";
  }
  return out;
}

std::string plot(const Plan& plan, const SearchState& state) {
  const bool higher = plan.metric.higher_is_better;
  Series best{.label = "best"}, trials{.label = "trials", .points = true};
  std::vector<Trial::Mark> marks;
  for (const Trial& trial : state.trials) marks.insert(marks.end(), trial.marks.begin(), trial.marks.end());
  std::sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  for (const Trial::Mark& mark : marks) {
    trials.x.push_back(mark.seconds);
    trials.y.push_back(mark.value);
    double now = mark.value;
    if (!best.y.empty()) {  // a staircase
      now = higher ? std::max(best.y.back(), mark.value) : std::min(best.y.back(), mark.value);
      best.x.push_back(mark.seconds);
      best.y.push_back(best.y.back());
    }
    best.x.push_back(mark.seconds);
    best.y.push_back(now);
  }
  Chart chart{.title = "Search: " + plan.metric.name, .x_label = "seconds", .y_label = plan.metric.name};
  if (!best.y.empty()) {  // a trial that went far off must not decide the scale
    chart.y_range = usual_range(trials.y, best.y.back());
    const auto beyond = std::count_if(trials.y.begin(), trials.y.end(), [&](double value) {
      return value < chart.y_range->first || value > chart.y_range->second;
    });
    if (beyond > 0) trials.label = str("trials (", beyond, " beyond the frame)");
  }
  chart.series = {best, trials};
  return line_chart(chart);
}

}  // namespace

std::string settings_json(const SearchConfig& config, const Plan& plan) {
  TrainConfig base = config.base;
  base.valid = plan.valid;
  ordered_json models = ordered_json::array();
  for (const Candidate& row : plan.candidates) models.push_back(zoo::to_toml(row.description));
  ordered_json out;
  // By what they lead to, below: one thing may be said in several ways.
  const std::set<std::string> elsewhere = {"model", "recipe", "data", "task", "weights", "monitor", "dtype"};
  for (const Setting& s : settings()) {
    if (s.bits == SettingBits::none || elsewhere.contains(s.name)) continue;
    const SettingValue value = (s.recorded ? s.recorded : s.get)(base);
    if (value.index() != 0) out[s.name] = json_of(value);
  }
  out["dtype"] = name(base.autocast.value_or(base.dtype));
  out["arithmetic"] = backend(base.device).arithmetic();
  out["method"] = config.method;
  out["monitor"] = plan.monitor;
  out["epochs"] = plan.rungs.back();
  out["eta"] = config.eta;
  if (!plan.weights.empty()) out["weights"] = plan.weights;
  out["data"] = plan.data;
  out["task"] = plan.task;
  out["train_samples"] = plan.train_samples;
  out["valid_samples"] = plan.valid_samples;
  out["test_samples"] = plan.test_samples;
  out["models"] = models;
  out["space"] = plan.space.to_toml();
  out["train_data"] = plan.train_data;
  out["valid_data"] = plan.valid_data;
  out["test_data"] = plan.test_data;
  for (const auto& [key, value] : plan.data_names) out[key] = value;
  return out.dump();
}

SearchFolder open_folder(const SearchConfig& config) {
  const TrainConfig& base = config.base;
  std::string folder = base.out;
  if (folder.empty()) {
    int next = 1;
    while (exists(numbered(config, next))) ++next;
    TD_CHECK(!base.resume || next > 1, "resume: there is no search in ", quoted(numbered(config, 1)),
             ". Name its folder with `out`, or begin one without `resume`.");
    folder = numbered(config, base.resume ? next - 1 : next);
  }
  const bool has_search = exists(state_path(folder));
  TD_CHECK(base.resume || !has_search, "search: the folder ", quoted(folder),
           " holds a search already. Go on with it by `resume`, or choose another `out`.");
  TD_CHECK(!base.resume || has_search, "resume ", quoted(folder),
           ": the folder holds no search. Name the right one with `out`, or begin one without `resume`.");
  std::error_code error;
  fs::create_directories(fs::path(folder) / "trials", error);
  if (error)
    throw resource_error("search: cannot make the folder ", quoted(folder), ": ", error.message(),
                         ". Choose another with `out`.");
  SearchFolder open{folder, io::FolderLock(base.resume ? "resume" : "search", folder, "search")};
  TD_CHECK(base.resume || !exists(state_path(folder)), "search: the folder ", quoted(folder),
           " holds a search already. Go on with it by `resume`, or choose another `out`.");
  return open;
}

std::string trial_folder(const std::string& folder, int64_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, 4 - std::min<size_t>(4, digits.size()), '0');
  return (fs::path(folder) / "trials" / digits).string();
}
std::string state_path(const std::string& folder) { return (fs::path(folder) / "search.json").string(); }

void save_state(const std::string& folder, const SearchState& state) {
  ordered_json trials = ordered_json::array();
  for (const Trial& trial : state.trials) trials.push_back(to_json(trial));
  const ordered_json out = {{"format", kFormat},
                            {"settings", io::parse_json<ordered_json>("settings: ", state.settings)},
                            {"seconds", state.seconds},
                            {"trials", trials}};
  write_text(state_path(folder), out.dump(1) + "\n", io::Sync::yes);
}

SearchState load_state(const std::string& folder, const std::string& wanted_settings) {
  const std::string path = state_path(folder), where = str("resume ", quoted(path), ": ");
  const std::vector<uint8_t> text = io::read_file("resume", path, int64_t{1} << 28);
  const auto in =
      io::parse_json<ordered_json>(where, {reinterpret_cast<const char*>(text.data()), text.size()},
                                   "Begin a new search in another `out`.");
  SearchState state;
  try {
    TD_CHECK(in.at("format") == kFormat, where,
             "the search was written by another version. Begin a new one in another `out`.");
    check_same(in.at("settings"), io::parse_json<ordered_json>("settings: ", wanted_settings), where);
    state.settings = wanted_settings;
    state.seconds = in.at("seconds").get<double>();
    for (const ordered_json& trial : in.at("trials")) state.trials.push_back(trial_from(trial));
  } catch (const nlohmann::json::exception&) {
    throw Error(
        str(where, "must be as 'tandem search' writes it; it is not. Begin a new search in another `out`."));
  }
  return state;
}

void write_reports(const std::string& folder, const Plan& plan, const SearchState& state) {
  write_text((fs::path(folder) / "leaderboard.csv").string(), leaderboard(plan, state), io::Sync::no);
  write_text((fs::path(folder) / "search.svg").string(), plot(plan, state), io::Sync::no);
}

}  // namespace tandem::search
