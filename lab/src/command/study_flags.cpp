#include "lab/src/command/study_flags.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lab/src/driver/program_files.h"
#include "lab/src/files/json.h"
#include "lab/src/measure/energy.h"
#include "lab/src/monitor/provenance.h"
#include "lab/src/record/sittings.h"
#include "lab/src/report/report.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/train/settings.h"

namespace tandem::lab {
namespace {

std::string new_folder(const std::string& study) {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  std::string name = study.substr(study.find_last_of('/') + 1);
  if (const size_t dot = name.rfind(".toml"); dot != std::string::npos) name.erase(dot);
  return str("runs/lab-", name, "-", stamp);
}

/// A file of the lab by its place there, so that the record of another checkout has the same name for it.
std::string recorded_name(const std::string& file) {
  std::error_code ignored;
  const std::string place = std::filesystem::proximate(file, lab_home(), ignored).string();
  return place.empty() || place.starts_with("..") ? file : place;
}

/// Throws where programs are others than those that a study was begun with, and `may_change` does not allow it. Where it does, the gate
/// is to be asked again.
void settle_programs(const std::string& folder, const Json& before, const Json& now, bool may_change) {
  std::string names;
  for (const std::string& name : changed_programs(before, now)) names += (names.empty() ? "" : "; ") + name;
  if (names.empty()) return;
  TD_CHECK(may_change,
           "run: a study goes on only with the programs that it began with; changed since: ", names,
           ". Give another --out, or --changed: then the gate is asked again and the report says so.");
  std::filesystem::remove(folder + "/gate.json");
}

/// Makes the folder, or refuses one that holds another study.
void settle_folder(const std::string& folder, const std::string& study) {
  make_folder("--out", folder);
  const std::string path = folder + "/study.json";
  if (!std::filesystem::exists(path)) return;
  const auto bytes = io::read_file("run", path, int64_t{1} << 28);
  std::string why;
  const Json there = try_parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, why);
  const Json name = there.is_object() ? there.value("name", Json()) : Json();
  TD_CHECK(!name.is_string() || name == study, "run: a study goes on in its own folder alone; '",
           io::one_line(folder, 300), "' holds the study '", io::one_line(name.get<std::string>(), 80),
           "', and this one is '", io::one_line(study, 80), "'. Name another --out.");
}

/// provenance.json: the machine and its state before the first run, and the files that decide what is measured; and what of
/// it is another where a study goes on.
void save_provenance(const std::string& folder, const Plan& plan, const RunnerOptions& options,
                     const std::vector<std::string>& arguments, bool may_change) {
  ProvenanceOptions what;
  what.command = {"tandem", "lab"};
  what.command.insert(what.command.end(), arguments.begin(), arguments.end());
  what.source_folder = lab_home();
  Json versions = Json::object();
  for (const Cell& cell : plan.cells) {
    if (const auto gpu = gpu_of(cell.condition.device)) {
      what.device = parse_device(cell.condition.device);
      if (std::find(what.gpus.begin(), what.gpus.end(), *gpu) == what.gpus.end()) what.gpus.push_back(*gpu);
    }
    const std::string text = plan.workloads.load(cell.condition.workload).file;
    what.files[recorded_name(text)] = text;
    const std::string framework = framework_of(cell.system);
    if (versions.contains(framework)) continue;
    const Launch launch = options.bench.launcher(framework);
    versions[framework] = launch.version;
    for (const std::string& file : program_files(launch.command)) what.files[recorded_name(file)] = file;
  }
  Json record = provenance(what);
  record["frameworks"] = versions;
  record["seed"] = options.seed;
  record["threads_of_each_framework"] = options.bench.threads;
  const std::string path = folder + "/provenance.json";
  if (std::filesystem::exists(path)) {
    const auto bytes = io::read_file("run", path, int64_t{1} << 28);
    const Json before = parse_json<Json>("read '" + path + "': ",
                                         {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const Json both = with_sitting(before, record);  // which refuses another machine
    settle_programs(folder, before, record, may_change);
    record = both;
  }
  io::write_atomically(path, [&](io::OutputFile& file) {
    file.write(record.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  });
}

}  // namespace

void StudyFlags::add(CLI::App& command) {
  add_whole(
      command, "--runs", limits::runs, [this](int64_t n) { runs = n; },
      "runs per cell (default: the study's)");
  command.add_option("--device", device, "cpu or cuda:N (default: the study's)");
  command.add_flag("--quick", quick, "fewer and shorter runs: minutes");
  command.add_option("--budget", budget,
                     "begin no run that cannot end within 30m, 2h …; whole comparisons come first");
  command.add_option("--out", out,
                     "folder of the results (default: a new one below runs/); an old one goes on");
  command.add_flag("--busy", busy,
                   "keep runs that other programs disturb: their times are shown, and decide nothing");
  command.add_flag("--changed", changed,
                   "go on although programs are others than before; the report says so");
  add_whole(
      command, "--seed", limits::seed, [this](int64_t n) { seed = static_cast<uint64_t>(n); },
      "of the order of runs and of dropout")
      ->default_str(std::to_string(seed));
  command.add_option("--interval", interval, "seconds between readings of the monitors")
      ->capture_default_str();
  add_whole(
      command, "--threads", {1, usable_cores()}, [this](int64_t n) { threads = n; },
      "threads of every framework (default: all cores)", ", the cores that the lab may use");
  command.add_flag("--json", json, "print one JSON object per line");
}

RunnerOptions StudyFlags::options(const std::string& name) const {
  RunnerOptions options;
  options.folder = out.empty() ? new_folder(name) : out;
  options.seed = seed;
  options.interval_s = interval;
  if (!budget.empty()) as_usage([&] { options.budget_s = parse_duration("budget", budget); });
  options.cool_down_s = quick ? 10 : 60;
  options.keep_disturbed = busy;
  options.bench.threads = threads.value_or(usable_cores());
  if (!(interval >= 0.01 && interval <= 60))
    throw UsageError(str("interval: must be within 0.01 and 60 seconds; got ", interval, "."));
  if (!device.empty()) as_usage([&] { parse_device(device); });
  return options;
}

StudyOutcome take(const Plan& plan, const StudyFlags& flags, RunnerOptions options,
                  const std::vector<std::string>& arguments) {
  options.bench.launcher = catalogue_launcher(flags.drivers);
  options.bench.stop = stop_on_signals();
  options.on_start = [&](const std::string& folder) {
    save_provenance(folder, plan, options, arguments, flags.changed);
  };
  settle_folder(options.folder, plan.name);
  const auto progress = flags.json ? json_progress(stdout) : text_progress(stderr);
  const auto save = options.on_start;
  options.on_start = [&](const std::string& folder) {
    save(folder);
    for (const std::string& warning : provenance_warnings(load_results(folder).provenance))
      progress->warn(warning);
  };
  const StudyOutcome outcome = run_study(plan, options, *progress);
  // The same words go on, with the folder where it was not among them.
  std::vector<std::string> words = arguments;
  if (flags.out.empty()) words.insert(words.end(), {"--out", options.folder});
  const std::string go_on = "tandem lab " + quoted(words);
  if (outcome.stopped) {
    const std::string runs = options.folder + "/runs.jsonl";
    const bool any = std::filesystem::exists(runs) && std::filesystem::file_size(runs) > 0;
    if (any) write_report(options.folder);
    throw Interrupted(str("stopped; the runs so far", any ? " and their report" : "", " are in ",
                          options.folder, ". Go on with: ", go_on));
  }
  if (outcome.left_out > 0)
    progress->warn(str("other work on the machine disturbed ", outcome.left_out,
                       outcome.left_out == 1 ? " run, which is" : " runs, which are",
                       " left out. Stop it and go on with: ", go_on,
                       "; or with --busy, to see times that decide nothing."));
  if (outcome.over_budget)
    progress->note(
        str("the budget is spent: ", outcome.blocks_left, " blocks are left. Go on with: ", go_on));
  return outcome;
}

}  // namespace tandem::lab
