// tandem lab advise MODEL: measures what is installed, and says which of it to take.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/src/claims/advise.h"
#include "lab/src/command/study_flags.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

struct Flags : StudyFlags {
  std::string model, goal = "time", phase = "train";
};

void run(const Flags& flags, const std::vector<std::string>& arguments) {
  Goal goal = Goal::time;
  as_usage([&] { goal = parse_goal(flags.goal); });
  const RunnerOptions options = flags.options("advise-" + flags.model);
  Plan plan;
  as_usage([&] { plan = make_advice_plan(flags.model, flags.device, goal, flags.quick, flags.phase); });
  if (flags.runs)
    for (Cell& cell : plan.cells) cell.effort.runs = *flags.runs;
  take(plan, flags, options, arguments);
  const Results results = load_results(options.folder);
  const Advice advice = advise(results, analyse(results), goal, flags.phase);
  if (flags.json) {
    Json line = to_json(advice);
    line["event"] = "advice";
    line["folder"] = options.folder;
    std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s%s\n", advice_text(advice).c_str(), options.folder.c_str());
  }
}

}  // namespace

void add_advise(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand(
      "advise", "which framework, engine, batch size and precision for a model on this machine");
  cmd->add_option("MODEL", flags->model, "a workload of 'tandem lab list'")->required();
  cmd->add_option("--goal", flags->goal, "time, memory or energy")->capture_default_str();
  cmd->add_option("--phase", flags->phase, "train or infer")->capture_default_str();
  flags->add(*cmd);
  cmd->callback([flags, arguments, &action] { action = [flags, arguments] { run(*flags, arguments); }; });
}

}  // namespace tandem::lab
