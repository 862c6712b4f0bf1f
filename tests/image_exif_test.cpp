// JPEG files of cameras that were held another way: all eight orientations of Exif, and Exif that is damaged.
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tandem/data/image_folder.h"
#include "tandem/io/image.h"
#include "tandem/ops/create.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

using testing::TempFolder;
namespace fs = std::filesystem;

/// A JPEG file with an Exif part that tells an orientation, in the byte order of either kind of machine.
std::vector<uint8_t> with_orientation(const std::vector<uint8_t>& jpeg, int orientation, bool is_big) {
  std::vector<uint8_t> tiff;
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      tiff.push_back(static_cast<uint8_t>(value >> 8 * (is_big ? bytes - 1 - i : i)));
  };
  tiff.assign(2, is_big ? 'M' : 'I');
  put(42, 2), put(8, 4), put(2, 2);
  put(0x010f, 2), put(2, 2), put(3, 4), put(0x00414243, 4);  // the camera's maker
  put(0x0112, 2), put(3, 2), put(1, 4), put(static_cast<uint32_t>(orientation), 2),
      put(0, 2);  // its orientation
  put(0, 4);
  const std::vector<uint8_t> mark{'E', 'x', 'i', 'f', 0, 0};
  const size_t length = 2 + mark.size() + tiff.size();
  std::vector<uint8_t> file(jpeg.begin(), jpeg.begin() + 2);
  file.insert(file.end(), {0xff, 0xe1, static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)});
  file.insert(file.end(), mark.begin(), mark.end());
  file.insert(file.end(), tiff.begin(), tiff.end());
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  return file;
}

// The letter F as six pixels, as each orientation stores it (the Exif standard's table of rows and columns).
struct Stored {
  int orientation;
  Dims shape;
  std::vector<uint8_t> pixels;
};
const Stored kStored[] = {{1, {1, 3, 2}, {1, 2, 3, 4, 5, 6}}, {2, {1, 3, 2}, {2, 1, 4, 3, 6, 5}},
                          {3, {1, 3, 2}, {6, 5, 4, 3, 2, 1}}, {4, {1, 3, 2}, {5, 6, 3, 4, 1, 2}},
                          {5, {1, 2, 3}, {1, 3, 5, 2, 4, 6}}, {6, {1, 2, 3}, {2, 4, 6, 1, 3, 5}},
                          {7, {1, 2, 3}, {6, 4, 2, 5, 3, 1}}, {8, {1, 2, 3}, {5, 3, 1, 6, 4, 2}}};

TEST(Exif, EveryOrientationIsTurnedUpright) {
  for (const Stored& stored : kStored) {
    const Tensor upright = detail::turn_upright(from_vector(stored.pixels, stored.shape), stored.orientation);
    EXPECT_EQ(upright.shape(), (Dims{1, 3, 2})) << stored.orientation;
    EXPECT_EQ(upright.to_vector<uint8_t>(), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6})) << stored.orientation;
  }
}

TEST(Exif, JpegFilesAreSeenAsTheCameraWasHeld) {
  if (!has_jpeg()) GTEST_SKIP() << "built without libjpeg";
  TempFolder folder;
  // Blocks of 8 by 8 pixels of one grey each: what JPEG keeps. The image is 24 by 16, of blocks as kStored has them.
  const auto blocks = [](const Stored& stored) {
    const Dim rows = stored.shape[1], columns = stored.shape[2];
    std::vector<uint8_t> pixels;
    for (Dim y = 0; y < 8 * rows; ++y)
      for (Dim x = 0; x < 8 * columns; ++x)
        pixels.push_back(
            static_cast<uint8_t>(stored.pixels[static_cast<size_t>(y / 8 * columns + x / 8)] * 40));
    return from_vector(pixels, {1, 8 * rows, 8 * columns});
  };
  for (bool is_big : {false, true})
    for (const Stored& stored : kStored) {
      const std::vector<uint8_t> file =
          with_orientation(encode_jpeg(blocks(stored), 100), stored.orientation, is_big);
      EXPECT_EQ(detail::jpeg_orientation(file), stored.orientation);
      const std::string path = folder / ("all/" + std::to_string(stored.orientation) + ".jpg");
      fs::create_directories(folder / "all");
      testing::write_text(path, {reinterpret_cast<const char*>(file.data()), file.size()});
      const Tensor image = read_image(path);
      EXPECT_EQ(image.shape(), (Dims{1, 24, 16}));
      const std::vector<uint8_t> pixels = image.to_vector<uint8_t>();
      for (size_t y = 0; y < 24; ++y)
        for (size_t x = 0; x < 16; ++x)
          ASSERT_NEAR(pixels[y * 16 + x], 40.0 * static_cast<double>(y / 8 * 2 + x / 8 + 1), 2)
              << stored.orientation << " at " << y << ", " << x;
    }
  const data::ImageFolder files(folder.path());
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(files.get(i)[0].shape(), (Dims{3, 24, 16}));
}

TEST(Exif, ThatIsDamagedCountsAsUpright) {
  if (!has_jpeg()) GTEST_SKIP() << "built without libjpeg";
  const std::vector<uint8_t> plain = encode_jpeg(zeros({1, 8, 16}, DType::u8)),
                             file = with_orientation(plain, 6, true);
  const size_t tiff = 12;  // where it begins
  const auto changed = [&](size_t at, std::vector<uint8_t> bytes) {
    std::vector<uint8_t> copy = file;
    std::copy(bytes.begin(), bytes.end(), copy.begin() + static_cast<std::ptrdiff_t>(at));
    return detail::jpeg_orientation(copy);
  };
  EXPECT_EQ(changed(0, {}), 6);
  EXPECT_EQ(changed(tiff, {'X'}), 1) << "no byte order";
  EXPECT_EQ(changed(tiff + 3, {43}), 1) << "no TIFF";
  EXPECT_EQ(changed(tiff + 4, {0xff, 0xff, 0xff, 0xff}), 1) << "a list beyond the end";
  EXPECT_EQ(changed(tiff + 8, {0xff, 0xff, 0, 0}), 6) << "a list that says to be longer";
  EXPECT_EQ(changed(tiff + 22, {0, 1}), 1) << "no such tag, and no end of the list";
  EXPECT_EQ(changed(tiff + 24, {0, 4}), 1) << "of another type";
  EXPECT_EQ(changed(tiff + 26, {0, 0, 0, 2}), 1) << "two of them";
  for (uint8_t value : {0, 9, 255}) EXPECT_EQ(changed(tiff + 30, {0, value}), 1);
  EXPECT_EQ(changed(4, {0, 1}), 1) << "a segment shorter than its length";
  EXPECT_EQ(changed(4, {0xff, 0xff}), 1) << "a segment beyond the end";
  EXPECT_EQ(detail::jpeg_orientation(plain), 1);
  for (size_t length = 0; length < 60; ++length)  // cut off anywhere
    EXPECT_LE(detail::jpeg_orientation(std::span(file).first(length)), 6);
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {  // any bytes: an answer, and no step beyond the end (asan)
    std::vector<uint8_t> copy(file.begin(), file.begin() + 20 + static_cast<std::ptrdiff_t>(random() % 60));
    for (int k = 0; k < 4; ++k) copy[2 + random() % (copy.size() - 2)] = static_cast<uint8_t>(random());
    const int orientation = detail::jpeg_orientation(copy);
    EXPECT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

}  // namespace
}  // namespace tandem::io
