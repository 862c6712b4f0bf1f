#include "lab/src/measure/runner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "lab/src/files/json.h"
#include "lab/src/inputs/pictures.h"
#include "lab/src/measure/schedule.h"
#include "lab/src/measure/sitting.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/sha256.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

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

// Slow changes of the machine fall on all cells alike, since the order within a block is drawn. A run is written before the next
// begins, so that a study can be stopped anywhere and goes on where it was.
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

  std::map<std::string, size_t> places;
  for (size_t i = 0; i < plan.cells.size(); ++i) places[cell_key(plan.cells[i])] = i;
  const std::vector<Run> earlier = load_results(options.folder).runs;
  Standing standing;
  for (const Run& run : earlier) standing.add_earlier(run);
  const int64_t left = standing.left(plan.cells);
  if (options.on_start && left > 0) options.on_start(options.folder);

  progress.begin(plan, options.folder, block_count(plan.cells), left);
  for (const Run& run : earlier)
    if (const auto at = places.find(cell_key(run.part, run.system, run.control, run.condition));
        at != places.end() && run.status != Status::disturbed)
      progress.known(at->second, run);
  for (const auto& [key, choice] : data_of(plan))
    if (!choice.why.empty())
      progress.note(str("data: ", key, " is measured on ", choice.name, ", made-up samples: ", choice.why,
                        " No accuracy of it is held against a paper's."));
  // Not before on_start, which may drop the gate's results of other programs.
  const StudyOutcome outcome = Sitting(plan, options, std::move(standing), progress).take_blocks();
  progress.end();
  return outcome;
}

}  // namespace tandem::lab
