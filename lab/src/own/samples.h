// The samples of a cell: NumPy files in memory, and their batches in the protocol's order. And the protocol's hash, from
// which orders and weights come.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/src/own/request.h"

namespace tandem::lab::own {

/// The protocol's hash of number i of stream s.
uint32_t hashed(uint32_t i, uint32_t s);

/// The order of epoch 0, 1, … of `fit`: the stable sorting order of hashed(k, seed + 7919·(epoch + 1)).
std::vector<int64_t> epoch_order(int64_t samples, uint64_t seed, int64_t epoch);

struct SampleBatch {
  Tensor x, y;  // (N, C, H, W) and i64 (N,)
};

class Samples {
 public:
  /// Reads both files and checks them against the cell's input and classes. `part`: "train" or "test".
  Samples(const std::string& part, const DataFiles& files, const Dims& input, int64_t classes);
  int64_t size() const { return y_.size(0); }
  /// Batch number `index` of `size` samples: places index·size … of `order` (empty: that of the file), from the start
  /// where it ends. On the CPU.
  SampleBatch batch(int64_t index, int64_t size, const std::vector<int64_t>& order = {}) const;
  /// Samples begin … end-1 as views.
  SampleBatch range(int64_t begin, int64_t end) const;
  int64_t label(int64_t i) const { return y_.data<int64_t>()[i]; }

 private:
  Tensor x_, y_;
};

}  // namespace tandem::lab::own
