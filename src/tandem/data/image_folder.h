// Images in folders: one folder a class, JPEG and PNG files in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/registry.h"

namespace tandem::data {

/// Samples {image u8 (3, height, width), label i64 ()}, decoded when asked for, each in its own size: resize them
/// before batching. Files are in the order of class and path; the classes are the folders' names, sorted. A class's
/// images may be in folders below its own. Files and folders whose names begin with a dot do not count.
class ImageFolder final : public Dataset {
 public:
  struct File {
    std::string path;
    int64_t label = 0;
  };
  /// Reads the names only. Throws Error where there is no folder with an image in it, and for a class without images.
  /// `shrink_to`: see io::DecodeOptions.
  explicit ImageFolder(const std::string& folder, int64_t shrink_to = 0);
  /// The same with the numbers of these classes, of which some may be missing; others are refused.
  ImageFolder(const std::string& folder, std::vector<std::string> classes, int64_t shrink_to = 0);
  ImageFolder(std::vector<File> files, std::vector<std::string> classes, int64_t shrink_to = 0);
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;
  std::string sample_name(int64_t i) const override;
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<File>& files() const { return files_; }
  /// Files of kinds of images that are not read (.gif, .webp …), which were left out.
  int64_t other_images() const { return other_images_; }
  /// What else was left out, one line each: links that lead nowhere, or to the folder itself or one above it; links to
  /// folders within a class; images beside the classes' folders.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void add_class(const std::string& folder, int64_t label);

  std::vector<File> files_;
  std::vector<std::string> classes_;
  int64_t shrink_to_ = 0, other_images_ = 0;
  std::vector<std::string> notices_;
};

/// How images of a folder become inputs of (height, width), 1 to 8,192 each: resized with their proportions so that they
/// cover 256 / 224 of that, then their middle, normalised by kPhotoMean and kPhotoDeviation.
ImageFormat image_folder_format(int64_t height, int64_t width);

/// Mean and deviation of ImageNet's pixels, which models of photographs expect.
extern const std::vector<float>& kPhotoMean;
extern const std::vector<float>& kPhotoDeviation;

std::optional<std::string> locate_image_folder(const DatasetInfo& info, const std::string& data_dir);
/// train/ and test/ (or val/, or valid/) with a folder per class each; without these two, or without train/, the images for testing
/// are split off, each class in equal shares. Images become options.image_size: see image_folder_format.
Splits open_image_folder(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
