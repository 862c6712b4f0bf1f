// tandem lab run STUDY: takes a study's runs, and writes its report.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/src/command/study_flags.h"
#include "lab/src/report/report.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

struct Flags : StudyFlags {
  std::string study;
  std::vector<std::string> frameworks, workloads, parts;
};

void run(const Flags& flags, const std::vector<std::string>& arguments) {
  const RunnerOptions options = flags.options(flags.study);
  PlanOptions wanted;
  wanted.frameworks = flags.frameworks;
  wanted.workloads = flags.workloads;
  wanted.parts = flags.parts;
  wanted.device = flags.device;
  wanted.drivers = flags.drivers;
  wanted.quick = flags.quick;
  wanted.runs = flags.runs;
  Plan plan;
  as_usage([&] { plan = make_plan(flags.study, wanted); });
  const StudyOutcome outcome = take(plan, flags, options, arguments);

  const std::vector<std::string> files = write_report(options.folder);
  const Results results = load_results(options.folder);
  const Analysis analysis = analyse(results);
  if (flags.json) {
    nlohmann::ordered_json end = {{"event", "end"}, {"warnings", report_warnings(results, analysis)}};
    end.update({{"folder", options.folder},
                {"taken", outcome.taken},
                {"failed", outcome.failed},
                {"disturbed", outcome.disturbed},
                {"left_out", outcome.left_out},
                {"over_budget", outcome.over_budget},
                {"files", files}});
    std::printf("%s\n", end.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s", terminal_report(results, analysis, terminal_width()).c_str());
    for (const std::string& file : files) std::printf("%s\n", file.c_str());
  }
  const bool any = std::any_of(results.runs.begin(), results.runs.end(),
                               [](const Run& r) { return r.status == Status::ok; });
  TD_CHECK(any, "run: at least one run must end well; got none: ",
           results.runs.empty() ? "there is no record" : results.runs.front().why, ". See ", options.folder,
           ".");
}

}  // namespace

void add_run(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand("run", "run a study and write its report; one that was stopped goes on");
  cmd->add_option("STUDY", flags->study, "a study of 'tandem lab list', or a file")->required();
  cmd->add_option("--frameworks", flags->frameworks, "tandem pytorch:eager … (default: the study's)")
      ->delimiter(',');
  cmd->add_option("--workloads", flags->workloads, "lenet mnist_cnn … (default: the study's)")
      ->delimiter(',');
  cmd->add_option("--parts", flags->parts, "parts of the study (default: all)")->delimiter(',');
  cmd->add_option(
      "--drivers", flags->drivers,
      "a file in the form of drivers.toml with further frameworks, such as another build of Tandem");
  flags->add(*cmd);
  cmd->callback([flags, arguments, &action] { action = [flags, arguments] { run(*flags, arguments); }; });
}

}  // namespace tandem::lab
