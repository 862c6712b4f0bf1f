// Data sets made by a formula in the shapes of well-known ones: every class has a smooth coloured pattern, and a sample
// is its class's pattern, moved, dimmed and covered with noise. They can be learned, need no files and no memory, and
// sample i has the same bytes on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "tandem/data/dataset.h"
#include "tandem/data/labels.h"
#include "tandem/data/registry.h"

namespace tandem::data {

struct SyntheticKind {
  const char* name;  // of the data set whose shapes it has
  int64_t channels, side, classes, train_size, test_size;
};
std::span<const SyntheticKind> synthetic_kinds();

/// Samples first … first+size-1 of a kind: {image f32 (channels, side, side), label i64 ()}, about mean 0 and deviation
/// 1.
class SyntheticImages final : public Dataset, public Labelled {
 public:
  SyntheticImages(const SyntheticKind& kind, uint64_t seed, int64_t first, int64_t size);
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override;
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;
  int64_t label(int64_t i) const override;

 private:
  void draw(int64_t i, float* out) const;
  const SyntheticKind& kind_;
  uint64_t seed_;
  int64_t first_, size_;
};

Splits open_synthetic(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
