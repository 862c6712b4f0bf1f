// Data sets made of data sets. Each is a pure function of (index, epoch): nothing is drawn from a running state, so
// that any of them may be read in any order, by any number of threads, and resumed at any place.
#pragma once

#include <functional>

#include "tandem/data/dataset.h"
#include "tandem/data/random.h"

namespace tandem::data {

using Sample = std::vector<Tensor>;

/// Every sample passed through `function`.
DatasetPtr map(DatasetPtr base, std::function<Sample(Sample)> function);
/// The same with random numbers, which are those of (seed, epoch, index).
DatasetPtr map_random(DatasetPtr base, std::function<Sample(Sample, SampleRandom&)> function, uint64_t seed);

/// The same samples with names for their fields: with_fields(set, {{"ids"}, {"label", Role::target}}).
DatasetPtr with_fields(DatasetPtr base, std::vector<Field> fields);

/// The samples in another order, a new one each epoch (shuffled_order of loader.h).
DatasetPtr shuffle(DatasetPtr base, uint64_t seed);

/// One after the other. The samples must have the same fields where they meet in a batch.
DatasetPtr concat(std::vector<DatasetPtr> bases);

/// The samples of these indices, or from `begin` to before `end`.
DatasetPtr subset(DatasetPtr base, std::vector<int64_t> indices);
DatasetPtr subset(DatasetPtr base, int64_t begin, int64_t end);

/// Part `rank` of `world` parts: samples rank, rank + world, … Where the parts are not equal, `rest` says whether
/// some have one more (keep), the last samples are left out (drop), or the first ones stand in (wrap).
DatasetPtr shard(DatasetPtr base, int64_t rank, int64_t world, LastBatch rest = LastBatch::keep);

/// Samples that are stacked batches of `batch` samples.
DatasetPtr batched(DatasetPtr base, int64_t batch, LastBatch last = LastBatch::keep);

/// Keeps each sample in memory once it was asked for, up to `max_bytes` in all. Refuses a data set that varies by
/// epoch: put the cache before the random transforms. The kept tensors are handed out: do not assign to them.
DatasetPtr cache(DatasetPtr base, int64_t max_bytes = int64_t{4} << 30);

/// Tensors in memory: sample i is row i of each. All must have as many rows.
class TensorSet final : public Dataset {
 public:
  explicit TensorSet(std::vector<Tensor> fields, std::string name = "tensors");
  /// With names for its fields; "target" is what the loss compares with, all others are inputs (with_fields() says otherwise).
  explicit TensorSet(const Named& fields, std::string name = "tensors");
  std::vector<Field> fields() const override { return names_; }
  int64_t size() const override { return fields_[0].size(0); }
  std::vector<Tensor> get(int64_t i) const override;
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;

 private:
  std::vector<Tensor> fields_;  // on the CPU, contiguous
  std::vector<Field> names_;    // of them; empty: none
  std::string name_;
};

}  // namespace tandem::data
