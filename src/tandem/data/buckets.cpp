// Batches of samples of like length.
#include "tandem/data/buckets.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tandem/core/error.h"

namespace tandem::data {

int64_t Buckets::bound_of(int64_t length) const {
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), length);
  TD_CHECK(at != bounds.end(), "buckets: a sample must be at most ", bounds.empty() ? 0 : bounds.back(),
           " long; got ", length, ".");
  return *at;
}

Buckets make_buckets(std::vector<int64_t> lengths, int64_t most) {
  TD_CHECK(most >= 1, "buckets: there must be at least one; got ", most, ".");
  TD_CHECK(!lengths.empty(), "buckets: there must be at least one sample; got none.");
  for (const int64_t length : lengths)
    TD_CHECK(length >= 0, "buckets: a length must be at least 0; got ", length, ".");
  std::vector<int64_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  Buckets out{std::move(lengths), {}};
  const auto size = static_cast<int64_t>(sorted.size());
  for (int64_t part = 1; part <= most; ++part) {
    // The longest of this part of the samples.
    const int64_t last = std::max<int64_t>(size * part / most - 1, 0);
    const int64_t bound = std::max<int64_t>(sorted[static_cast<size_t>(last)], 1);
    // Parts of equal lengths fall together: there may be fewer buckets than asked for.
    if (out.bounds.empty() || out.bounds.back() < bound) out.bounds.push_back(bound);
  }
  return out;
}

// Batches come in the order in which they fill up; what is left over at the end, by length. All of it follows from
// `order`, so that every epoch can be repeated.
std::vector<BucketBatch> bucket_batches(const Buckets& buckets, std::span<const int64_t> order, int64_t batch,
                                        LastBatch last) {
  TD_CHECK(batch >= 1, "batch: must be at least 1; got ", batch, ".");
  struct Filling {
    std::vector<int64_t> samples;
    std::vector<int64_t> first;  // of the bucket, for LastBatch::wrap
  };
  std::map<int64_t, Filling> filling;
  std::vector<BucketBatch> out;
  for (const int64_t sample : order) {
    check_index("buckets", sample, static_cast<int64_t>(buckets.lengths.size()));
    const int64_t length = buckets.bound_of(buckets.lengths[static_cast<size_t>(sample)]);
    Filling& bucket = filling[length];
    bucket.samples.push_back(sample);
    if (static_cast<int64_t>(bucket.first.size()) < batch) bucket.first.push_back(sample);
    if (static_cast<int64_t>(bucket.samples.size()) < batch) continue;
    out.push_back({std::move(bucket.samples), length});
    bucket.samples = {};
  }
  for (auto& [length, bucket] : filling) {
    if (bucket.samples.empty() || last == LastBatch::drop) continue;
    if (last == LastBatch::wrap)
      for (size_t i = 0; static_cast<int64_t>(bucket.samples.size()) < batch; ++i)
        bucket.samples.push_back(bucket.first[i % bucket.first.size()]);
    out.push_back({std::move(bucket.samples), length});
  }
  return out;
}

Tensor pad_stack(const std::vector<Tensor>& samples, int64_t length, double value) {
  TD_CHECK(!samples.empty(), "pad_stack: there must be at least one sample; got none.");
  const Tensor& model = samples.front();
  TD_CHECK(model.rank() >= 1, "pad_stack: a sample must have an axis to be padded along; got ", model.shape(),
           ".");
  Dims rest = model.shape();
  rest.erase(0);
  Dims shape = rest;
  shape.insert(0, length);
  shape.insert(0, static_cast<int64_t>(samples.size()));
  const Tensor out = empty(shape, model.dtype());
  visit_dtype(model.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(out.data<T>(), out.size(), static_cast<T>(value));
  });
  int64_t row = bytes_of(model.dtype());
  for (const int64_t size : rest) row *= size;
  auto* to = static_cast<uint8_t*>(out.raw());
  for (const Tensor& sample : samples) {
    Dims own = sample.shape();
    TD_CHECK(own.rank() == model.rank() && sample.dtype() == model.dtype(),
             "pad_stack: samples must be alike but for their length; got ", model.dtype(), " ", model.shape(),
             " and ", sample.dtype(), " ", own, ".");
    const int64_t size = own[0];
    own.erase(0);
    TD_CHECK(own == rest && size <= length, "pad_stack: samples must be (at most ", length, ", …) of ", rest,
             "; got ", sample.shape(), ".");
    TD_CHECK(sample.is_contiguous(),
             "pad_stack: samples must lie in one piece; got strides of a view. clone() it.");
    if (size > 0) std::memcpy(to, sample.raw(), static_cast<size_t>(size * row));
    to += length * row;
  }
  return out;
}

}  // namespace tandem::data
