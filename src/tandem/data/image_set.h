// Data sets of labelled images. Pixels are held as bytes and normalised to f32 when a sample is asked for.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// What all images of a set share. mean and deviation are per channel, of pixels scaled to 0…1.
struct ImageFormat {
  int64_t channels = 1, height = 28, width = 28;
  std::vector<float> mean{0.0f}, deviation{1.0f};
  /// How another image gets this size. 0: resized to height and width. Else: resized with its proportions kept so that it
  /// just covers a box of the format's proportions whose shorter side is short_side (where height = width: so that its
  /// own shorter side is), then its middle.
  int64_t short_side = 0;
  int64_t bytes() const { return channels * height * width; }
};

/// An image of any size, u8 (format.channels, h, w), as a sample's input: f32 (channels, height, width), normalised.
/// A test sample of image-folder has the very bits of its file so treated.
Tensor image_to_input(const Tensor& image, const ImageFormat& format);

/// A set of images as bytes, wherever they come from. A sample is {image f32 (channels, height, width), label
/// i64 ()}; a pixel p becomes (p / 255 - mean) / deviation.
class ImageDataset : public Dataset {
 public:
  int64_t size() const final { return static_cast<int64_t>(labels_.size()); }
  std::vector<Tensor> get(int64_t i) const final;
  std::vector<Tensor> batch(std::span<const int64_t> indices) const final;
  std::string describe() const final;
  const ImageFormat& format() const { return format_; }
  int64_t label(int64_t i) const;

  /// The bytes of image i, channel by channel, row by row. Either memory of the set or, where the image had to
  /// be made, `scratch` (format().bytes() long).
  virtual const uint8_t* pixels(int64_t i, uint8_t* scratch) const = 0;

 protected:
  ImageDataset(std::string name, ImageFormat format, std::vector<uint8_t> labels);

 private:
  void normalise(const uint8_t* pixels, float* out) const;

  std::string name_;
  ImageFormat format_;
  std::vector<uint8_t> labels_;
  std::vector<std::array<float, 256>> value_of_;  // per channel: byte -> normalised pixel
};

/// Images in memory: `images` holds labels.size() images one after the other.
class ImageSet final : public ImageDataset {
 public:
  ImageSet(std::string name, ImageFormat format, std::vector<uint8_t> images, std::vector<uint8_t> labels);
  const uint8_t* pixels(int64_t i, uint8_t* scratch) const override;

 private:
  std::vector<uint8_t> images_;
};

/// The samples of an ImageDataset as they lie: {image u8 (channels, height, width), label i64 ()}, for transforms that
/// want bytes.
DatasetPtr as_bytes(std::shared_ptr<const ImageDataset> images);

}  // namespace tandem::data
