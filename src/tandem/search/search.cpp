// The loop of a search: which trial is next, its run, what came of it.
#include "tandem/search/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <new>

#include "tandem/core/threads.h"
#include "tandem/search/halving.h"
#include "tandem/search/plan.h"
#include "tandem/search/state.h"
#include "tandem/search/tpe.h"
#include "tandem/search/watch.h"
#include "tandem/train/train.h"

namespace tandem::search {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMostFailures = 10;  // at the start and in a row: then it is not the trials that are wrong
constexpr double kLastPart = 0.7;      // of a budget: after it the leaders come first
constexpr double kEpochShare = 0.05;   // of a budget: what an epoch may take
constexpr int64_t kFinalists = 3;      // that should have their full length within a budget

class Search {
 public:
  Search(const SearchConfig& config, const SearchSink& sink)
      : config_(config), sink_(sink), plan_(make_plan(config)), folder_(open_folder(config)) {
    const std::string settings = settings_json(config, plan_);
    if (config.base.resume)
      state_ = load_state(folder_.path, settings);
    else
      state_.settings = settings;
    seconds_before_ = state_.seconds;
  }
  SearchResult run();

 private:
  double seconds() const {
    return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  }
  bool is_stopped() const { return config_.base.stop && *config_.base.stop; }
  bool is_spent() const { return config_.budget && seconds() >= *config_.budget; }
  void tell(const SearchEvent& event) const {
    if (sink_) sink_(event);
  }
  void save() {
    state_.seconds = seconds();
    folder_.lock.check();
    save_state(folder_.path, state_);
  }
  double score(double value) const { return plan_.metric.higher_is_better ? value : -value; }
  std::vector<Scores> standings() const;
  std::vector<Point> best_first() const;
  Trial* next_trial();
  Trial* begin_trial();
  void run_trial(Trial& trial);
  void train_trial(Trial& trial, const TrialPlan& made);
  void take_history(Trial& trial, const std::vector<EpochMetrics>& history);
  void check_failures() const;
  SearchResult result();

  const SearchConfig& config_;
  const SearchSink& sink_;
  const Clock::time_point start_ = Clock::now();
  const Plan plan_;
  SearchFolder folder_;
  SearchState state_;
  double seconds_before_ = 0;
};

/// The score of each trial at each rung that it has reached.
std::vector<Scores> Search::standings() const {
  std::vector<Scores> out;
  for (const Trial& trial : state_.trials) {
    Scores scores;
    double best = -std::numeric_limits<double>::infinity();
    size_t epoch = 0;
    for (int64_t rung = 0; rung < trial.reached; ++rung) {
      const auto end = static_cast<size_t>(plan_.rungs[static_cast<size_t>(rung)]);
      for (; epoch < std::min(end, trial.values.size()); ++epoch)
        best = std::max(best, score(trial.values[epoch]));
      scores.push_back(best);
    }
    if (!trial.failed.empty()) scores.push_back(-std::numeric_limits<double>::infinity());
    out.push_back(std::move(scores));
  }
  return out;
}

/// The points of finished trials: who has come further was better where they were compared; then by score.
std::vector<Point> Search::best_first() const {
  const std::vector<Scores> scores = standings();
  std::vector<size_t> order;
  for (size_t i = 0; i < scores.size(); ++i)
    if (!scores[i].empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool fails_a = !state_.trials[a].failed.empty(), fails_b = !state_.trials[b].failed.empty();
    if (fails_a != fails_b) return fails_b;
    if (scores[a].size() != scores[b].size()) return scores[a].size() > scores[b].size();
    return scores[a].back() > scores[b].back();
  });
  std::vector<Point> out;
  for (const size_t place : order) out.push_back(state_.trials[place].point);
  return out;
}

/// The trial that trains now; null: the search has come to its end.
Trial* Search::next_trial() {
  for (Trial& trial : state_.trials)
    if (trial.running) return &trial;  // of a process before
  const std::vector<Scores> scores = standings();
  const size_t rungs = plan_.rungs.size();
  const bool may_begin = !config_.trials || static_cast<int64_t>(state_.trials.size()) < *config_.trials;
  const bool is_last_part = config_.budget && seconds() >= kLastPart * *config_.budget;
  std::optional<size_t> promoted = next_promotion(scores, rungs, config_.eta);
  if (is_last_part || (!promoted && !may_begin))
    if (const auto leader = next_leader(scores, rungs, is_last_part ? kFinalists : 1)) promoted = leader;
  if (promoted) return &state_.trials[*promoted];
  return may_begin ? begin_trial() : nullptr;
}

Trial* Search::begin_trial() {
  const auto number = static_cast<int64_t>(state_.trials.size()) + 1;
  const uint64_t seed = config_.base.seed;
  Trial trial{.number = number};
  trial.point = number == 1               ? usual_point(plan_, config_)
                : config_.method == "tpe" ? tpe_point(plan_.space, best_first(), number, {.seed = seed})
                                          : random_point(plan_.space, seed, number);
  state_.trials.push_back(std::move(trial));
  return &state_.trials.back();
}

void Search::take_history(Trial& trial, const std::vector<EpochMetrics>& history) {
  trial.values.clear();
  trial.losses.clear();
  for (const EpochMetrics& row : history) {
    const double value = row[plan_.metric.name], loss = row["valid_loss"];
    TD_CHECK(std::isfinite(value) && std::isfinite(loss), "search: ", plan_.metric.name, " became ", value,
             " and valid_loss ", loss, " in epoch ", row.epoch, ". Narrow the space.");
    trial.values.push_back(value);
    trial.losses.push_back(loss);
  }
}

/// Trains it up to its next rung. Throws what train() throws.
void Search::train_trial(Trial& trial, const TrialPlan& made) {
  const std::string folder = trial_folder(folder_.path, trial.number);
  TrainConfig run = made.config;
  run.out = folder;
  run.resume = fs::exists(fs::path(folder) / "config.json");
  run.epochs = plan_.rungs[static_cast<size_t>(trial.reached)];
  if (run.model.empty()) {
    run.model = (fs::path(folder) / "model.toml").string();
    std::error_code ignored;  // writing says what is wrong
    fs::create_directories(folder, ignored);
    io::write_atomically(run.model,
                         [&](io::OutputFile& file) { file.write(zoo::to_toml(made.description)); });
  }
  std::atomic<bool> stop{false};
  run.stop = &stop;
  std::optional<double> most_seconds;  // the first trial is the model as it is, which always gets its epoch
  if (config_.budget && trial.reached == 0 && trial.number > 1) most_seconds = *config_.budget * kEpochShare;
  run.callbacks.push_back(
      std::make_shared<Watch>([this] { return is_stopped() || is_spent(); }, stop, most_seconds));
  run.callbacks.push_back(listen([&](const StartEvent& begun) { trial.parameters = begun.parameters; }));
  run.callbacks.push_back(listen([&](const EpochEvent& epoch) {
    const double value = epoch[plan_.metric.name];
    std::optional<double> best = value;
    for (const Trial& other : state_.trials)
      for (const double v : other.values)
        if (other.failed.empty() && score(v) > score(*best)) best = v;
    tell(TrialEpochEvent{trial.number, epoch.epoch, *run.epochs, value, seconds(), best});
    save();  // the time that was used
  }));
  const DoneEvent done = train(run);
  take_history(trial, done.history);
  if (done.interrupted) return;
  trial.running = false;
  ++trial.reached;
  const double value = trial.values[*trial.best_epoch(plan_.metric.higher_is_better)];
  trial.marks.push_back({seconds(), value});
}

void Search::run_trial(Trial& trial) {
  const double began = seconds();
  trial.running = true;
  const auto fail = [&](const std::string& why) {
    trial.failed = io::one_line(why, 500);
    trial.running = false;
  };
  try {
    const TrialPlan made = trial_plan(plan_, config_, trial);
    trial.settings = made.settings;
    trial.model = made.description.name;
    save();
    tell(TrialStartEvent{trial, plan_.rungs[static_cast<size_t>(trial.reached)], began});
    train_trial(trial, made);
  } catch (const OutOfMemory& error) {
    fail(error.what());
  } catch (const std::bad_alloc&) {
    fail("this machine has not enough memory");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;  // a full disk or a lost device is no fault of the trial
    fail(error.what());
  }
  trial.seconds += seconds() - began;
  save();
  write_reports(folder_.path, plan_, state_);
  const auto place = static_cast<size_t>(&trial - state_.trials.data());
  const bool is_best =
      ranking(state_.trials, plan_.metric.higher_is_better)[0] == place && trial.failed.empty();
  tell(TrialEndEvent{trial, is_best, seconds()});
  check_failures();
}

void Search::check_failures() const {
  const auto failed = [](const Trial& trial) { return !trial.failed.empty(); };
  TD_CHECK(static_cast<int64_t>(state_.trials.size()) < kMostFailures ||
               !std::all_of(state_.trials.begin(), state_.trials.end(), failed),
           "search: some trial must succeed; all of the first ", state_.trials.size(),
           " failed, the last with: ", state_.trials.back().failed);
}

SearchResult Search::result() {
  const bool higher = plan_.metric.higher_is_better;
  SearchResult out{.out = folder_.path,
                   .metric = plan_.metric,
                   .trials = state_.trials,
                   .ranked = ranking(state_.trials, higher)};
  out.ended = is_stopped() ? "interrupted" : is_spent() ? "budget" : "trials";
  if (!out.ranked.empty()) {
    const Trial& best = state_.trials[out.ranked[0]];
    if (best.failed.empty() && best.best_epoch(higher)) out.winner = out.ranked[0];
  }
  if (out.winner) {
    const Trial& best = state_.trials[*out.winner];
    const TrialPlan made = trial_plan(plan_, config_, best);
    out.winner_folder = trial_folder(folder_.path, best.number);
    out.winner_model = (fs::path(folder_.path) / "winner.toml").string();
    io::write_atomically(out.winner_model,
                         [&](io::OutputFile& file) { file.write(zoo::to_toml(made.description)); });
    out.winner_command =
        train_command(plan_, made, made.config.model.empty() ? out.winner_model : made.config.model,
                      static_cast<int64_t>(best.values.size()));
    if (out.ended != "interrupted") {
      const TrainConfig& base = config_.base;
      const EvalReport report = evaluate(EvalConfig{.folder = out.winner_folder,
                                                    .data_dir = base.data_dir,
                                                    .engine = base.engine,
                                                    .device = base.device,
                                                    .machine = base.machine,
                                                    .limit = base.limit,
                                                    .best = true});
      for (const Metric& metric : report.metrics.values)
        out.test.push_back({"test_" + metric.name, metric.value});
      out.test_infos = {{"test_loss"}};
      for (MetricInfo info : report.infos) {
        info.name = "test_" + info.name;
        out.test_infos.push_back(std::move(info));
      }
    }
  }
  out.seconds = seconds();
  return out;
}

SearchResult Search::run() {
  SearchStartEvent event{.models = {},
                         .data = plan_.data,
                         .where = plan_.where,
                         .method = config_.method,
                         .out = folder_.path,
                         .taken = plan_.taken,
                         .notices = plan_.notices,
                         .space = plan_.space,
                         .metric = plan_.metric,
                         .rungs = plan_.rungs,
                         .train_samples = plan_.train_samples,
                         .valid_samples = plan_.valid_samples,
                         .test_samples = plan_.test_samples,
                         .trials_done = static_cast<int64_t>(state_.trials.size()),
                         .seconds = seconds_before_};
  for (const Candidate& row : plan_.candidates) event.models.push_back(row.name);
  tell(event);
  save();
  while (!is_stopped() && !is_spent()) {
    Trial* trial = next_trial();
    if (!trial) break;
    run_trial(*trial);
  }
  save();
  write_reports(folder_.path, plan_, state_);
  SearchResult out = result();
  tell(out);
  return out;
}

}  // namespace

void check(const SearchConfig& config) {
  const TrainConfig& base = config.base;
  TD_CHECK(config.method == "tpe" || config.method == "asha" || config.method == "random",
           "method: must be tpe, asha or random; got '", io::one_line(config.method, 60), "'.");
  TD_CHECK(config.budget || config.trials,
           "search: must have an end; got neither a budget nor a number of trials. Give `budget` 30m or "
           "`trials` 50.");
  check_number("budget", config.budget, 0, false);
  check_between("trials", config.trials, 1);
  check_between("eta", config.eta, 2, 1000);
  check_between("epochs", base.epochs, 1);
  TD_CHECK(!base.steps, "search: trials are counted in epochs; got steps. Give epochs.");
  TD_CHECK(base.callbacks.empty() && !base.own_optimizer && !base.validation && !base.test,
           "search: each trial has an optimizer, callbacks and data of its own; got some that are shared. "
           "Leave them out.");
  if (config.space) check(*config.space);
  const bool has_models = config.space && config.space->find("model");
  TD_CHECK(
      !base.model.empty() || !base.data.empty() || has_models,
      "search: must have a model or a data set to begin from; got neither. Name one: tandem search lenet.");
  TrainConfig sample = base;  // what trials have in common, by the rules of a run
  if (sample.model.empty()) sample.model = "lenet";
  check(sample);
}

SearchResult search(const SearchConfig& config, const SearchSink& sink) {
  check(config);
  const MachineScope machine(config.base.machine);
  check_device(config.base.device);
  return Search(config, sink).run();
}

}  // namespace tandem::search
