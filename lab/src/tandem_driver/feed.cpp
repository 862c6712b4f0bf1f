#include "lab/src/tandem_driver/feed.h"

#include <algorithm>
#include <fstream>

#include "lab/src/protocol/cut.h"
#include "lab/src/tandem_driver/steps.h"

namespace tandem::lab::tandem_driver {
namespace {

namespace image = data::image;

constexpr int64_t kMostFiles = 1 << 24, kMostPixels = 8192;

std::vector<float> channels_field(const Json& images, const std::string& name, double least) {
  const Json& list = list_field(images, name, "data.images." + name);
  std::vector<float> values;
  for (const Json& value : list)
    if (value.is_number() && std::abs(value.get<double>()) <= 1e6 && value.get<double>() >= least)
      values.push_back(value.get<float>());
  TD_CHECK(list.size() == 3 && values.size() == 3, "data.images.", name,
           ": must be three numbers, one for each channel, of at least ", least, "; got ",
           io::one_line(list.dump(), 80), ".");
  return values;
}

/// Each line of the list is a label, a tab and a path.
std::vector<data::ImageFolder::File> read_list(const std::string& path, int64_t classes) {
  std::ifstream in(path);
  TD_CHECK(in, "data.images.list: must be the path of a file; got '", io::one_line(path, 200), "'.");
  std::vector<data::ImageFolder::File> files;
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    const bool is_label = tab != std::string::npos && tab > 0 && tab < 10 &&
                          std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(tab),
                                      [](char c) { return c >= '0' && c <= '9'; });
    const int64_t label = is_label ? std::stoll(line.substr(0, tab)) : -1;
    TD_CHECK(is_label && (classes == 0 || label < classes), "data.images.list: each line must be a label ",
             classes == 0 ? "" : str("below ", classes, " "), "and a path, with a tab between; got '",
             io::one_line(line, 120), "'.");
    files.push_back({line.substr(tab + 1), label});
    TD_CHECK(static_cast<int64_t>(files.size()) <= kMostFiles, "data.images.list: must have at most ",
             kMostFiles, " files; got more.");
  }
  TD_CHECK(!files.empty(), "data.images.list: must have a file; got none.");
  return files;
}

/// ImageFolder needs a name for each label.
std::vector<std::string> names_of_labels(const std::vector<data::ImageFolder::File>& files) {
  int64_t most = 0;
  for (const data::ImageFolder::File& file : files) most = std::max(most, file.label);
  return std::vector<std::string>(static_cast<size_t>(most + 1), "label");
}

class Pictures final : public data::Dataset {
 public:
  Pictures(std::shared_ptr<const Images> images, uint64_t seed, int64_t count, bool training)
      : images_(std::move(images)),
        decoded_(images_->files, names_of_labels(images_->files)),
        seed_(seed),
        count_(count),
        training_(training) {}
  int64_t size() const override { return count_; }
  std::vector<Tensor> get(int64_t i) const override {
    const Images& wanted = *images_;
    std::vector<Tensor> sample = decoded_.get(i % decoded_.size());
    Tensor picture = image::resize_short_side(sample[0], wanted.resize);
    const Cut cut = training_
                        ? drawn_cut(i, seed_, picture.size(1), picture.size(2), wanted.height, wanted.width)
                        : middle_cut(picture.size(1), picture.size(2), wanted.height, wanted.width);
    picture = image::crop(picture, cut.top, cut.left, wanted.height, wanted.width);
    if (cut.is_mirrored) picture = image::flip_horizontal(picture);
    sample[0] = image::normalise(picture, wanted.mean, wanted.deviation);
    return sample;
  }
  std::string sample_name(int64_t i) const override { return decoded_.sample_name(i % decoded_.size()); }

 private:
  std::shared_ptr<const Images> images_;
  data::ImageFolder decoded_;
  uint64_t seed_;
  int64_t count_;
  bool training_;
};

/// The samples of `base`, repeated until there are `count`.
class Rows final : public data::Dataset {
 public:
  Rows(const data::TensorSet& base, int64_t count) : base_(base), count_(count) {}
  int64_t size() const override { return count_; }
  std::vector<Tensor> get(int64_t i) const override { return base_.get(i % base_.size()); }
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override {
    std::vector<int64_t> rows(indices.begin(), indices.end());
    for (int64_t& row : rows) row %= base_.size();
    return base_.batch(rows);
  }

 private:
  const data::TensorSet& base_;
  int64_t count_;
};

}  // namespace

Images read_images(const Json& data, const CellRequest& cell) {
  const Json& given = object_field(data, "images", "data.images");
  if (!io::has_jpeg())
    throw Declined("images", "images: this build of Tandem reads no JPEG files. Build it with libjpeg.");
  TD_CHECK(cell.line.inputs.size() == 1 && cell.line.inputs[0].shape.rank() == 3 &&
               cell.line.inputs[0].shape[0] == 3 && cell.objective.targets.size() == 1,
           "data.images: must be for a network of one input (3, height, width) and one target; got ",
           cell.line.inputs.size(), " inputs and ", cell.objective.targets.size(), " targets.");
  const Dims& shape = cell.line.inputs[0].shape;
  Images out{read_list(text_field(given, "list", "data.images.list"), cell.objective.classes),
             integer_field(given, "resize", 1, kMostPixels, {}, "data.images.resize"),
             shape[1],
             shape[2],
             channels_field(given, "mean", -1e6),
             channels_field(given, "std", 1e-6)};
  TD_CHECK(out.resize >= std::max(out.height, out.width), "data.images.resize: must be at least ", out.height,
           " and ", out.width, ", the sizes of a sample; got ", out.resize, ".");
  return out;
}

data::DatasetPtr picture_set(std::shared_ptr<const Images> images, const CellRequest& cell, int64_t count,
                             bool training) {
  return std::make_shared<Pictures>(std::move(images), cell.seed, count, training);
}

Feed::Feed(const CellRequest& cell, std::shared_ptr<const Images> images, const data::TensorSet* arrays)
    : cell_(cell), images_(std::move(images)), arrays_(arrays) {}

Feed::~Feed() = default;

void Feed::begin(int64_t batches) {
  const int64_t begun = now_ns(), count = batches * cell_.batch;
  loader_.reset();
  if (images_)
    set_ = picture_set(images_, cell_, count, true);
  else
    set_ = std::make_shared<Rows>(*arrays_, count);
  loader_ =
      std::make_unique<data::Loader>(*set_, data::LoaderOptions{.batch = cell_.batch,
                                                                .shuffle = false,
                                                                .workers = static_cast<int>(cell_.threads),
                                                                .last_batch = data::LastBatch::drop,
                                                                .device = cell_.device});
  loader_->start_epoch(0);
  waited_ns_ = now_ns() - begun;
}

const std::vector<Tensor>& Feed::next() {
  const int64_t begun = now_ns();
  std::optional<data::Batch> made = loader_->next();
  TD_ASSERT(made, "the loader has as many batches as steps are taken");
  last_ = made->tensors.values();
  const NoGrad off;
  for (Tensor& field : last_)
    if (is_floating(field.dtype())) field = cast(field, cell_.dtype());
  waited_ns_ += now_ns() - begun;
  return last_;
}

Json Feed::samples_sum() const {
  const NoGrad off;
  Json sums = Json::object();
  size_t at = 0;
  for (const auto* all : {&cell_.line.inputs, &cell_.objective.targets})
    for (const zoo::InputDescription& field : *all)
      sums[field.name] = sum(cast(to(last_.at(at++), Device{}), DType::f64)).item<double>();
  return sums;
}

}  // namespace tandem::lab::tandem_driver
