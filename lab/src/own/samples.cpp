// Samples, their order and the hash.
#include "lab/src/own/samples.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tandem::lab::own {

uint32_t hashed(uint32_t i, uint32_t s) {
  uint32_t h = i * 0x9E3779B1u + s * 0x7F4A7C15u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

std::vector<int64_t> epoch_order(int64_t samples, uint64_t seed, int64_t epoch) {
  const uint32_t stream = static_cast<uint32_t>(seed + 7919 * (static_cast<uint64_t>(epoch) + 1));
  std::vector<uint32_t> keys(static_cast<size_t>(samples));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = hashed(static_cast<uint32_t>(i), stream);
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  return order;
}

Samples::Samples(const std::string& part, const DataFiles& files, const Dims& input, int64_t classes)
    : x_(io::load_npy(files.x)), y_(io::load_npy(files.y)) {
  Dims want = input;
  want.insert(0, x_.rank() > 0 ? x_.size(0) : 0);
  TD_CHECK(x_.dtype() == DType::f32 && x_.shape() == want, "data.", part, ".x: must be f32 (N, ", input[0],
           ", ", input[1], ", ", input[2], "); got ", x_.dtype(), " ", x_.shape(), ".");
  TD_CHECK(y_.dtype() == DType::i64 && y_.rank() == 1 && y_.size(0) == x_.size(0) && y_.size(0) >= 1, "data.",
           part, ".y: must be i64 with one label per sample, and at least one sample; got ", y_.dtype(), " ",
           y_.shape(), " for ", x_.size(0), " samples.");
  const int64_t* labels = y_.data<int64_t>();
  const auto [least, most] = std::minmax_element(labels, labels + size());
  TD_CHECK(*least >= 0 && *most < classes, "data.", part, ".y: labels must be in 0 … ", classes - 1, "; got ",
           *least, " … ", *most, ".");
}

SampleBatch Samples::batch(int64_t index, int64_t size, const std::vector<int64_t>& order) const {
  Dims shape = x_.shape();
  shape[0] = size;
  const SampleBatch out = {empty(shape), empty({size}, DType::i64)};
  const size_t row = static_cast<size_t>(x_.size() / x_.size(0));
  const auto first = static_cast<uint64_t>(index) * static_cast<uint64_t>(size);
  for (int64_t j = 0; j < size; ++j) {
    const size_t place = (first + static_cast<uint64_t>(j)) % static_cast<uint64_t>(this->size());
    const size_t from = order.empty() ? place : static_cast<size_t>(order[place]);
    std::memcpy(out.x.data<float>() + static_cast<size_t>(j) * row, x_.data<float>() + from * row,
                row * sizeof(float));
    out.y.data<int64_t>()[j] = y_.data<int64_t>()[from];
  }
  return out;
}

SampleBatch Samples::range(int64_t begin, int64_t end) const {
  return {slice(x_, 0, begin, end), slice(y_, 0, begin, end)};
}

}  // namespace tandem::lab::own
