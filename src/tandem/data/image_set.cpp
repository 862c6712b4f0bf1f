// Normalisation of byte images by table, straight into the batch's memory.
#include "tandem/data/image_set.h"

#include <algorithm>

#include "tandem/data/image_ops.h"

namespace tandem::data {

namespace {

/// The image made so large, its proportions kept, that it just covers the format's box (see ImageFormat::short_side).
Tensor covering(const Tensor& image, const ImageFormat& format) {
  const int64_t shorter = std::min(format.height, format.width);
  const auto side_of_box = [&](int64_t side) {
    return (side * format.short_side + shorter / 2) / shorter;  // rounded
  };
  const int64_t box_height = side_of_box(format.height), box_width = side_of_box(format.width),
                height = image.size(1), width = image.size(2);
  const auto scaled = [](int64_t of, int64_t to, int64_t from) {
    return static_cast<int64_t>(static_cast<double>(to) * static_cast<double>(of) /
                                static_cast<double>(from));
  };
  if (box_height * width >= box_width * height)  // the image is the wider one: its height decides
    return image::resize(image, box_height, std::max(box_width, scaled(width, box_height, height)));
  return image::resize(image, std::max(box_height, scaled(height, box_width, width)), box_width);
}

}  // namespace

Tensor image_to_input(const Tensor& image, const ImageFormat& format) {
  TD_CHECK(
      image.defined() && image.dtype() == DType::u8 && image.rank() == 3 && image.size(0) == format.channels,
      "image_to_input: must be u8 (", format.channels, ", height, width); got ",
      image.defined() ? describe(image) : "nothing", ".");
  constexpr int64_t most = int64_t{1} << 20;
  TD_CHECK(format.height >= 1 && format.height <= most && format.width >= 1 && format.width <= most &&
               format.short_side >= 0 && format.short_side <= most,
           "image_to_input: the format's sides must be 1 to ", most, "; got ", format.height, " by ",
           format.width, " and a short side of ", format.short_side, ".");
  const Tensor sized = format.short_side > 0
                           ? image::center_crop(covering(image, format), format.height, format.width)
                           : image::resize(image, format.height, format.width);
  return image::normalise(sized, format.mean, format.deviation);
}

ImageDataset::ImageDataset(std::string name, ImageFormat format, std::vector<uint8_t> labels)
    : name_(std::move(name)), format_(std::move(format)), labels_(std::move(labels)) {
  TD_CHECK(format_.channels >= 1 && format_.height >= 1 && format_.width >= 1, name_,
           ": images must have at least one channel, row and column; got (", format_.channels, ", ",
           format_.height, ", ", format_.width, ").");
  const auto channels = static_cast<size_t>(format_.channels);
  TD_CHECK(format_.mean.size() == channels && format_.deviation.size() == channels, name_,
           ": mean and deviation must be given for each of the ", channels, " channels; got ",
           format_.mean.size(), " and ", format_.deviation.size(), ".");
  value_of_.resize(channels);
  for (size_t c = 0; c < channels; ++c) {
    TD_CHECK(format_.deviation[c] > 0, name_, ": the deviation must be more than 0; got ",
             format_.deviation[c], ".");
    for (int p = 0; p < 256; ++p)
      value_of_[c][static_cast<size_t>(p)] =
          (static_cast<float>(p) / 255.0f - format_.mean[c]) / format_.deviation[c];
  }
}

int64_t ImageDataset::label(int64_t i) const {
  check_index("label", i, size());
  return labels_[static_cast<size_t>(i)];
}

void ImageDataset::normalise(const uint8_t* pixels, float* out) const {
  const int64_t plane = format_.height * format_.width;
  for (const auto& value_of : value_of_)
    for (int64_t k = 0; k < plane; ++k) *out++ = value_of[*pixels++];
}

std::vector<Tensor> ImageDataset::get(int64_t i) const {
  check_index("get", i, size());
  std::vector<uint8_t> scratch(static_cast<size_t>(format_.bytes()));
  Tensor image = empty({format_.channels, format_.height, format_.width}, DType::f32);
  normalise(pixels(i, scratch.data()), image.data<float>());
  Tensor label = empty({}, DType::i64);
  *label.data<int64_t>() = labels_[static_cast<size_t>(i)];
  return {image, label};
}

std::vector<Tensor> ImageDataset::batch(std::span<const int64_t> indices) const {
  TD_CHECK(!indices.empty(), "batch: must ask for at least one sample; got none.");
  const auto n = static_cast<Dim>(indices.size());
  std::vector<uint8_t> scratch(static_cast<size_t>(format_.bytes()));
  Tensor images = empty({n, format_.channels, format_.height, format_.width}, DType::f32);
  Tensor labels = empty({n}, DType::i64);
  float* image_out = images.data<float>();
  int64_t* label_out = labels.data<int64_t>();
  for (int64_t i : indices) {
    check_index("batch", i, size());
    normalise(pixels(i, scratch.data()), image_out);
    image_out += format_.bytes();
    *label_out++ = labels_[static_cast<size_t>(i)];
  }
  return {images, labels};
}

std::string ImageDataset::describe() const {
  return str(name_, ": ", size(), " images of (", format_.channels, ", ", format_.height, ", ", format_.width,
             ")");
}

ImageSet::ImageSet(std::string name, ImageFormat format, std::vector<uint8_t> images,
                   std::vector<uint8_t> labels)
    : ImageDataset(std::move(name), std::move(format), std::move(labels)), images_(std::move(images)) {
  TD_CHECK(static_cast<int64_t>(images_.size()) == size() * this->format().bytes(),
           "image set: must have one label per image; got ", size(), " labels and ", images_.size(),
           " bytes of images of ", this->format().bytes(), " bytes each.");
}

const uint8_t* ImageSet::pixels(int64_t i, uint8_t*) const { return images_.data() + i * format().bytes(); }

namespace {

class ByteImages final : public Dataset {
 public:
  explicit ByteImages(std::shared_ptr<const ImageDataset> images) : images_(std::move(images)) {}
  int64_t size() const override { return images_->size(); }
  std::string describe() const override { return images_->describe(); }
  std::vector<Tensor> get(int64_t i) const override {
    check_index("get", i, size());
    const ImageFormat& format = images_->format();
    Tensor image = empty({format.channels, format.height, format.width}, DType::u8);
    uint8_t* out = image.data<uint8_t>();
    if (const uint8_t* kept = images_->pixels(i, out); kept != out) std::copy_n(kept, format.bytes(), out);
    return {image, from_vector<int64_t>({images_->label(i)}, {})};
  }

 private:
  std::shared_ptr<const ImageDataset> images_;
};

}  // namespace

DatasetPtr as_bytes(std::shared_ptr<const ImageDataset> images) {
  TD_CHECK(images != nullptr, "as_bytes: needs a data set; got none.");
  return std::make_shared<ByteImages>(std::move(images));
}

}  // namespace tandem::data
