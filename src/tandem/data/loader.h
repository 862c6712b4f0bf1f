// Loader: a data set in batches, made ahead by worker threads and handed out in order. The order of samples is
// a function of (seed, epoch) alone, so that it is the same for any number of workers, and any batch of any
// epoch can be started from. Random transforms draw from (seed, epoch, sample), so that they resume exactly too.
//
// Batches for a GPU are copied there as soon as they are made, beside what the GPU computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/data/buckets.h"
#include "tandem/data/dataset.h"
#include "tandem/data/random.h"

namespace tandem::data {

/// Makes the fields of a batch from samples, as an epoch sees them. `length`: of their bucket; 0 without buckets.
using Collate =
    std::function<Named(const Dataset& set, std::span<const int64_t> indices, int64_t epoch, int64_t length)>;
inline constexpr int kMostWorkers = 256;  ///< of one loader

using BatchTransform = std::function<std::vector<Tensor>(std::vector<Tensor> batch, SampleRandom& random)>;

struct LoaderOptions {
  int64_t batch = 100;
  bool shuffle = true;
  uint64_t seed = 0;
  /// Threads that make batches; 0: next() makes them itself. Unset: 1; for a GPU, beside which the processor has little to do,
  /// all of its cores but one, up to 12.
  std::optional<int64_t> workers = {};
  std::optional<int> prefetch = {};  // batches made ahead, at most; unset: 4, or two more than workers
  LastBatch last_batch = LastBatch::keep;
  Device device = {};    // where batches are handed out
  Collate collate = {};  // empty: named_batch (dataset.h), which stacks or pads each field
  /// Batches hold samples of one bucket; unset: samples as they come.
  std::optional<Buckets> buckets = {};
  /// Applied to the tensors of each whole batch by the worker that made it (mixup, cutmix; see transforms.h). It leaves one for each
  /// field; those that it adds behind them are "field 3" and so on. Its random numbers are a function of (seed, epoch, batch).
  BatchTransform transform = {};
};

struct Batch {
  int64_t epoch = 0;
  int64_t index = 0;  // within the epoch
  int64_t size = 0;   // samples
  Named tensors;      // one per field, (size, …), on LoaderOptions::device
};

class Loader {
 public:
  /// The data set must outlive the loader. Throws Error for a batch or prefetch below 1, a negative number of
  /// workers, an empty data set, or one that `drop` would leave empty.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Begins an epoch at a batch (0 … batches()); batches made ahead for another place are thrown away.
  void start_epoch(int64_t epoch, int64_t first_batch = 0);
  /// The next batch of the epoch, or nothing at its end. What was thrown while this batch was made comes out here. An
  /// exception of the program's own (of a data set, a collation, a transform) as an Error of kind foreign, which names the data
  /// set and the sample or the batch, and holds the exception (std::rethrow_if_nested). Called from one thread at a time.
  std::optional<Batch> next();

  int64_t batches() const;     ///< in an epoch
  int64_t epoch() const;       ///< -1 before the first start_epoch
  int64_t next_batch() const;  ///< the one next() gives: with epoch(), where to resume
  const LoaderOptions& options() const;

 private:
  struct State;  // in the source file, with the threads: including this header stays cheap
  std::unique_ptr<State> state_;
};

/// The order of an epoch: 0 … size-1 shuffled (Fisher-Yates) with Philox numbers of (seed, epoch).
std::vector<int64_t> shuffled_order(int64_t size, uint64_t seed, int64_t epoch);

}  // namespace tandem::data
