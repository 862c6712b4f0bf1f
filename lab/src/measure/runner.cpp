#include "lab/src/measure/runner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "lab/src/base/json.h"
#include "lab/src/material/pictures.h"
#include "lab/src/measure/cooling.h"
#include "lab/src/measure/energy.h"
#include "lab/src/measure/one_run.h"
#include "lab/src/measure/schedule.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/sha256.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

double since(int64_t ns) { return static_cast<double>(now_ns() - ns) / 1e9; }

Json effort_json(const Effort& e) {
  return {{"runs", e.runs},       {"warmup_steps", e.warmup_steps}, {"timed_steps", e.timed_steps},
          {"timed_s", e.timed_s}, {"least_s", e.least_s},           {"epochs", e.epochs},
          {"cap_s", e.cap_s},     {"breakdown", e.breakdown}};
}

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += str(text.empty() ? "" : "x", size);
  return text;
}

/// Which samples each workload of the plan gets, by "lenet, 1x28x28".
std::map<std::string, DataChoice> data_of(const Plan& plan) {
  std::map<std::string, DataChoice> choices;
  for (const Cell& cell : plan.cells) {
    const Workload workload = plan.workloads.load(cell.condition.workload);
    const auto& input = cell.condition.input.empty() ? workload.input : cell.condition.input;
    const std::string key = str(workload.name, input.empty() ? "" : ", ", sizes_text(input));
    if (!choices.contains(key)) choices[key] = choose_data(workload, load_network(workload, input));
  }
  return choices;
}

/// What each workload asks for, and its network in short: an edited one is another study.
void add_workloads(const Plan& plan, Json& record) {
  record["workloads"] = record["networks"] = Json::object();
  for (const Cell& cell : plan.cells) {
    const Workload workload = plan.workloads.load(cell.condition.workload);
    const auto& input = cell.condition.input.empty() ? workload.input : cell.condition.input;
    const std::string key = str(workload.name, input.empty() ? "" : ", ", sizes_text(input));
    record["workloads"][workload.name] = workload.definition;
    if (record["networks"].contains(key)) continue;
    const std::string text = load_network(workload, input).json().dump();
    io::Sha256 sum;
    sum.update(text.data(), text.size());
    record["networks"][key] = sum.hex();
  }
}

/// The plan without the cells whose image files cannot lie where they ask for: those become lines of `missing`.
Plan with_storage(Plan plan, const std::string& folder) {
  std::map<std::string, std::string> refusals;  // by storage and bytes
  const auto refused = [&](const Cell& cell) {
    const std::string storage = storage_of(cell.condition);
    if (storage.empty()) return false;
    const int64_t bytes = picture_bytes(load_workload(cell.condition.workload),
                                        pictures_for(cell.condition.batch, cell.effort.timed_steps));
    const std::string key = str(storage, " ", bytes);
    if (!refusals.contains(key)) refusals[key] = storage_refusal(storage, folder, bytes);
    if (refusals[key].empty()) return false;
    Missing line{cell.part, cell.condition.text(), refusals[key]};
    const auto is_same = [&](const Missing& other) {
      return other.part == line.part && other.what == line.what;
    };
    if (std::none_of(plan.missing.begin(), plan.missing.end(), is_same))
      plan.missing.push_back(std::move(line));
    return true;
  };
  std::erase_if(plan.cells, refused);
  return plan;
}

std::string short_text(const Json& value) {
  return io::one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace), 120);
}

/// study.json: written at the start, and compared where the folder has one.
void settle_record(const Plan& plan, const RunnerOptions& options) {
  const std::string path = options.folder + "/study.json";
  const Json wanted = study_record(plan, options);
  if (!fs::exists(path)) {
    io::write_atomically(path, [&](io::OutputFile& file) { file.write(wanted.dump(1) + "\n"); });
    return;
  }
  const auto bytes = io::read_file("run", path, int64_t{1} << 28);
  std::string why;
  const Json there = try_parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, why);
  const std::string differs = there.is_discarded() ? "the file " + why : difference(there, wanted);
  TD_CHECK(differs.empty(), "run: a study goes on only as it began; '", options.folder,
           "' holds another: ", differs, ". Give the same options, or another --out.");
}

/// What each cell's runs took, to say how long the rest will.
class Forecast {
 public:
  explicit Forecast(const std::vector<Cell>& cells) : cells_(cells), seconds_(cells.size(), -1) {}
  void add(size_t cell, double s) { seconds_[cell] = seconds_[cell] < 0 ? s : 0.5 * (seconds_[cell] + s); }
  /// Of one run of the cell: its own, or the mean of those of its phase that are known, or of all; less than 0 where
  /// nothing is.
  double of(size_t cell) const {
    if (seconds_[cell] >= 0) return seconds_[cell];
    const double alike =
        mean([&](size_t i) { return cells_[i].condition.phase == cells_[cell].condition.phase; });
    return alike >= 0 ? alike : mean([](size_t) { return true; });
  }

 private:
  template <class Counts>
  double mean(const Counts& counts) const {
    double sum = 0;
    int known = 0;
    for (size_t i = 0; i < seconds_.size(); ++i)
      if (seconds_[i] >= 0 && counts(i)) sum += seconds_[i], ++known;
    return known ? sum / known : -1;
  }
  const std::vector<Cell>& cells_;
  std::vector<double> seconds_;
};

}  // namespace

Json study_record(const Plan& plan, const RunnerOptions& options) {
  Json record = plan.study.is_object() ? plan.study : Json::object();
  record["name"] = plan.name;
  record["seed"] = options.seed;
  record["threads"] = options.bench.threads;
  record["interval_s"] = options.interval_s;
  record["data"] = Json::object();
  for (const auto& [key, choice] : data_of(plan)) record["data"][key] = choice.name;
  add_workloads(plan, record);
  record["cells"] = Json::array();
  for (const Cell& cell : plan.cells)
    record["cells"].push_back(
        {{"cell", cell_key(cell)}, {"effort", effort_json(cell.effort)}, {"optimizer", cell.optimizer}});
  record["missing"] = Json::array();
  for (const Missing& m : plan.missing)
    record["missing"].push_back({{"part", m.part}, {"what", m.what}, {"why", m.why}});
  return record;
}

std::string difference(const Json& there, const Json& wanted) {
  // What is not there yet may come while a study is stopped (a framework that is set up): it changes no run.
  Json a = there, b = wanted;
  if (a.is_object()) a.erase("missing");
  if (b.is_object()) b.erase("missing");
  // Older studies did not say which data, workloads and networks they began with.
  if (a.is_object() && b.is_object())
    for (const char* key : {"data", "workloads", "networks"})
      if (!a.contains(key)) b.erase(key);
  if (a == b) return "";
  if (!a.is_object() || !b.is_object()) return "one of them is not an object";
  // Cells are compared as a set first: "48 cells" says more than the first that moved.
  if (a.value("cells", Json::array()).size() != b.value("cells", Json::array()).size())
    return str("it has ", a.value("cells", Json::array()).size(), " cells, and these options give ",
               b["cells"].size());
  const Json patch = Json::diff(a, b);
  const std::string at = patch[0].value("path", "");
  const Json::json_pointer pointer(at);
  return str(at.substr(1), " is ", a.contains(pointer) ? short_text(a[pointer]) : "absent", " there, and ",
             b.contains(pointer) ? short_text(b[pointer]) : "absent", " now");
}

// Block after block, each cell at most once per block in an order that the seed draws: slow changes of the machine
// fall on all cells alike. A run is written before the next begins, so that a study can be stopped anywhere and goes
// on where it was.
StudyOutcome run_study(const Plan& asked, const RunnerOptions& options, Progress& progress) {
  fs::create_directories(options.folder);
  const Plan plan = with_storage(asked, options.folder);
  // A part's cells that are not there; what a study as a whole leaves out has no part.
  const auto absent = std::find_if(plan.missing.begin(), plan.missing.end(),
                                   [](const Missing& missing) { return !missing.part.empty(); });
  TD_CHECK(!plan.cells.empty(), "run: the study must have a cell that can be run here; got none",
           absent == plan.missing.end() ? "" : ": " + absent->what + ": " + absent->why,
           ". See 'tandem lab list' for what is installed.");
  const io::FolderLock lock("run", options.folder, "study");
  settle_record(plan, options);

  Standing standing;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < plan.cells.size(); ++i) places[cell_key(plan.cells[i])] = i;
  const std::vector<Run> earlier = load_results(options.folder).runs;
  for (const Run& run : earlier) standing.add(run);

  const int64_t blocks = block_count(plan.cells);
  const auto open_turns = [&](int64_t block) {
    std::vector<Turn> turns;
    for (const Turn& turn : turns_of_block(plan.cells, block, options.seed))
      if (!standing.done(plan.cells[turn.cell], block) && standing.given_up(plan.cells[turn.cell]).empty())
        turns.push_back(turn);
    return turns;
  };
  // By cells, not by blocks: both may be many.
  const auto runs_left = [&] {
    int64_t count = 0;
    for (const Cell& cell : plan.cells) count += standing.left(cell);
    return count;
  };

  if (options.on_start && runs_left() > 0) options.on_start(options.folder);

  progress.begin(plan, options.folder, blocks, runs_left());
  for (const Run& run : earlier)
    if (const auto at = places.find(cell_key(run.part, run.system, run.control, run.condition));
        at != places.end())
      progress.known(at->second, run);

  for (const auto& [key, choice] : data_of(plan))
    if (!choice.why.empty())
      progress.note(str("data: ", key, " is measured on ", choice.name, ", made-up samples: ", choice.why,
                        " No accuracy of it is held against a paper's."));

  StudyOutcome outcome;
  Materials materials(options.folder);
  Gatekeeper gatekeeper(options.folder, options.bench, materials);
  Forecast forecast(plan.cells);
  std::optional<int> gpu;
  for (const Cell& cell : plan.cells)
    if (!gpu) gpu = gpu_of(cell.condition.device);
  const Monitor thermometer({.gpu = gpu});
  const Cooling cooling(options.cool_down_s, options.bench.stop,
                        [&] { return thermometer.current_temperature(); });
  const int64_t begun = now_ns();
  bool whole_block = !earlier.empty() && open_turns(0).empty();
  const auto stopped = [&] { return options.bench.stop && options.bench.stop->load(); };

  for (int64_t block = 0; block < blocks && !outcome.stopped && runs_left() > 0; ++block) {
    if ((outcome.stopped = stopped())) break;
    const std::vector<Turn> turns = open_turns(block);
    if (turns.empty()) continue;
    // A whole block at a time, so that all cells have as many runs; of the first, as many runs as there is time for.
    const auto exceeds = [&](double estimate) {
      return options.budget_s && since(begun) + std::max(0.0, estimate) > *options.budget_s;
    };
    if (whole_block) {
      double estimate = 0;
      for (const Turn& turn : turns) estimate += std::max(0.0, forecast.of(turn.cell));
      outcome.over_budget = exceeds(estimate);
    }
    for (size_t i = 0; i < turns.size() && !outcome.over_budget; ++i) {
      const Turn& turn = turns[i];
      const Cell& cell = plan.cells[turn.cell];
      if (!standing.given_up(cell).empty()) continue;
      if ((outcome.stopped = stopped())) break;
      if (!whole_block && outcome.taken > 0 && exceeds(forecast.of(turn.cell))) {
        outcome.over_budget = true;
        break;
      }
      progress.start(turn.cell, block);
      const int64_t run_begun = now_ns();
      cooling.wait([&](const std::string& text) { progress.stage(text); });
      try {
        const RunSetting setting{options.bench,      plan.workloads,
                                 materials,          gatekeeper,
                                 options.interval_s, options.seed,
                                 options.limits,     [&](const std::string& text) { progress.stage(text); }};
        const Run run = take_run(cell, turn, setting);
        append_run(options.folder, run);
        standing.add(run);
        ++outcome.taken;
        outcome.failed += run.status != Status::ok;
        forecast.add(turn.cell, since(run_begun));
        // Runs that are left, at what their cells took so far.
        double left = 0;
        for (size_t j = 0; j < plan.cells.size(); ++j)
          left += static_cast<double>(standing.left(plan.cells[j])) * forecast.of(j);
        if (options.budget_s) left = std::min(left, std::max(0.0, *options.budget_s - since(begun)));
        progress.done(turn.cell, run, left);
        if (const std::string why = standing.given_up(cell); !why.empty()) progress.give_up(turn.cell, why);
      } catch (const Stopped&) {
        outcome.stopped = true;
        break;
      }
    }
    if (outcome.over_budget) {
      for (int64_t b = block; b < blocks; ++b) outcome.blocks_left += !open_turns(b).empty();
      break;
    }
    whole_block = true;
  }
  if (runs_left() == 0) materials.remove();
  progress.end();
  return outcome;
}

}  // namespace tandem::lab
