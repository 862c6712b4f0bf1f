// A prepared cell of phase load: no network, only the pipeline that makes batches of image files.
#pragma once

#include "lab/src/tandem_driver/feed.h"

namespace tandem::lab::tandem_driver {

class LoadCell {
 public:
  explicit LoadCell(CellRequest request);

  /// Each returns the fields of its answer.
  Json prepared() const;
  /// The first batch in test mode.
  Json check() const;
  /// A step makes one batch from its files and copies it to the device.
  Json run(const Json& request);

 private:
  CellRequest request_;
  std::unique_ptr<Feed> feed_;
};

}  // namespace tandem::lab::tandem_driver
