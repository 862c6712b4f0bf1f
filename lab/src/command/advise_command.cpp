// tandem lab advise MODEL: measures what is installed, and says which of it to take.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/src/claims/advise.h"
#include "lab/src/command/study_flags.h"
#include "lab/src/measure/schedule.h"
#include "lab/src/report/report.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

struct AdviseFlags : StudyFlags {
  std::string model, goal = "time", phase = "train";
};

void run_advise(const AdviseFlags& flags, const std::vector<std::string>& arguments) {
  Goal goal = Goal::time;
  as_usage([&] { goal = parse_goal(flags.goal); });
  const RunnerOptions options = flags.options("advise-" + flags.model);
  Plan plan;
  as_usage([&] { plan = make_advice_plan(flags.model, flags.device, goal, flags.quick, flags.phase); });
  const int64_t usual = block_count(plan.cells);
  if (flags.runs)
    for (Cell& cell : plan.cells)
      cell.effort.runs = cell.effort.runs == usual ? *flags.runs : (*flags.runs + 1) / 2;
  take(plan, flags, options, arguments);
  const Results results = load_results(options.folder);
  const Analysis analysis = analyse(results);
  const Advice advice = advise(results, analysis, goal, flags.phase);
  const std::vector<std::string> warnings = report_warnings(results, analysis);
  if (flags.json) {
    nlohmann::ordered_json line = {{"event", "advice"}, {"warnings", warnings}};
    line.update(nlohmann::ordered_json(to_json(advice)));
    line["folder"] = options.folder;
    std::printf("%s\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    for (const std::string& warning : warnings)
      std::printf("Read with care: %s\n", io::one_line(warning, warning.size()).c_str());
    std::printf("%s%s\n", advice_text(advice).c_str(), options.folder.c_str());
  }
}

}  // namespace

void add_advise(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  auto flags = std::make_shared<AdviseFlags>();
  CLI::App* cmd = app.add_subcommand(
      "advise", "which framework, engine, batch size and precision for a model on this machine");
  cmd->add_option("MODEL", flags->model, "a workload of 'tandem lab list'")->required();
  cmd->add_option("--goal", flags->goal, "time, memory or energy")->capture_default_str();
  cmd->add_option("--phase", flags->phase, "train or infer")->capture_default_str();
  flags->add(*cmd);
  cmd->callback(
      [flags, arguments, &action] { action = [flags, arguments] { run_advise(*flags, arguments); }; });
}

}  // namespace tandem::lab
