// Images in folders: classes, sizes, splits, and files that cannot be read.
// ctest: asan tsan
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tandem/data/image_folder.h"
#include "tandem/data/image_ops.h"
#include "tandem/data/loader.h"
#include "tandem/data/registry.h"
#include "tandem/io/image.h"
#include "tandem/ops/create.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::TempFolder;
using testing::write_text;
using Labels = std::vector<int64_t>;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

class Folders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!io::has_png() || !io::has_jpeg()) GTEST_SKIP() << "built without libpng or libjpeg";
  }
  std::string refusal(const OpenOptions& options) const {
    return message_of<Error>([&] { open_dataset("image-folder", options); });
  }
  Splits open(OpenOptions options = {}) const {
    options.data_dir = folder.path();
    return open_dataset("image-folder", options);
  }
  TempFolder folder;
};

void write_bytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Every pixel has a value of its own place.
Tensor pattern(Dim channels, Dim height, Dim width) {
  std::vector<uint8_t> pixels;
  for (Dim c = 0; c < channels; ++c)
    for (Dim y = 0; y < height; ++y)
      for (Dim x = 0; x < width; ++x)
        pixels.push_back(static_cast<uint8_t>(60 * c + y * 90 / height + x * 40 / width));
  return from_vector(pixels, {channels, height, width});
}

void write_png(const std::string& path, const Tensor& image = pattern(3, 10, 14)) {
  write_bytes(path, io::encode_png(image));
}

float amin_of(const Tensor& values) {
  const std::vector<float> all = values.to_vector<float>();
  return *std::min_element(all.begin(), all.end());
}

Labels labels_of(const Dataset& set) {
  Labels labels;
  for (int64_t i = 0; i < set.size(); ++i) labels.push_back(set.get(i)[1].item<int64_t>());
  return labels;
}

TEST_F(Folders, NameTheClassesInTrainAndTest) {
  write_png(folder / "train/dog/1.png", full({3, 10, 14}, 10, DType::u8));
  write_png(folder / "train/cat/deep/2.PNG", full({3, 10, 14}, 20, DType::u8));
  write_png(folder / "train/owl/3.png");
  write_png(folder / "val/dog/4.png");
  write_png(folder / "val/cat/5.png");
  write_text(folder / "train/cat/notes.txt", "not an image");
  write_text(folder / "train/cat/._2.png", "what another system leaves beside a file");
  fs::create_directories(folder / "train/.thumbnails");
  const ImageFolder files(folder / "train");
  EXPECT_EQ(files.classes(), (Strings{"cat", "dog", "owl"}));
  EXPECT_EQ(files.get(1)[0].shape(), (Dims{3, 10, 14}));
  EXPECT_EQ(files.get(1)[0].to_vector<uint8_t>()[0], 10);

  const Splits splits = open();
  EXPECT_EQ(splits.info.classes, 3);
  EXPECT_EQ(splits.class_names, (Strings{"cat", "dog", "owl"}));
  EXPECT_EQ(splits.task, "classification");
  EXPECT_EQ(splits.info.train_size, 3);
  EXPECT_EQ(splits.info.test_size, 2);
  EXPECT_EQ(splits.info.sample_shape, (Dims{3, 224, 224}));
  EXPECT_TRUE(splits.notices.empty());
  EXPECT_EQ(labels_of(*splits.test), (Labels{0, 1})) << "a class may be missing there";
  EXPECT_EQ(splits.train->get(0)[0].shape(), (Dims{3, 224, 224}));
  EXPECT_NEAR(splits.train->get(0)[0].to_vector<float>()[0], (20 / 255.0f - 0.485f) / 0.229f, 1e-6);
  EXPECT_EQ(splits.augmented(0)->get_at(1, 4)[0].shape(), (Dims{3, 224, 224}));

  write_png(folder / "test/dog/6.png");
  const Splits both = open();
  EXPECT_EQ(labels_of(*both.test), (Labels{1}));
  EXPECT_EQ(both.notices, (Strings{"val/ is not used: test/ is there."}));
  write_png(folder / "test/emu/7.png");
  EXPECT_HAS(refusal({.data_dir = folder.path()}),
             "its classes must be those of training; 'emu' is not one of them. Remove it");
}

TEST_F(Folders, GiveSamplesOfAnySizeAndTheFormatThatMakesThem) {
  write_png(folder / "a/wide.png", pattern(3, 50, 90));
  write_png(folder / "b/tall.png", pattern(3, 120, 40));
  write_png(folder / "b/tiny.png", pattern(3, 1, 1));
  write_png(folder / "a/gray.png", pattern(1, 20, 20));
  write_png(folder / "a/alpha.png", pattern(4, 20, 21));
  struct Size {
    int64_t height, width, short_side;
  };
  for (const Size& size : {Size{32, 32, 37}, {1, 1, 1}, {224, 224, 256}, {32, 64, 37}, {48, 20, 23}}) {
    const Splits splits = open({.image_size = {{size.height, size.width}}, .test_share = 0.4});
    ASSERT_TRUE(splits.format);
    EXPECT_EQ(splits.format->short_side, size.short_side);
    EXPECT_EQ(splits.info.sample_shape, (Dims{3, size.height, size.width}));
    for (const DatasetPtr& set : {splits.train, splits.test})
      for (int64_t i = 0; i < set->size(); ++i) {
        std::string path = set->sample_name(i);
        path = path.substr(1, path.size() - 2);
        const Tensor image = io::read_image(path, {.channels = io::Channels::rgb}), sample = set->get(i)[0];
        EXPECT_EQ(sample.shape(), (Dims{3, size.height, size.width})) << path;
        EXPECT_EQ(host_bytes(sample), host_bytes(image_to_input(image, *splits.format)))
            << "predicting a file gives the bits of the test sample, " << path;
        if (size.height == size.width)
          EXPECT_EQ(
              host_bytes(sample),
              host_bytes(image::normalise(image::center_crop(image::resize_short_side(image, size.short_side),
                                                             size.height, size.width),
                                          kPhotoMean, kPhotoDeviation)))
              << "as models of photographs are tested, " << path;
        else  // the image covers the sample: no border of black, which would be below every pixel
          EXPECT_GE(amin_of(sample),
                    amin_of(image_to_input(image, {3, 8, 8, kPhotoMean, kPhotoDeviation})) - 0.2f)
              << path;
      }
    EXPECT_EQ(splits.augmented(1)->get_at(0, 2)[0].shape(), (Dims{3, size.height, size.width}));
  }
  EXPECT_HAS(refusal({.data_dir = folder.path(), .image_size = {{0, 8}}}),
             "image_size: height and width must be 1 to 8192; got 0 by 8");
  EXPECT_HAS(refusal({.data_dir = folder.path(), .image_size = {{8, 8193}}}), "got 8 by 8193");
}

TEST_F(Folders, WithoutATestPartAreSplitBySeedEachClassInEqualShares) {
  for (int i = 0; i < 40; ++i)
    write_png(folder / (std::string(i < 20   ? "a"
                                    : i < 30 ? "b"
                                    : i < 39 ? "c"
                                             : "one") +
                        "/" + std::to_string(100 + i) + ".png"),
              full({3, 2, 2}, i, DType::u8));
  const auto count = [](const Dataset& set, int64_t label) {
    const Labels labels = labels_of(set);
    return std::count(labels.begin(), labels.end(), label);
  };
  const Splits splits = open({.image_size = {{4, 4}}});
  EXPECT_EQ(splits.test->size(), 8);
  EXPECT_EQ(splits.train->size(), 32);
  EXPECT_EQ(count(*splits.test, 0), 4);
  EXPECT_EQ(count(*splits.test, 1), 2);
  EXPECT_EQ(count(*splits.test, 2), 2);
  EXPECT_EQ(count(*splits.train, 3), 1) << "the only image of its class is to learn from";
  EXPECT_EQ(splits.notices, (Strings{"8 of 40 images were split off for testing (seed 0)."}));
  EXPECT_EQ(fingerprint(*splits.test), fingerprint(*open({.image_size = {{4, 4}}}).test));
  EXPECT_NE(fingerprint(*splits.test), fingerprint(*open({.image_size = {{4, 4}}, .split_seed = 1}).test));
  EXPECT_EQ(open({.test_share = 0.5}).test->size(), 20);

  const std::string before = fingerprint(*splits.test);
  fs::create_directories(folder / "train");  // train/ alone is split, too
  for (const char* name : {"a", "b", "c", "one"})
    fs::rename(folder / name, folder / ("train/" + std::string(name)));
  EXPECT_EQ(fingerprint(*open({.image_size = {{4, 4}}}).test), before);
}

TEST_F(Folders, OfClassesThatCannotBeLearnedAreRefusedByName) {
  const std::string dir = folder / "set";
  EXPECT_HAS(refusal({.data_dir = dir}), "no such folder");
  fs::create_directories(dir);
  EXPECT_HAS(refusal({.data_dir = dir}), "a class's folder with images is missing");
  fs::create_directories(dir + "/train");
  EXPECT_HAS(refusal({.data_dir = dir}), "a class's folder with images in train/ is missing");
  write_png(dir + "/train/cat/1.png");
  EXPECT_HAS(refusal({.data_dir = dir}), "there must be two classes or more; got 'cat' alone");
  fs::create_directories(dir + "/train/dog");
  write_text(dir + "/train/dog/1.webp", "RIFF");
  EXPECT_HAS(refusal({.data_dir = dir}),
             "every class's folder must hold .jpg, .jpeg or .png files; 'dog' holds none. Remove it, or put "
             "images there.");
  write_png(dir + "/train/dog/2.png");
  EXPECT_HAS(refusal({.data_dir = dir}), "each of the 2 images is a class of its own");
  write_png(dir + "/train/dog/3.png");
  const Splits splits = open_dataset("image-folder", {.data_dir = dir});
  EXPECT_HAS(splits.notices.at(1), "1 files of other kinds (.gif, .webp …) were left out");
  fs::create_directories(dir + "/test/cat");
  EXPECT_HAS(refusal({.data_dir = dir}), "test': must hold folders with .jpg, .jpeg or .png files");
  write_png(dir + "/test/cat/4.png");
  EXPECT_EQ(open_dataset("image-folder", {.data_dir = dir}).test->size(), 1);
  fs::rename(dir + "/train/dog", dir + "/dog");
  fs::remove_all(dir + "/train");
  EXPECT_HAS(refusal({.data_dir = dir}), "test/ holds classes: there must be train/ beside it");
}

TEST_F(Folders, LoseNothingWithoutAWord) {
  const std::string dir = folder / "set";
  for (const char* name : {"cat/2020/1.png", "cat/2021/2.png", "dog/2020/3.png", "dog/2020/4.png"})
    write_png(dir + "/train/" + name);
  fs::create_directories(dir + "/valid");
  for (const char* name : {"cat/1.png", "dog/2.png"}) write_png(dir + "/valid/" + name);
  const Splits deep = open_dataset("image-folder", {.data_dir = dir});
  EXPECT_EQ(deep.train->size(), 4);
  EXPECT_EQ(deep.test->size(), 2) << "valid/ is a test part";
  EXPECT_TRUE(deep.notices.empty());

  write_png(dir + "/train/loose.png");
  fs::create_symlink("nowhere", dir + "/train/owl");
  fs::create_symlink("nowhere.png", dir + "/train/cat/5.png");
  fs::create_symlink(".", dir + "/train/self");
  fs::create_symlink("../dog", dir + "/train/cat/dog");
  fs::create_directories(dir + "/val/cat");
  write_png(dir + "/val/cat/1.png");
  const Splits splits = open_dataset("image-folder", {.data_dir = dir});
  EXPECT_EQ(splits.class_names, (std::vector<std::string>{"cat", "dog"}));
  const std::string train = dir + "/train/";
  EXPECT_EQ(splits.notices,
            (std::vector<std::string>{
                "left out: images beside the classes' folders: 1, the first '" + train + "loose.png'.",
                "left out: links that lead nowhere: 1, the first '" + train + "owl'.",
                "left out: links to the folder itself or to one above it: 1, the first '" + train + "self'.",
                "left out: links that lead nowhere: 1, the first '" + train + "cat/5.png'.",
                "left out: links to folders, which are not followed within a class: 1, the first '" + train +
                    "cat/dog'.",
                "valid/ is not used: val/ is there."}));
  // The name of a class is kept with a run, as text.
  fs::rename(dir + "/train/dog", dir + "/train/caf\xe9");
  EXPECT_HAS(refusal({.data_dir = dir}), "the name of a class's folder must be UTF-8; ");
}

TEST_F(Folders, FilesThatCannotBeReadStopTheRunByNameOrAreLeftOutWithNotices) {
  for (int i = 0; i < 4; ++i) {
    write_png(folder / ("train/cat/" + std::to_string(i) + ".png"), pattern(3, 8, 8 + i));
    write_png(folder / ("train/dog/" + std::to_string(i) + ".png"), pattern(3, 9, 8 + i));
  }
  write_bytes(folder / "test/cat/million.jpg", io::encode_jpeg(pattern(3, 1000, 1100)));
  const std::vector<uint8_t> whole = io::encode_jpeg(pattern(3, 64, 64));
  write_bytes(folder / "test/cat/cut.jpg", {whole.begin(), whole.end() - 200});
  write_text(folder / "test/cat/text.jpg", "not a JPEG");
  write_png(folder / "test/dog/narrow.png", pattern(3, 1, 70000));
  write_text(folder / "test/dog/empty.png", "");
  const OpenOptions small{.data_dir = folder.path(), .image_size = {{224, 224}}};

  const Splits strict = open_dataset("image-folder", small);
  EXPECT_EQ(strict.test->size(), 5);
  const auto refusal_of = [&](int64_t i) {
    return message_of<Error>([&] { strict.test->batch(std::vector<int64_t>{i}); });
  };
  EXPECT_HAS(refusal_of(0), "cat/cut.jpg': the JPEG image must be whole; it is cut off before its end");
  EXPECT_EQ(refusal_of(1), "") << "a million pixels are no fault";
  EXPECT_HAS(refusal_of(2), "cat/text.jpg': must be a JPEG, PNG, PGM or PPM image");
  EXPECT_HAS(refusal_of(3), "dog/empty.png': must be a JPEG, PNG, PGM or PPM image");
  EXPECT_HAS(refusal_of(4), "dog/narrow.png': resize: the new size must be at least 1 by 1 and at most 2^28");
  Loader loader(*strict.test, {.batch = 3, .shuffle = false, .workers = 2});
  loader.start_epoch(0);
  EXPECT_HAS(message_of<Error>([&] { loader.next(); }), folder / "test/cat/cut.jpg");

  OpenOptions lenient = small;
  lenient.skip_bad = true;
  const Splits kept = open_dataset("image-folder", lenient);
  EXPECT_EQ(kept.test->size(), 1);
  EXPECT_EQ(kept.info.test_size, 1);
  EXPECT_EQ(kept.train->size(), 8);
  ASSERT_EQ(kept.notices.size(), 4u);
  EXPECT_HAS(kept.notices[0], "left out: read '" + folder / "test/cat/cut.jpg");
  EXPECT_HAS(kept.notices[3], "left out: '" + folder / "test/dog/narrow.png" + "': resize: ");

  for (int i = 0; i < 9; ++i) write_text(folder / ("train/dog/bad" + std::to_string(i) + ".png"), "bad");
  const Splits many = open_dataset("image-folder", lenient);
  EXPECT_EQ(many.train->size(), 8);
  EXPECT_EQ(many.notices.at(5), "left out: and 4 more files.");
  for (int i = 0; i < 4; ++i) fs::remove(folder / ("train/dog/" + std::to_string(i) + ".png"));
  EXPECT_HAS(refusal(lenient), "every class must have an image that can be read; all of 'dog' were left out");
  fs::remove_all(folder / "test/cat");
  write_png(folder / "train/dog/0.png");
  EXPECT_HAS(refusal(lenient), "test/ must hold an image that can be read; all were left out");
}

}  // namespace
}  // namespace tandem::data
