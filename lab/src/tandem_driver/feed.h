// The pipeline of a cell, Tandem's own Loader: samples from image files or from arrays, made ahead by worker threads and
// handed out on the device. For phase load and for training steps with the switch feed=loader.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// `images` of prepare's data: which files, and what is made of each.
struct Images {
  std::vector<data::ImageFolder::File> files;
  int64_t resize = 0;             // pixels of the shorter side
  int64_t height = 0, width = 0;  // of the sample that is cut out
  std::vector<float> mean, deviation;
};
/// Throws Error for settings and lists that break a rule, Declined where this build reads no JPEG files.
Images read_images(const Json& data, const CellRequest& cell);

/// The samples of the list without end: position p is file p mod N, cut as the protocol says.
/// `count`: positions; `training`: cut at a drawn place, else in the middle.
data::DatasetPtr picture_set(std::shared_ptr<const Images> images, const CellRequest& cell, int64_t count,
                             bool training);

class Feed {
 public:
  /// One of the two: image files, or arrays, which must outlive it.
  Feed(const CellRequest& cell, std::shared_ptr<const Images> images, const data::TensorSet* arrays);
  ~Feed();

  /// Begins anew with batch 0, for so many batches and no more.
  void begin(int64_t batches);
  /// The next batch, on the device: the network's inputs, then the targets. Waits until it is made.
  const std::vector<Tensor>& next();
  /// How long begin and next have taken since begin.
  int64_t waited_ns() const { return waited_ns_; }
  /// `samples_sum` of the answer to run: of the last batch, the sum of each input and target by name.
  Json samples_sum() const;

 private:
  const CellRequest& cell_;
  std::shared_ptr<const Images> images_;
  const data::TensorSet* arrays_;
  data::DatasetPtr set_;  // before the loader, which reads it
  std::unique_ptr<data::Loader> loader_;
  std::vector<Tensor> last_;
  int64_t waited_ns_ = 0;
};

}  // namespace tandem::lab::tandem_driver
