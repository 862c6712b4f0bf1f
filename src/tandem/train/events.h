// What a training run tells while it goes. The loop prints nothing: callbacks hear it (train/callbacks.h, on_event and
// listen).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tandem/train/checkpoint.h"
#include "tandem/train/config.h"

namespace tandem {

struct StartEvent {
  TrainConfig config;  ///< as it was given
  std::string model;   ///< its name, where it has one
  std::string data;    ///< name of the data set
  std::string title;   ///< and what it is called
  std::string where;   ///< and where it was found
  std::string taken;   ///< what `limit` took of its samples, as a line; empty: all
  int64_t train_samples = 0, valid_samples = 0, test_samples = 0;
  int64_t parameters = 0;  ///< elements
  double lr = 0;
  int64_t epochs = 0;      ///< that the run will have when it ends
  int64_t steps = 0;       ///< likewise
  int64_t first_step = 0;  ///< steps done before, where resumed
  int threads = 0;
  std::string out;
};

/// Something that the user should know and that does not stop the run, in one line.
struct NoticeEvent {
  std::string text;
};

struct ProgressEvent {
  int64_t epoch = 0, epochs = 0;  ///< the epoch under way, from 1
  int64_t step = 0, steps = 0;    ///< done, and in all
  double loss = 0;                ///< of the latest step
  double samples_per_second = 0;  ///< since the start, training alone
  double seconds_left = 0;        ///< at that speed, training alone
};

struct EpochEvent : EpochMetrics {
  int64_t epochs = 0;                  ///< in all
  std::vector<MetricInfo> infos = {};  ///< how the values are to be read; by their names
};

struct CheckpointEvent {
  int64_t step = 0;
  std::string path;
};

/// The run was asked to stop (FitOptions::stop) and can be resumed.
struct InterruptedEvent {
  int64_t step = 0, steps = 0;
  std::string out;  ///< the folder with its checkpoint; empty: none
};

struct DoneEvent {
  std::string model, data;
  Engine engine = Engine::graph;
  Device device;
  int64_t epochs = 0, steps = 0;
  std::vector<Metric> values = {};     ///< as EpochMetrics::values: of the weights that the run ended with
  std::vector<MetricInfo> infos = {};  ///< how the values are to be read
  double seconds = 0;                  ///< of this process, all in all
  double samples_per_second = 0;       ///< training alone
  std::string weights_sha256;
  std::string out;
  std::vector<EpochMetrics> history = {};  ///< one a whole epoch
  std::string stopped = {};                ///< why it ended early; empty: it did not
  bool interrupted = false;  ///< by FitOptions::stop: nothing was measured or kept but a checkpoint
  /// done["test_accuracy"]; NaN where it was not measured.
  double operator[](std::string_view name) const { return value_of(values, name); }
};

using TrainEvent = std::variant<StartEvent, NoticeEvent, ProgressEvent, EpochEvent, CheckpointEvent,
                                InterruptedEvent, DoneEvent>;

}  // namespace tandem
