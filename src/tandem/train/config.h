// What a training run is made of: every setting, with its default, and the rules that it must keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/core/device.h"
#include "tandem/core/dtype.h"
#include "tandem/data/registry.h"

namespace tandem {

/// How operations run: one by one, or traced and replayed. The results have the same bits.
enum class Engine : uint8_t { eager, graph };
const char* name(Engine engine);
Engine parse_engine(const std::string& text);  ///< throws Error

struct TrainConfig {
  std::string model = {};
  std::string data = {};      ///< name of a data set; empty: the default (data/registry.h, open_default)
  std::string data_dir = {};  ///< where its files are; empty: the usual places
  Engine engine = Engine::graph;
  Device device = {};
  std::optional<int64_t> epochs = {};  ///< unset: 1, or as many as `steps` needs
  std::optional<int64_t> steps = {};   ///< the run ends after so many steps in all
  int64_t batch = 100;
  std::string optimizer = "sgd";
  std::optional<double> lr = {};        ///< unset: the optimiser's default
  std::optional<double> momentum = {};  ///< unset: the optimiser's default
  DType dtype = DType::f32;
  uint64_t seed = 0;
  std::optional<int64_t> threads = {};  ///< unset: the cores of this machine
  std::optional<int64_t> limit = {};    ///< train on the first so many samples, test on the first so many
  std::string out = {};  ///< folder of the run; empty: runs/<model>, or the next free runs/<model>-<n>
  bool resume = false;   ///< go on from the newest usable checkpoint in `out`
  bool anomaly = false;  ///< stop at the operation that first makes a NaN or infinity
  int64_t checkpoint_every = 500;  ///< steps; 0: only at the end of each epoch
};

/// Throws Error for the first setting that cannot be: an unknown name, a batch of 0, a negative rate …
void check(const TrainConfig& config);

/// Parts of check() that other configurations share. An empty name is the default data set.
void check_data_name(const std::string& data, const std::string& data_dir);
void check_at_least(const char* setting, std::optional<int64_t> value, int64_t least);

/// Throws Error with the reason where this machine does not have the device.
void check_device(Device device);

/// The learning rate that the run starts with.
double starting_lr(const TrainConfig& config);
/// The same for momentum; empty where the optimiser takes none.
std::optional<double> starting_momentum(const TrainConfig& config);

/// Opens the data set of a run and checks that the model can take it. `limit` unset: all samples.
data::Splits open_data(const std::string& model, const std::string& data, const std::string& data_dir,
                       std::optional<int64_t> limit);

/// The settings on which a run's bits depend, as JSON text: what a checkpoint holds and a resumed run must repeat.
std::string settings_json(const TrainConfig& config, const data::Splits& splits);

/// Throws Error with the name and both values of the first setting that differs. `source` is the checkpoint.
void check_same_settings(const std::string& saved, const std::string& wanted, const std::string& source);

}  // namespace tandem
