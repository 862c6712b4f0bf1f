// Writes the files that the drivers of a study are given: weights and data. All drivers of a cell read the same bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/src/inputs/network.h"

namespace tandem::lab {

/// Writes the weights that Tandem draws for the network with this seed: safetensors in f32, with PyTorch's names.
void write_weights(const std::string& path, const Network& network, uint64_t seed);

/// Which data a workload gets.
struct DataChoice {
  std::string name;  // "mnist", "synthetic-mnist", "synthetic-3x80x80"
  bool is_real = false;
  /// If it is not the data that the workload names: what is missing, and how to get it. Otherwise "".
  std::string why = {};
};

/// The workload's data set, if its files are found (in data_dir or, if that is empty, in the usual places) and its samples fit the
/// network. Otherwise made-up samples. Reads no file.
DataChoice choose_data(const Workload& workload, const Network& network, const std::string& data_dir = "");

/// What write_data has written.
struct DataFolder {
  std::string name;   // of the data: "mnist", "synthetic-mnist", "synthetic-3x80x80"
  std::string where;  // the folder that it was read from, or "built in"
  bool is_real = false;
  int64_t train = 0, test = 0;  // samples
  Json files;                   // as `prepare` takes them: {"train": {"x": PATH, "y": PATH}, "test": …}
};

/// Writes PART_NAME.npy into `folder` for each input and target, with the data that choose_data chooses: the workload's data set,
/// normalised as `tandem train` does, or made-up samples from the seed. Writes at most so many samples, drawn from the data set with
/// the seed. With 0 test samples there is no part test.
DataFolder write_data(const std::string& folder, const Workload& workload, const Network& network,
                      int64_t train_samples, int64_t test_samples, uint64_t seed,
                      const std::string& data_dir = "");

}  // namespace tandem::lab
