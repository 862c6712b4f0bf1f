// The input pipeline of a cell, made with Tandem's Loader: worker threads make samples of image files or arrays ahead of time,
// and the batches arrive on the device. Used in phase load, and for training steps with the switch feed=loader.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// `images` of the data in `prepare`: which files are read, and how a sample is made of each.
struct Images {
  std::vector<data::ImageFolder::File> files;
  int64_t resize = 0;             // pixels of the shorter side
  int64_t height = 0, width = 0;  // of a sample, which is cut out
  std::vector<float> mean, deviation;
};
/// Throws Error for settings and lists that break a rule, Declined if this build cannot read JPEG files.
Images read_images(const Json& data, const CellRequest& cell);

/// `count` samples: sample p is made of file p mod N of the list, cut as the protocol says: at a drawn place if `training`, else
/// in the middle.
data::DatasetPtr picture_set(std::shared_ptr<const Images> images, const CellRequest& cell, int64_t count,
                             bool training);

class Feed {
 public:
  /// Either `images` or `arrays` is given; the other is null. The arrays must outlive this object.
  Feed(const CellRequest& cell, std::shared_ptr<const Images> images, const data::TensorSet* arrays);
  ~Feed();

  /// Starts again with batch 0. next() may then be called `batches` times.
  void begin(int64_t batches);
  /// The next batch, on the device: the network's inputs, then the targets. Waits until it is ready.
  const std::vector<Tensor>& next();
  /// How long the last begin() and all calls of next() since have taken.
  int64_t waited_ns() const { return waited_ns_; }
  /// `samples_sum` of the answer to `run`: the sum of each input and target of the last batch, by name.
  Json samples_sum() const;

 private:
  const CellRequest& cell_;
  std::shared_ptr<const Images> images_;
  const data::TensorSet* arrays_;
  data::DatasetPtr set_;  // stands before the loader, which reads it, so that it is destroyed after it
  std::unique_ptr<data::Loader> loader_;
  std::vector<Tensor> last_;
  int64_t waited_ns_ = 0;
};

}  // namespace tandem::lab::tandem_driver
