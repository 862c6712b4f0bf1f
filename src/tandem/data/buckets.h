// Batches of samples of like length. Sentences, clips and the like differ in length; padding all of them to the longest
// wastes time, and a batch for every length would be traced anew by the graph engine each time. Buckets are a few
// lengths: a sample is padded to the shortest that holds it, and a batch holds samples of one bucket.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/data/dataset.h"

namespace tandem::data {

/// A training step is traced for each bucket, and once more for the smaller batch at a bucket's end: with so many, all of
/// them stay within the signatures that compile() keeps (CompileOptions::cache_size).
inline constexpr int64_t kMostBuckets = 8;

struct Buckets {
  std::vector<int64_t> lengths = {};  ///< of sample i
  std::vector<int64_t> bounds = {};   ///< rising; the last holds the longest sample
  /// The length that samples of this length are padded to.
  int64_t bound_of(int64_t length) const;
};

/// Chooses at most `most` bounds, so that each bucket has about as many samples. Throws Error for a negative length.
Buckets make_buckets(std::vector<int64_t> lengths, int64_t most = kMostBuckets);

/// The batches of an epoch: which samples, and what they are padded to.
struct BucketBatch {
  std::vector<int64_t> samples;
  int64_t length = 0;
};
/// `order`: the samples in the epoch's order. A bucket's batch is given out when it is full; those that are not full at
/// the end are kept, dropped, or filled up from the bucket's own first samples. How many there are does not depend on
/// the order.
std::vector<BucketBatch> bucket_batches(const Buckets& buckets, std::span<const int64_t> order, int64_t batch,
                                        LastBatch last);

/// Tensors that differ along their first axis, stacked along a new one: (n, length, …), filled up with `value`.
Tensor pad_stack(const std::vector<Tensor>& samples, int64_t length, double value);

}  // namespace tandem::data
