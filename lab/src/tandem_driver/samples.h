// The samples of a cell: NumPy files in memory, and their batches in the protocol's order.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// The order of epoch 0, 1, … of `fit`: the stable sorting order of hashed(k, seed + 7919·(epoch + 1)).
std::vector<int64_t> epoch_order(int64_t samples, uint64_t seed, int64_t epoch);

/// Reads the files of a part, "train" or "test", and checks them: a field for each input of the network, then for each
/// target.
std::unique_ptr<data::TensorSet> load_samples(const std::string& part, const DataFiles& files,
                                              const CellRequest& cell);

/// Batch number `index` of `size` samples in the order of the file, from the start where it ends. On the CPU.
std::vector<Tensor> batch_of(const data::TensorSet& samples, int64_t index, int64_t size);

/// The fields of a batch as the cell trims them: those of `trim` down to the batch's longest sample. On the CPU.
std::vector<Tensor> trimmed(const CellRequest& cell, std::vector<Tensor> fields);

}  // namespace tandem::lab::tandem_driver
