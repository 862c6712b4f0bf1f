// The networks of the lab: descriptions in networks/NAME.toml, or in a workload itself, worked out into the straight line that the protocol
// carries to the drivers.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/src/study/study.h"
#include "tandem/zoo/description.h"

namespace tandem::lab {

/// A workload's network for samples of these sizes (of its only input; empty: its own), with as many outputs as the
/// workload has classes.
struct Network {
  zoo::ModelDescription description;  // empty where is_whole
  zoo::StraightLine line;
  bool is_whole = false;  // no list of layers: its only call is a class of the zoo (protocol/whole_model.h)
  std::map<std::string, Whole> ranges = {};  // of whole numbers, by input, where the network's file says them
  Json targets = Json::object();             // the workload's
  Json json() const;                         // as `prepare` carries it: lab/docs/protocol.md

  int64_t sample_bytes() const;  // of all inputs and targets
  /// With weights drawn from this thread's generator.
  std::unique_ptr<nn::Module> make() const;
};

/// Throws Error where the file breaks a rule, or where the workload's loss does not fit what the network gives.
Network load_network(const Workload& workload, const std::vector<int64_t>& input = {});

/// Throws the same, but for what the class of a whole model says to its settings: that would take the memory of all weights.
void check_network(const Workload& workload);

/// Whether a layer of it leaves numbers out by chance.
bool has_dropout(const Network& network);

/// Rows of the embedding that reads an input, or the end of its range: its numbers are below that. 0 where none does.
int64_t embedding_rows(const Network& network, const std::string& input);

}  // namespace tandem::lab
