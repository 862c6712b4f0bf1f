// A prepared cell of the variants tpe, asha and random: `fit` is one search over settings and shapes of the workload's
// model, made by the library's `search`. Its accuracy is that of the winner on the part test.
#pragma once

#include <functional>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

class SearchCell {
 public:
  /// Throws Declined where the request asks for what a search cannot do, such as the track equal or phase infer.
  explicit SearchCell(CellRequest request);

  /// Each returns the fields of its answer.
  Json prepared() const;
  /// `epochs` must be 1, which is the whole search. It lasts `cap_s` seconds. `progress` is called once.
  Json fit(const Json& request, const std::function<void(const Json&)>& progress) const;

 private:
  CellRequest request_;
};

}  // namespace tandem::lab::tandem_driver
