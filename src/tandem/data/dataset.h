// Dataset: size() and get(i). Everything else (limits, subsets, loading in batches) is built on these two, and
// data sets compose. Samples live on the CPU. All const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// The number of samples.
  virtual int64_t size() const = 0;
  /// Sample i, 0 <= i < size(): one tensor a field, e.g. {image f32 (1, 28, 28), label i64 ()}.
  virtual std::vector<Tensor> get(int64_t i) const = 0;
  /// The samples of these indices, stacked along a new first axis. The default stacks get(i).
  virtual std::vector<Tensor> batch(std::span<const int64_t> indices) const;
  /// A few words for a person, e.g. "MNIST, train".
  virtual std::string describe() const;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

/// Some samples of another data set, in the order of `indices`.
class Subset final : public Dataset {
 public:
  Subset(DatasetPtr base, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;

 private:
  DatasetPtr base_;
  std::vector<int64_t> indices_;
};

/// The first n samples (all, where there are fewer). n must be at least 1.
DatasetPtr first(DatasetPtr base, int64_t n);

/// Throws Error unless 0 <= i < size.
void check_index(const char* what, int64_t i, int64_t size);

}  // namespace tandem::data
