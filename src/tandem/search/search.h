// Searching for better settings and a better shape of a model: many short training runs, of which the best go on.
//   search::SearchConfig config{.trials = 20};
//   config.base.model = "lenet";
//   const search::SearchResult result = search::search(config);
// Trials are ordinary runs in folders of their own. They are judged by samples held out from training, never by the test
// part: that is measured once, for the winner. The search is one process, its trials come one after the other, and its
// proposals are a function of the seed and the trials before: killed and resumed it makes the same ones.
//   search.json                    all that a search needs to go on, written after every event
//   trials/0001 …                  the runs, each with model.toml where its model is not one of the zoo
//   leaderboard.csv, search.svg    the trials, the best first; the best value over time
//   winner.toml                    the model of the best trial
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tandem/search/space.h"
#include "tandem/train/config.h"
#include "tandem/train/metrics.h"

namespace tandem::search {

struct SearchConfig {
  /// What all trials have in common, by train()'s rules. `model` empty: the search begins from the models of the zoo that
  /// take the samples of `data`, and a template. `epochs`: the most that a trial gets (unset: 9). `valid`: 0 means 0.1.
  /// `out` empty: runs/search-<model or data>, or the next free …-<n>; `resume`: go on with the search there.
  TrainConfig base = {};
  std::string method = "tpe";  ///< tpe (with successive halving), asha (the same, drawn evenly) or random
  std::optional<Space> space = {};     ///< unset: default_space
  std::optional<double> budget = {};   ///< seconds, over all processes of the search; unset: no limit
  std::optional<int64_t> trials = {};  ///< how many begin; unset: no limit (the budget is one then)
  std::string monitor = {};            ///< a metric's plain name: "accuracy"; empty: the task's first
  int64_t eta = 3;                     ///< successive halving: one trial in eta goes on
};
/// Throws Error for the first setting that cannot be.
void check(const SearchConfig& config);

struct Trial {
  int64_t number = 0;  ///< from 1
  Point point = {};
  Settings settings = {};           ///< as its run has them
  std::string model = {};           ///< its name: of the zoo, or of the description that was varied
  std::vector<double> values = {};  ///< of the monitored metric on the validation part, one per epoch
  std::vector<double> losses = {};  ///< likewise of the loss
  int64_t reached = 0;              ///< rungs
  bool running = false;             ///< on the way to its next rung
  std::string failed = {};          ///< why; empty: it did not
  int64_t parameters = 0;           ///< elements of the model's
  double seconds = 0;               ///< that its runs took
  struct Mark {
    double seconds, value;  ///< of the search so far, and the best value by then
  };
  std::vector<Mark> marks = {};  ///< one per rung

  std::optional<size_t> best_epoch(bool higher_is_better) const;  ///< its place in `values`
};

/// The places of trials, the best first: by value, then by the loss of that epoch, then the earlier one; failed ones last.
std::vector<size_t> ranking(const std::vector<Trial>& trials, bool higher_is_better);

struct SearchStartEvent {
  std::vector<std::string> models;
  std::string data, where, method, out;
  std::string taken = {};                 ///< what a limit took of the samples, as a line; empty: all
  std::vector<std::string> notices = {};  ///< what opening the data says, one line each
  Space space;
  MetricInfo metric;           ///< that trials are judged by: "valid_accuracy"
  std::vector<int64_t> rungs;  ///< epochs at which trials are compared
  int64_t train_samples = 0, valid_samples = 0, test_samples = 0;
  int64_t trials_done = 0;  ///< before, where resumed
  double seconds = 0;       ///< likewise
};
/// A trial begins or goes on.
struct TrialStartEvent {
  Trial trial;
  int64_t to_epoch = 0;
  double seconds = 0;
};
struct TrialEpochEvent {
  int64_t trial = 0, epoch = 0, to_epoch = 0;
  double value = 0, seconds = 0;
  std::optional<double> best = {};  ///< of all trials
};
/// It has reached its next rung, failed, or was stopped on the way (Trial::running).
struct TrialEndEvent {
  Trial trial;
  bool is_best = false;  ///< of all trials so far
  double seconds = 0;
};
struct SearchResult {
  std::string out;
  MetricInfo metric;
  std::vector<Trial> trials;          ///< in the order in which they began
  std::vector<size_t> ranked;         ///< their places, the best first
  std::optional<size_t> winner = {};  ///< its place; none where no trial has finished an epoch
  std::string winner_folder = {};     ///< of its run; best.safetensors has the weights of its best epoch
  std::string winner_model = {};      ///< path of its description
  std::string winner_command = {};    ///< that repeats it
  std::vector<Metric> test = {};      ///< "test_accuracy" …, of those weights
  std::vector<MetricInfo> test_infos = {};
  double seconds = 0;      ///< over all processes
  std::string ended = {};  ///< why: "budget", "trials" or "interrupted"
};

using SearchEvent =
    std::variant<SearchStartEvent, TrialStartEvent, TrialEpochEvent, TrialEndEvent, SearchResult>;
using SearchSink = std::function<void(const SearchEvent&)>;

/// Runs a search, or goes on with one. Throws Error where a setting is wrong or nothing can be written; a trial that
/// cannot be built, runs out of memory or whose loss is no number is recorded with its reason, and the search goes on.
SearchResult search(const SearchConfig& config, const SearchSink& sink = {});

}  // namespace tandem::search
