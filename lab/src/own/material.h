// What the drivers of a study are given: files of weights and of data, and the reference that the equivalence gate
// compares with. All drivers of a cell read the same bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::lab {

/// The model of a workload (a definition of studies/workloads) for samples of these sizes, as Tandem begins it with this
/// seed: safetensors in f32 with PyTorch's names.
void write_weights(const std::string& path, const nlohmann::json& workload, const std::vector<int64_t>& input,
                   uint64_t seed);

/// Which samples a workload gets.
struct DataChoice {
  std::string name;  // "mnist", "synthetic-mnist", "synthetic-3x80x80"
  bool is_real = false;
  /// Where it is not the data that the workload names: what is missing, and how to get it. "" otherwise.
  std::string why = {};
};

/// The workload's data set where its files are found (in data_dir, or empty: in the usual places) and its samples have the
/// sizes of `input`; else made-up samples of these sizes. Reads no file.
DataChoice choose_data(const nlohmann::json& workload, const std::vector<int64_t>& input,
                       const std::string& data_dir = "");

/// What write_data wrote.
struct DataFolder {
  std::string name;   // of the data: "mnist", "synthetic-mnist", "synthetic-3x80x80"
  std::string where;  // the folder that it was read from, or "built in"
  bool is_real = false;
  int64_t train = 0, test = 0;  // samples
  nlohmann::json files;         // as `prepare` takes them: {"train": {"x": PATH, "y": PATH}, "test": …}
};

/// Writes train_x.npy, train_y.npy, test_x.npy and test_y.npy into `folder`: x f32 (N, C, H, W), normalised as `tandem
/// train` does, y i64 (N,). Takes what choose_data chooses: the workload's data set, or made-up samples that can be learned, from
/// the seed. So many samples at most, drawn from the set with the seed; 0 test samples: none is written.
DataFolder write_data(const std::string& folder, const nlohmann::json& workload,
                      const std::vector<int64_t>& input, int64_t train_samples, int64_t test_samples,
                      uint64_t seed, const std::string& data_dir = "");

/// The gate's reference: the answer of `check` to a request `prepare` in f64, computed in this process by the eager engine
/// on the CPU. Throws Error where the request cannot be met.
nlohmann::json gate_reference(nlohmann::json prepare, int64_t steps);

}  // namespace tandem::lab
