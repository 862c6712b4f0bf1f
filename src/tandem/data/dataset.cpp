// Stacking samples, and subsets.
#include "tandem/data/dataset.h"

#include <cstring>
#include <numeric>

namespace tandem::data {

void check_index(const char* what, int64_t i, int64_t size) {
  TD_CHECK(i >= 0 && i < size, what, ": an index must be at least 0 and less than ", size, "; got ", i, ".");
}

std::vector<Tensor> Dataset::batch(std::span<const int64_t> indices) const {
  TD_CHECK(!indices.empty(), "batch: must ask for at least one sample; got none.");
  std::vector<Tensor> stacked;
  for (size_t row = 0; row < indices.size(); ++row) {
    const std::vector<Tensor> sample = get(indices[row]);
    if (row == 0) {
      for (const Tensor& field : sample) {
        Dims shape = field.shape();
        shape.insert(0, static_cast<Dim>(indices.size()));
        stacked.push_back(empty(shape, field.dtype()));
      }
    }
    TD_CHECK(sample.size() == stacked.size(), "batch: all samples must have as many fields; sample ",
             indices[row], " has ", sample.size(), " and sample ", indices[0], " has ", stacked.size(), ".");
    for (size_t f = 0; f < sample.size(); ++f) {
      Dims shape = stacked[f].shape();
      shape.erase(0);
      TD_CHECK(sample[f].shape() == shape && sample[f].dtype() == stacked[f].dtype(),
               "batch: all samples must have the same shapes and dtypes; sample ", indices[row], " has ",
               sample[f].dtype(), " ", sample[f].shape(), " and sample ", indices[0], " has ",
               stacked[f].dtype(), " ", shape, ". Resize or pad them first.");
      const std::vector<std::byte> bytes = host_bytes(sample[f]);
      if (!bytes.empty())
        std::memcpy(static_cast<std::byte*>(stacked[f].raw()) + row * bytes.size(), bytes.data(),
                    bytes.size());
    }
  }
  return stacked;
}

std::string Dataset::describe() const { return cat(size(), " samples"); }

Subset::Subset(DatasetPtr base, std::vector<int64_t> indices)
    : base_(std::move(base)), indices_(std::move(indices)) {
  TD_CHECK(base_ != nullptr, "subset: needs a data set; got none.");
  for (int64_t i : indices_) check_index("subset", i, base_->size());
}

std::vector<Tensor> Subset::get(int64_t i) const {
  check_index("get", i, size());
  return base_->get(indices_[static_cast<size_t>(i)]);
}

std::vector<Tensor> Subset::batch(std::span<const int64_t> indices) const {
  std::vector<int64_t> mapped;
  mapped.reserve(indices.size());
  for (int64_t i : indices) {
    check_index("batch", i, size());
    mapped.push_back(indices_[static_cast<size_t>(i)]);
  }
  return base_->batch(mapped);
}

std::string Subset::describe() const { return cat(base_->describe(), ", ", size(), " of ", base_->size()); }

DatasetPtr first(DatasetPtr base, int64_t n) {
  TD_CHECK(n >= 1, "limit: must be at least 1 sample; got ", n, ".");
  TD_CHECK(base != nullptr, "limit: needs a data set; got none.");
  if (n >= base->size()) return base;
  std::vector<int64_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return std::make_shared<Subset>(std::move(base), std::move(indices));
}

}  // namespace tandem::data
