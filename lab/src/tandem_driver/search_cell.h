// A prepared cell of the variants tpe, asha and random: `fit` is one search over settings and shapes of the workload's
// model, by the library's own `search`, and its accuracy is that of the winner on the test part.
#pragma once

#include <functional>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

class SearchCell {
 public:
  /// Throws Declined where the request asks for what a search cannot have: the track equal, phase infer.
  explicit SearchCell(CellRequest request);

  /// Each returns the fields of its answer.
  Json prepared() const;
  /// `epochs` must be 1: the whole search, which lasts `cap_s` seconds. `progress` gets one object.
  Json fit(const Json& request, const std::function<void(const Json&)>& progress) const;

 private:
  CellRequest request_;
};

}  // namespace tandem::lab::tandem_driver
