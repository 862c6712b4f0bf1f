// The samples of a cell: NumPy files, read into memory, and their batches in the protocol's order.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// The order of the samples in epoch 0, 1, … of `fit`: sample k has the key hashed(k, seed + 7919·(epoch + 1)), and a stable sort
/// by the keys gives the order.
std::vector<int64_t> epoch_order(int64_t samples, uint64_t seed, int64_t epoch);

/// Reads and checks the files of a part, "train" or "test". A sample has a field for each input of the network, then one for
/// each target.
std::unique_ptr<data::TensorSet> load_samples(const std::string& part, const DataFiles& files,
                                              const CellRequest& cell);

/// Batch number `index`, of `size` samples in the order of the file. After the last sample comes the first again. On the CPU.
std::vector<Tensor> batch_of(const data::TensorSet& samples, int64_t index, int64_t size);

/// The fields of a batch. Those that the cell's `trim` names are cut to the longest sample of the batch. On the CPU.
std::vector<Tensor> trimmed(const CellRequest& cell, std::vector<Tensor> fields);

}  // namespace tandem::lab::tandem_driver
