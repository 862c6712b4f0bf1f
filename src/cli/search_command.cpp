// tandem search MODEL|DATA: the flags, and what is printed.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "cli/stopping.h"
#include "tandem/core/error.h"
#include "tandem/core/nearest.h"
#include "tandem/data/registry.h"
#include "tandem/search/search.h"
#include "tandem/zoo/zoo.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;
using search::SearchResult;
using search::Trial;

constexpr size_t kShownTrials = 15;

/// "lr 0.003, batch 64, adam".
std::string settings_text(const search::Settings& settings) {
  std::string out;
  for (const auto& [name, value] : settings) {
    const bool says_itself =
        name == "optimizer" || name == "schedule" || name == "activation" || name == "model";
    out += (out.empty() ? "" : ", ") + (says_itself ? value : title_of(name) + " " + value);
  }
  return out;
}

ordered_json json_of(const Trial& trial) {
  ordered_json settings = ordered_json::object();
  for (const auto& [name, value] : trial.settings) settings[name] = value;
  ordered_json out = {{"trial", trial.number},         {"model", trial.model},   {"settings", settings},
                      {"epochs", trial.values.size()}, {"values", trial.values}, {"seconds", trial.seconds}};
  if (!trial.failed.empty()) out["failed"] = with_flags(trial.failed);
  return out;
}

class JsonSink {
 public:
  void operator()(const search::SearchStartEvent& e) {
    for (const std::string& notice : e.notices) print({{"event", "notice"}, {"text", notice}});
    print({{"event", "start"},
           {"models", e.models},
           {"data", e.data},
           {"data_found", e.where},
           {"method", e.method},
           {"metric", e.metric.name},
           {"rungs", e.rungs},
           {"space", e.space.to_toml()},
           {"train_samples", e.train_samples},
           {"valid_samples", e.valid_samples},
           {"test_samples", e.test_samples},
           {"samples_taken", e.taken},
           {"trials_done", e.trials_done},
           {"seconds", e.seconds},
           {"out", e.out}});
  }
  void operator()(const search::TrialStartEvent& e) {
    ordered_json line = {{"event", "trial"}};
    line.update(json_of(e.trial));
    line["to_epoch"] = e.to_epoch;
    line["search_seconds"] = e.seconds;
    print(line);
  }
  void operator()(const search::TrialEpochEvent& e) {
    print({{"event", "epoch"},
           {"trial", e.trial},
           {"epoch", e.epoch},
           {"to_epoch", e.to_epoch},
           {"value", e.value},
           {"best", *e.best},
           {"search_seconds", e.seconds}});
  }
  void operator()(const search::TrialEndEvent& e) {
    ordered_json line = {{"event", "trial_end"}};
    line.update(json_of(e.trial));
    line["is_best"] = e.is_best;
    line["search_seconds"] = e.seconds;
    print(line);
  }
  void operator()(const SearchResult& e) {
    ordered_json ranking = ordered_json::array();
    for (const size_t place : e.ranked) ranking.push_back(e.trials[place].number);
    ordered_json line = {
        {"event", "done"}, {"ended", e.ended}, {"trials", e.trials.size()}, {"ranking", ranking}};
    if (e.winner) {
      const Trial& best = e.trials[*e.winner];
      line["winner"] = best.number;
      line[e.metric.name] = best.values[*best.best_epoch(e.metric.higher_is_better)];
      for (const Metric& metric : e.test) line[metric.name] = metric.value;
      line["winner_folder"] = e.winner_folder;
      line["winner_model"] = e.winner_model;
      line["command"] = e.winner_command;
    }
    line["seconds"] = e.seconds;
    line["out"] = e.out;
    print(line);
  }

 private:
  static void print(const ordered_json& line) {
    print_line(line);
    std::fflush(stdout);
  }
};

class TextSink {
 public:
  void operator()(const search::SearchStartEvent& e) {
    metric_ = e.metric;
    for (const std::string& notice : e.notices) std::fprintf(stderr, "tandem: %s\n", notice.c_str());
    Table table;
    std::string models, rungs, names;
    for (const std::string& model : e.models) models += (models.empty() ? "" : ", ") + model;
    for (const int64_t rung : e.rungs) rungs += (rungs.empty() ? "" : ", ") + std::to_string(rung);
    for (const search::Parameter& p : e.space.parameters)
      names += (names.empty() ? "" : ", ") + title_of(p.name);
    table.add({"model", models});
    table.add({"data", e.data + ", " + grouped(e.train_samples) + " to train, " + grouped(e.valid_samples) +
                           " to validate, " + grouped(e.test_samples) + " to test, " + e.where});
    if (!e.taken.empty()) table.add({"limit", e.taken});
    table.add({"space", names});
    table.add(
        {"method", e.method + ", by " + title_of(e.metric.name) + ", compared after " + rungs + " epochs"});
    if (e.trials_done > 0)
      table.add({"resumed", str(e.trials_done, " trials, ", duration(e.seconds), " used")});
    table.add({"out", e.out});
    table.print();
    std::fflush(stdout);
  }
  void operator()(const search::TrialStartEvent& e) {
    shown_ = str("trial ", e.trial.number, "  ", settings_text(e.trial.settings));
    live(str("epoch ", e.trial.values.size(), "/", e.to_epoch));
  }
  void operator()(const search::TrialEpochEvent& e) {
    live(str("epoch ", e.epoch, "/", e.to_epoch, "  ", shown(metric_, e.value), "  best ",
             shown(metric_, *e.best)));
  }
  void operator()(const search::TrialEndEvent& e) {
    if (is_terminal_) std::fprintf(stderr, "\r\033[K");
    const std::optional<size_t> best = e.trial.best_epoch(metric_.higher_is_better);
    const std::string what = !e.trial.failed.empty() ? "failed: " + with_flags(e.trial.failed)
                             : best ? shown(metric_, e.trial.values[*best]) + (e.is_best ? " *" : "")
                                    : "stopped";
    std::printf("  %6s s  trial %lld  %zu epochs  %s  %s\n", fixed(e.seconds, 0).c_str(),
                static_cast<long long>(e.trial.number), e.trial.values.size(), what.c_str(),
                settings_text(e.trial.settings).c_str());
    std::fflush(stdout);
  }
  void operator()(const SearchResult& e) {
    Table table({"rank", "trial", title_of(e.metric.name), "epochs", "settings"}, {0, 1, 2, 3});
    for (size_t i = 0; i < std::min(e.ranked.size(), kShownTrials); ++i) {
      const Trial& trial = e.trials[e.ranked[i]];
      const std::optional<size_t> best = trial.best_epoch(e.metric.higher_is_better);
      const std::string value = !trial.failed.empty() ? "failed"
                                : best                ? shown(e.metric, trial.values[*best])
                                                      : "stopped";
      table.add({std::to_string(i + 1), std::to_string(trial.number), value,
                 std::to_string(trial.values.size()), settings_text(trial.settings)});
    }
    std::printf("\n");
    table.print();
    if (e.ranked.size() > kShownTrials)
      std::printf("  … and %zu more in %s/leaderboard.csv\n", e.ranked.size() - kShownTrials, e.out.c_str());
    std::printf("\n");
    Table end;
    end.add({"trials", str(e.trials.size(), " in ", duration(e.seconds))});
    if (e.winner) {
      for (const Metric& metric : e.test)
        for (const MetricInfo& info : e.test_infos)
          if (info.name == metric.name && info.is_main)
            end.add({title_of(metric.name), shown(info, metric.value)});
      end.add({"winner", e.winner_folder + " (best.safetensors)"});
      end.add({"its model", e.winner_model});
      end.add({"again by", e.winner_command});
    } else {
      end.add({"winner", "none"});
    }
    end.print();
  }

 private:
  void live(const std::string& what) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\033[K  %s  %s", what.c_str(), shown_.substr(0, 100).c_str());
    std::fflush(stderr);
  }
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  MetricInfo metric_;
  std::string shown_;
};

template <class Sink>
search::SearchSink sink_of() {
  auto sink = std::make_shared<Sink>();
  return [sink](const search::SearchEvent& event) { std::visit(*sink, event); };
}

/// A model of the zoo, a description, or else a data set.
void take_subject(const std::string& word, TrainConfig& base) {
  const std::vector<std::string> data = data::dataset_names();
  std::vector<std::string> models;
  for (const zoo::ModelInfo& row : zoo::models()) models.push_back(row.name);
  const auto is_in = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  const auto joined = [](const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
    return out;
  };
  if (is_in(models) || zoo::is_description_path(word)) {
    base.model = word;
    return;
  }
  std::vector<std::string> all = models;
  all.insert(all.end(), data.begin(), data.end());
  TD_CHECK(is_in(data), "search: must be given a model (", joined(models),
           "), a description that ends in .toml, or a ", "data set (", joined(data), "); got '", word, "'.",
           did_you_mean(word, all));
  TD_CHECK(base.data.empty() || base.data == word, "search: the data set is named twice; got ", word,
           " and --data ", base.data, ". Leave --data out.");
  base.data = word;
}

/// What all trials have in common. (What is searched has no flag: a space of one value fixes it.)
const std::vector<std::string> kSearchSettings = {
    "data",   "data-dir", "target",        "task",     "input",   "test-share", "valid",  "split-seed",
    "limit",  "augment",  "class-weights", "skip-bad", "weights", "freeze",     "epochs", "accumulate",
    "ema",    "seed",     "engine",        "device",   "dtype",   "half-model", "conv",   "conv-workspace",
    "matmul", "threads",  "out",           "resume"};

constexpr double kValid = 0.1;

/// A search that found nothing has failed, and says why.
void check_found(const SearchResult& result) {
  if (result.winner) return;
  const auto failed = std::find_if(result.trials.begin(), result.trials.end(),
                                   [](const Trial& trial) { return !trial.failed.empty(); });
  TD_CHECK(failed == result.trials.end() || result.ended == "budget", "search: some trial must succeed; all ",
           result.trials.size(), " failed, the first with: ", failed->failed);
  throw Error(str("search: some trial must finish an epoch; none did in ", duration(result.seconds),
                  failed == result.trials.end()
                      ? std::string()
                      : str(", and trial ", failed->number, " failed: ", failed->failed),
                  ". Give more --budget with --resume."));
}

}  // namespace

void add_search(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  struct Flags {
    search::SearchConfig config;
    SettingFlags settings;
    std::string subject, budget, space;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  search::SearchConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("search", "find better settings and a better shape for a model");
  cmd->add_option(
         "MODEL|DATA", flags->subject,
         "a name from 'tandem models', a description (./mynet.toml), or a data set, for which models are "
         "chosen")
      ->required();
  cmd->add_option("--budget", flags->budget, "end after 90s, 30m, 2h … in all");
  cmd->add_option("--trials", c.trials, "begin so many");
  cmd->add_option("--space", flags->space, "TOML file of what is searched (docs/reference/search.md)");
  cmd->add_option(
         "--method", c.method,
         "tpe (learns from the trials before), asha (drawn evenly; both stop weak trials early) or random")
      ->capture_default_str();
  cmd->add_option("--monitor", c.monitor,
                  "metric on the validation part (default: the task's first: accuracy)");
  flags->settings.add(*cmd, kSearchSettings,
                      {{"epochs", "the most that a trial gets (default 9)"},
                       {"valid", "share of the training samples that trials are judged by (default 0.1)"},
                       {"seed", "of the proposals, and of every trial (default 0)"},
                       {"out", "folder (default: runs/search-MODEL, or the next free …-N)"},
                       {"resume", "go on with the search in --out"}});
  cmd->add_flag("--json", flags->json, "print one JSON object per line");
  cmd->callback([flags, cmd, arguments, &action] {
    action = [flags, cmd, arguments] {
      search::SearchConfig& config = flags->config;
      as_usage([&] {
        // Trials are always judged by a part that is held out: --split-seed has something to split.
        config.base = flags->settings.config({{"valid", SettingValue(kValid)}});
        TD_CHECK(
            config.base.valid > 0,
            "valid: a search must hold samples out to judge trials by; got 0. Give a share such as 0.1, or "
            "leave --valid out.");
        take_subject(flags->subject, config.base);
        if (cmd->count("--budget") > 0) config.budget = parse_duration("budget", flags->budget);
        if (!flags->space.empty()) config.space = search::read_space(flags->space);
        check(config);
      });
      config.base.stop = &stop_on_signals();
      const SearchResult result =
          search::search(config, flags->json ? sink_of<JsonSink>() : sink_of<TextSink>());
      if (result.ended != "interrupted") return check_found(result);
      throw Interrupted(str("stopped after ", result.trials.size(),
                            " trials. Go on with: ", resume_command(arguments, result.out)));
    };
  });
}

}  // namespace tandem::cli
