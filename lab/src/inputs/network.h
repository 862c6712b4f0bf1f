// The networks of the lab. A description, from networks/NAME.toml or from the workload itself, is turned into the straight line that
// the protocol sends to the drivers.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/src/study/study.h"
#include "tandem/zoo/description.h"

namespace tandem::lab {

/// The network of a workload, with as many outputs as the workload has classes.
struct Network {
  zoo::ModelDescription description;  // empty if is_whole
  zoo::StraightLine line;
  bool is_whole = false;  // no list of layers: its only call is a class of the zoo (protocol/whole_model.h)
  std::map<std::string, Whole> ranges = {};  // of inputs of whole numbers, if the network's file has them
  Json targets = Json::object();             // the workload's
  Json json() const;                         // as `prepare` has it: lab/docs/protocol.md

  int64_t sample_bytes() const;  // of all inputs and targets
  /// Makes the module, with weights drawn from this thread's generator.
  std::unique_ptr<nn::Module> make() const;
};

/// `input`: the sizes of a sample of the only input; empty: as the workload or the description has them. Throws Error if the file
/// breaks a rule, or if the workload's loss does not fit the network's outputs.
Network load_network(const Workload& workload, const std::vector<int64_t>& input = {});

/// Throws the same errors, except those that the class of a whole model has for its settings: making the class would take the
/// memory of all weights.
void check_network(const Workload& workload);

/// Whether the network has dropout.
bool has_dropout(const Network& network);

/// The numbers of an input are below this: the rows of the embedding that reads it, or the end of its range. 0 if it has neither.
int64_t embedding_rows(const Network& network, const std::string& input);

}  // namespace tandem::lab
