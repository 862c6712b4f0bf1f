// What the drivers of a study are given: files of weights and of data. All drivers of a cell read the same bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/src/inputs/network.h"

namespace tandem::lab {

/// The network as Tandem begins it with this seed: safetensors in f32 with PyTorch's names.
void write_weights(const std::string& path, const Network& network, uint64_t seed);

/// Which samples a workload gets.
struct DataChoice {
  std::string name;  // "mnist", "synthetic-mnist", "synthetic-3x80x80"
  bool is_real = false;
  /// Where it is not the data that the workload names: what is missing, and how to get it. "" otherwise.
  std::string why = {};
};

/// The workload's data set where its files are found (in data_dir, or empty: in the usual places) and its samples fit the
/// network; else made-up samples. Reads no file.
DataChoice choose_data(const Workload& workload, const Network& network, const std::string& data_dir = "");

/// What write_data wrote.
struct DataFolder {
  std::string name;   // of the data: "mnist", "synthetic-mnist", "synthetic-3x80x80"
  std::string where;  // the folder that it was read from, or "built in"
  bool is_real = false;
  int64_t train = 0, test = 0;  // samples
  Json files;                   // as `prepare` takes them: {"train": {"x": PATH, "y": PATH}, "test": …}
};

/// Writes PART_NAME.npy into `folder` for each input and target: data sets normalised as `tandem train` does. Takes what
/// choose_data chooses: the workload's data set, or made-up samples from the seed. So many samples at most, drawn from the set
/// with the seed; 0 test samples: none is written.
DataFolder write_data(const std::string& folder, const Workload& workload, const Network& network,
                      int64_t train_samples, int64_t test_samples, uint64_t seed,
                      const std::string& data_dir = "");

}  // namespace tandem::lab
