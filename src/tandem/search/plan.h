// What is fixed when a search begins: its models, its space, its rungs, its data; and what a trial's run is made of.
#pragma once

#include <string>
#include <vector>

#include "tandem/search/search.h"
#include "tandem/train/callbacks.h"
#include "tandem/zoo/zoo.h"

namespace tandem::search {

/// A model that a search begins from.
struct Candidate {
  std::string name;      ///< as the space and the command know it: "lenet", "./mynet.toml", "simple_cnn"
  bool is_named = true;  ///< train() takes that name; else only its description
  zoo::ModelDescription description;
};

struct Plan {
  std::vector<Candidate> candidates;
  Space space;
  std::string data, where;           ///< name of the data set, and where it was found
  std::string taken;                 ///< TrainingData::taken
  std::vector<std::string> notices;  ///< of opening it
  MetricInfo metric;                 ///< "valid_accuracy"
  std::string monitor;               ///< its plain name
  std::vector<int64_t> rungs;
  int64_t train_samples = 0, valid_samples = 0, test_samples = 0;
  std::string train_data, valid_data, test_data;                ///< data::fingerprint
  std::vector<std::pair<std::string, std::string>> data_names;  ///< fingerprints_of_names
  std::string task;                                             ///< its name and settings
  std::string weights;  ///< SHA-256 of those that trials begin with; empty: drawn
  double valid = 0.1;
};
Plan make_plan(const SearchConfig& config);

/// The space's point nearest to the usual way to train the first model as it is.
Point usual_point(const Plan& plan, const SearchConfig& config);

/// A trial's run, but for its folder, its length and its callbacks.
struct TrialPlan {
  TrainConfig config;  ///< `model` empty: it is the description's
  zoo::ModelDescription description = {};
  Settings settings = {};  ///< what the run has of the point
};
TrialPlan trial_plan(const Plan& plan, const SearchConfig& config, const Trial& trial);

/// "tandem train …": `model` is a name or the path of a description.
std::string train_command(const Plan& plan, const TrialPlan& trial, const std::string& model, int64_t epochs);

}  // namespace tandem::search
