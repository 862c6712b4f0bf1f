// The class of each sample of a data set, without making the samples where the set knows the classes by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// What a data set is as well whose samples are costly to make, and whose classes are not.
class Labelled {
 public:
  /// The class of sample i, 0 <= i < size().
  virtual int64_t label(int64_t i) const = 0;

 protected:
  ~Labelled() = default;
};

/// The class of each sample, which is its second field. Makes all samples of a set that is not Labelled.
std::vector<int64_t> class_labels(const Dataset& set);

/// A set whose samples are those of `made`, such as photographs that are decoded and resized, and whose classes are these.
DatasetPtr labelled(DatasetPtr made, std::vector<int64_t> labels);

}  // namespace tandem::data
