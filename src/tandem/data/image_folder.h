// Images in folders: one folder a class, JPEG and PNG files in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/registry.h"

namespace tandem::data {

/// Samples {image u8 (3, height, width), label i64 ()}, decoded when asked for, each in its own size: resize them
/// before batching. Files are in the order of class and path; the classes are the folders' names, sorted.
class ImageFolder final : public Dataset {
 public:
  struct File {
    std::string path;
    int64_t label = 0;
  };
  /// Reads the names only. Throws Error where there is no folder with an image in it. `shrink_to`: see
  /// io::DecodeOptions.
  explicit ImageFolder(const std::string& folder, int64_t shrink_to = 0);
  ImageFolder(std::vector<File> files, std::vector<std::string> classes, int64_t shrink_to = 0);
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;
  std::string sample_name(int64_t i) const override;
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<File>& files() const { return files_; }

 private:
  std::vector<File> files_;
  std::vector<std::string> classes_;
  int64_t shrink_to_;
};

/// Mean and deviation of ImageNet's pixels, which models of photographs expect.
extern const std::vector<float>& kPhotoMean;
extern const std::vector<float>& kPhotoDeviation;

std::optional<std::string> locate_image_folder(const DatasetInfo& info, const std::string& data_dir);
/// train/ and test/ (or val/) with a folder a class each; or a folder a class alone, of which every tenth image is
/// for testing. Images become 224 by 224: resized to 256 on the short side, then their middle.
Splits open_image_folder(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
