// The one training loop, and its companions: testing a saved run, and explaining what the graph engine makes of a
// training step. None of them prints.
#pragma once

#include <string>
#include <vector>

#include "tandem/graph/compile.h"
#include "tandem/train/config.h"
#include "tandem/train/events.h"

namespace tandem {

/// Trains. Writes checkpoints and the final weights into the folder of the run and tells `sink` how it goes. The
/// same settings give the same bits, on any number of threads, with either engine, stopped and resumed or not.
/// Throws Error where a setting is wrong, a file cannot be read or written, or the loss is no longer finite.
DoneEvent train(const TrainConfig& config, const EventSink& sink = {});

struct EvalConfig {
  std::string folder = {};    ///< of a run (TrainConfig::out)
  std::string data = {};      ///< empty: the data set that it was trained on
  std::string data_dir = {};  ///< empty: the usual places
  Engine engine = Engine::graph;
  Device device = {};
  std::optional<int64_t> threads = {};
  std::optional<int64_t> limit = {};  ///< test on the first so many samples
};

/// Throws Error for the first setting that cannot be.
void check(const EvalConfig& config);

struct EvalReport {
  std::string model, data, path;  ///< path: the file of weights
  int64_t samples = 0;
  double test_loss = 0, test_accuracy = 0, seconds = 0;
  std::string weights_sha256;
  std::vector<std::string> warnings;
};

/// Tests a saved run on the test set.
EvalReport evaluate(const EvalConfig& config);

/// Compiles one training step of config's model, optimiser, batch, dtype and device on made-up data, and reports.
GraphReport explain(const TrainConfig& config, const CompileOptions& options = {});

}  // namespace tandem
