// tandem lab list and tandem lab setup: what can be compared here, and how to get more of it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/src/command/commands.h"
#include "lab/src/driver/environment.h"
#include "lab/src/inputs/network.h"
#include "lab/src/study/study.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between = ", ") {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string text_of(const Json& study, const char* key) {
  const auto at = study.find(key);
  return at != study.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string sizes(const std::vector<int64_t>& sizes) {
  std::string out;
  for (const int64_t size : sizes) out += str(out.empty() ? "" : "×", size);
  return out;
}

struct WorkloadRow {
  Workload workload;
  std::string wrong;
};

/// A workload whose file, or whose network's, is wrong is listed with what is wrong, and hides no other.
WorkloadRow look_at_workload(const std::string& name) {
  WorkloadRow row;
  try {
    row.workload = load_workload(name);
    check_network(row.workload);
  } catch (const std::exception& error) {
    row.wrong = error.what();
  }
  row.workload.name = name;
  return row;
}

struct StudyRow {
  std::string name, title, wrong;
  size_t cells = 0, runnable = 0, missing = 0;  // runnable: those whose framework and device are here
  std::vector<std::string> workloads = {};      // that it brings along
};

/// The same of a study.
StudyRow look_at_study(const std::string& name, const std::set<std::string>& available) {
  try {
    const Plan plan = make_plan(name);
    StudyRow row{name, text_of(plan.study, "title"), "", plan.cells.size(), 0, plan.missing.size()};
    for (const Workload& own : plan.workloads.own()) {
      row.workloads.push_back(own.name);
      check_network(own);
    }
    for (const Cell& cell : plan.cells) row.runnable += available.count(framework_of(cell.system));
    return row;
  } catch (const std::exception& error) {
    return {name, "", error.what()};
  }
}

void list_json() {
  const Machine machine = Machine::here(lab_home());
  const auto drivers = read_drivers(machine.home);
  std::set<std::string> available;
  Json all = {{"drivers", Json::array()}, {"workloads", Json::array()}, {"studies", Json::array()}};
  for (const DriverInfo& info : drivers) {
    const Availability found = availability(info, machine, drivers);
    if (found.available) available.insert(info.name);
    all["drivers"].push_back({{"name", info.name},
                              {"title", info.title},
                              {"variants", info.variants},
                              {"available", found.available},
                              {"version", found.version},
                              {"why", found.why},
                              {"fix", found.fix},
                              {"remark", found.remark}});
  }
  for (const std::string& name : workload_names()) {
    const auto& [w, wrong] = look_at_workload(name);
    all["workloads"].push_back({{"name", name},
                                {"title", w.title},
                                {"network", w.network},
                                {"input", w.input},
                                {"targets", w.targets},
                                {"loss", w.loss},
                                {"metrics", w.metrics},
                                {"batch", w.batch},
                                {"data", w.data},
                                {"wrong", wrong}});
  }
  for (const std::string& name : study_names()) {
    const StudyRow row = look_at_study(name, available);
    all["studies"].push_back({{"name", name},
                              {"title", row.title},
                              {"cells", row.cells},
                              {"runnable", row.runnable},
                              {"missing", row.missing},
                              {"workloads", row.workloads},
                              {"wrong", row.wrong}});
  }
  std::printf("%s\n", all.dump().c_str());
}

void list_text() {
  const Machine machine = Machine::here(lab_home());
  const auto drivers = read_drivers(machine.home);
  std::printf("Frameworks\n");
  std::set<std::string> available;
  std::vector<std::vector<std::string>> rows;
  for (const DriverInfo& info : drivers) {
    const Availability found = availability(info, machine, drivers);
    if (found.available) available.insert(info.name);
    std::string state = found.available ? "ready" : "absent: " + found.why;
    if (!found.available && !found.fix.empty()) state += ". " + found.fix;
    if (!found.remark.empty()) state += " (" + found.remark + ")";
    rows.push_back({info.name, found.version, joined(info.variants), state});
  }
  print_rows(rows);
  std::printf("\nWorkloads\n");
  rows.clear();
  for (const std::string& name : workload_names()) {
    const auto& [w, wrong] = look_at_workload(name);
    if (!wrong.empty())
      rows.push_back({name, "wrong: " + wrong});
    else
      rows.push_back(
          {name, w.title, w.input.empty() ? "its own inputs" : sizes(w.input), str("batch ", w.batch)});
  }
  print_rows(rows);
  std::printf("\nStudies\n");
  rows.clear();
  for (const std::string& name : study_names()) {
    const StudyRow row = look_at_study(name, available);
    if (!row.wrong.empty())
      rows.push_back({name, "wrong: " + row.wrong});
    else
      rows.push_back(
          {name, row.title,
           str(row.runnable, " of ", row.cells, " cells can run here",
               row.missing ? str(", ", row.missing, " missing") : "",
               row.workloads.empty() ? "" : str(", ", row.workloads.size(), " workloads of its own"))});
  }
  print_rows(rows);
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* cmd = app.add_subcommand("list", "frameworks (and why one is absent), workloads and studies");
  cmd->add_flag("--json", *json, "print one JSON object");
  cmd->callback([json, &action] { action = [json] { *json ? list_json() : list_text(); }; });
}

void add_setup(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::string> names;
    bool no_build = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd =
      app.add_subcommand("setup", "make the virtual environments of the peers; says what it installs");
  cmd->add_option("NAME", flags->names, "frameworks (default: all)");
  cmd->add_flag("--no-build", flags->no_build, "install packages alone; build no driver");
  cmd->callback([flags, &action] {
    action = [flags] {
      const Machine machine = Machine::here(lab_home());
      const auto drivers = read_drivers(machine.home);
      std::vector<std::string> names = flags->names;
      if (names.empty())
        for (const DriverInfo& info : drivers) names.push_back(info.name);
      for (const std::string& name : names)
        as_usage(
            [&] { find_driver(drivers, name); });  // all names first: nothing is installed for a typing error
      SetupOptions options;
      options.build = !flags->no_build;
      options.say = [](const std::string& text) { std::printf("%s\n", text.c_str()), std::fflush(stdout); };
      std::vector<std::string> failed;
      for (const std::string& name : names) {
        try {
          if (setup(find_driver(drivers, name), machine, drivers, options) == SetupResult::impossible &&
              !flags->names.empty())
            failed.push_back(name);
        } catch (const Error& error) {
          // The others may still come: each failure is said where it happens, and the command fails at the end.
          std::fprintf(stderr, "tandem lab: %s\n", error.what());
          failed.push_back(name);
        }
      }
      TD_CHECK(failed.empty(),
               "setup: every framework that was named must come; these did not: ", joined(failed),
               ". The lines above say why.");
    };
  });
}

}  // namespace tandem::lab
