// The options of the callbacks that come with Tandem (train/callbacks.h), which are settings of a run as well.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/optim/schedule.h"

namespace tandem {

/// Learning rates by optim/schedule.h, from the optimiser's first rate. All groups are scaled alike.
struct ScheduleOptions {
  std::string kind = "constant";      ///< constant, step, exponential, cosine, one-cycle, plateau
  std::optional<bool> by_epoch = {};  ///< counted in epochs, else steps; unset: true for step and exponential
  int64_t warm_up = 0;                ///< steps of a straight rise before all of it
  double warm_up_start = 0.01;        ///< of which share of the rate
  int64_t every = 10;                 ///< step
  std::optional<double> factor = {};  ///< step and plateau (0.1), exponential (0.95)
  std::optional<int64_t> total = {};  ///< cosine and one-cycle; unset: the planned length of the run
  optim::OneCycleOptions one_cycle = {};  ///< its highest rate is the optimiser's
  std::string monitor = "loss";           ///< plateau; see EarlyStopOptions
  int64_t patience = 10;                  ///< plateau: epochs
  double least = 0;                       ///< cosine and plateau
};
void check(const ScheduleOptions& options);

/// monitor: any metric of the run (Training::metrics): "test_accuracy", "train_loss"; or a metric's plain name, "loss",
/// "accuracy", of the part of the data that epochs are judged by. mode: min, max, or auto (what the metric is better in).
struct EarlyStopOptions {
  std::string monitor = "loss";
  int64_t patience = 3;  ///< epochs without progress that are let pass
  double min_delta = 0;  ///< progress is more than this
  std::string mode = "auto";
  bool restore_best = false;  ///< end with the weights of the best epoch
};
void check(const EarlyStopOptions& options);

struct BestOptions {
  std::string monitor = "loss";
  std::string mode = "auto";
  std::string path = {};  ///< empty: best.safetensors in the run's folder
};

struct TensorBoardOptions {
  std::string folder = {};  ///< empty: tensorboard in the run's folder
  int64_t every = 50;       ///< steps between losses
  bool histograms = true;   ///< of the weights, after each epoch
  bool gradients = false;   ///< of the loss over the first batch, as histograms after each epoch
  bool images = true;       ///< of the first samples, where they are images
};

}  // namespace tandem
