// Image operations against Pillow's and torchvision's values (tests/golden/images/operations.npz), and what random
// transforms promise.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tandem/data/transforms.h"
#include "tandem/io/npy.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;

const Tensor& golden(const std::string& name) {
  static const std::map<std::string, Tensor> table = [] {
    std::map<std::string, Tensor> made;
    for (const auto& [key, value] :
         io::load_npz((testing::source_dir() / "tests/golden/images/operations.npz").string()))
      made[key] = value;
    return made;
  }();
  return table.at(name);
}

Tensor input(const std::string& kind) {
  const Tensor& u8 = golden("input");
  return kind == "u8" ? u8 : image::to_float(u8);
}

std::vector<double> values_of(const Tensor& image) {
  if (image.dtype() == DType::u8) {
    const auto bytes = image.to_vector<uint8_t>();
    return {bytes.begin(), bytes.end()};
  }
  const auto floats = image.to_vector<float>();
  return {floats.begin(), floats.end()};
}

/// At most `tolerance` apart, but for `odd` values (ties that fall to either side).
void expect_like(const std::string& name, const Tensor& image, double tolerance, size_t odd = 0) {
  const Tensor& wanted = golden(name);
  ASSERT_EQ(image.shape(), wanted.shape()) << name;
  ASSERT_EQ(image.dtype(), wanted.dtype()) << name;
  const std::vector<double> got = values_of(image), expected = values_of(wanted);
  size_t wrong = 0;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double apart = std::fabs(got[i] - expected[i]);
    wrong += apart > tolerance;
    worst = std::max(worst, apart);
  }
  EXPECT_LE(wrong, odd) << name << ": of " << got.size() << ", the worst by " << worst;
}

TEST(ImageOps, ResizingHasPillowsBytes) {
  for (const auto& [height, width] : {std::pair{11, 17}, {40, 61}, {23, 9}, {7, 31}, {5, 5}}) {
    const std::string size = std::to_string(height) + "x" + std::to_string(width);
    expect_like("resize_u8_" + size, image::resize(input("u8"), height, width), 0);
    expect_like("resize_f32_" + size, image::resize(input("f32"), height, width), 2e-6);
    expect_like("nearest_u8_" + size, image::resize(input("u8"), height, width, Interpolation::nearest), 0);
  }
  expect_like("short_side_u8_16", image::resize_short_side(input("u8"), 16), 0);
}

TEST(ImageOps, TurningIsTorchvisions) {
  for (int degrees : {15, 90, -37}) {
    const std::string angle = std::to_string(degrees);
    expect_like("rotate_f32_" + angle, image::rotate(input("f32"), degrees, Interpolation::bilinear), 1e-4);
    expect_like("rotate_nearest_u8_" + angle, image::rotate(input("u8"), degrees), 0, 12);
  }
  EXPECT_EQ(values_of(image::rotate(input("u8"), 0)), values_of(input("u8")));
}

TEST(ImageOps, ColoursAreTorchvisions) {
  for (const std::string kind : {"u8", "f32"}) {
    const Tensor in = input(kind);
    const double near = kind == "u8" ? 0 : 2e-6;
    expect_like("brightness_" + kind, image::adjust_brightness(in, 1.3), near);
    expect_like("contrast_" + kind, image::adjust_contrast(in, 0.6), near);
    expect_like("saturation_" + kind, image::adjust_saturation(in, 1.7), near);
    expect_like("hue_" + kind, image::adjust_hue(in, 0.2), near, 4);
    expect_like("hue_back_" + kind, image::adjust_hue(in, -0.35), near, 4);
    expect_like("grayscale_" + kind, image::grayscale(in), near);
  }
  expect_like("center_crop", image::center_crop(input("u8"), 10, 14), 0);
  expect_like("center_crop_padded", image::center_crop(input("u8"), 30, 14), 0);
  for (const std::string kind : {"u8", "f32"})
    expect_like("normalised",
                image::normalise(input(kind), {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}), 2e-6);
}

TEST(ImageOps, CropsPadsAndFlips) {
  const Tensor in = from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  EXPECT_EQ(values_of(image::crop(in, 1, 1, 1, 2)), (std::vector<double>{5, 6}));
  EXPECT_EQ(values_of(image::flip_horizontal(in)), (std::vector<double>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(values_of(image::flip_vertical(in)), (std::vector<double>{4, 5, 6, 1, 2, 3}));
  const Tensor padded = image::pad(in, {.left = 1, .bottom = 1}, 9);
  EXPECT_EQ(padded.shape(), (Dims{1, 3, 4}));
  EXPECT_EQ(values_of(padded), (std::vector<double>{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
}

TEST(ImageOps, WhatCannotBeIsRefused) {
  const Tensor in = input("u8");
  const auto refusal = [](auto&& call) { return message_of<Error>(call); };
  EXPECT_HAS(refusal([&] { image::resize(in, 0, 5); }), "at least 1 by 1");
  EXPECT_HAS(refusal([&] { image::resize(in, int64_t{1} << 40, int64_t{1} << 40); }), "2^28");
  EXPECT_HAS(refusal([&] { image::resize(from_vector<float>({1}, {1}), 5, 5); }),
             "(channels, height, width)");
  EXPECT_HAS(refusal([&] { image::resize(from_vector<int64_t>({1}, {1, 1, 1}), 5, 5); }), "u8 or f32");
  EXPECT_HAS(refusal([&] { image::resize(empty({3, 0, 4}, DType::u8), 5, 5); }), "at least one pixel");
  EXPECT_HAS(refusal([&] { image::resize(Tensor(), 5, 5); }), "nothing");
  EXPECT_HAS(refusal([&] { image::crop(in, 20, 0, 4, 4); }), "within the image");
  EXPECT_HAS(refusal([&] { image::crop(in, INT64_MAX, 0, 4, 4); }), "within the image");
  EXPECT_HAS(refusal([&] { image::pad(in, {.left = -1}); }), "a border must be");
  EXPECT_HAS(refusal([&] { image::adjust_hue(in, 0.6); }), "-0.5 to 0.5");
  EXPECT_HAS(refusal([&] { image::adjust_contrast(in, -1); }), "at least 0");
  EXPECT_HAS(refusal([&] { image::adjust_saturation(empty({2, 3, 3}, DType::u8), 1); }), "1 or 3 channels");
  EXPECT_HAS(refusal([&] { image::normalise(in, {0}, {1}); }), "each of the 3 channels");
  EXPECT_HAS(refusal([&] { image::rotate(in, NAN); }), "a number");
  EXPECT_HAS(refusal([&] { transforms::random_horizontal_flip(1.5); }), "0 to 1");
  EXPECT_HAS(refusal([&] { transforms::random_crop({}); }), "at least 1 by 1");
  EXPECT_HAS(refusal([&] { transforms::color_jitter({.hue = 1}); }), "at most 0.5");
  EXPECT_HAS(refusal([&] { transforms::random_resized_crop({.height = 5, .width = 5, .min_area = 2}); }),
             "min_area");
  EXPECT_HAS(refusal([&] { transforms::mixup(10, 0); }), "above 0");
}

// --- Random transforms

Transform every_transform() {
  return transforms::compose(
      {transforms::random_rotation(20), transforms::random_crop({.height = 20, .width = 20, .padding = 2}),
       transforms::random_resized_crop({.height = 16, .width = 12}), transforms::random_horizontal_flip(),
       transforms::random_vertical_flip(), transforms::color_jitter({0.4, 0.4, 0.4, 0.1}),
       transforms::to_float(), transforms::random_erase({.value = {}}),
       transforms::normalise({0.5f, 0.5f, 0.5f}, {0.2f, 0.2f, 0.2f})});
}

TEST(Transforms, DependOnSeedEpochAndSampleAlone) {
  const Tensor u8 = input("u8");
  const int64_t n = 12;
  std::vector<uint8_t> many;
  for (int64_t i = 0; i < n; ++i) {
    const std::vector<uint8_t> bytes = u8.to_vector<uint8_t>();
    many.insert(many.end(), bytes.begin(), bytes.end());
  }
  const auto base = std::make_shared<TensorSet>(std::vector{from_vector(many, {n, 3, 23, 31})});
  const auto run = [&](int workers, uint64_t seed, int64_t epoch, int64_t from) {
    const DatasetPtr set = transform(base, every_transform(), seed);
    Loader loader(*set, {.batch = 3, .seed = 9, .workers = workers});
    loader.start_epoch(epoch, from);
    std::vector<std::vector<float>> batches;
    while (auto batch = loader.next()) batches.push_back(batch->tensors[0].to_vector<float>());
    return batches;
  };
  const auto whole = run(0, 1, 2, 0);
  EXPECT_EQ(whole[0].size(), 3u * 3 * 16 * 12);
  EXPECT_EQ(run(3, 1, 2, 0), whole);
  EXPECT_EQ(run(2, 1, 2, 2), (std::vector<std::vector<float>>(whole.begin() + 2, whole.end())));
  EXPECT_NE(run(0, 1, 3, 0), whole);
  EXPECT_NE(run(0, 2, 2, 0), whole);
  EXPECT_EQ(std::set<std::vector<float>>(whole.begin(), whole.end()).size(), 4u)
      << "equal images, unequal samples";
  EXPECT_FALSE(transform(base, transforms::to_float())->varies());
}

TEST(Transforms, RandomNumbersAreSpreadAsTheyShould) {
  std::vector<int> flips(2), tops(5);
  double beta = 0, normal = 0, squares = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    SampleRandom random(3, 1, i);
    ++flips[random.chance(0.25)];
    ++tops[static_cast<size_t>(random.below(5))];
    const double b = random.symmetric_beta(0.4), g = random.normal();
    EXPECT_TRUE(b >= 0 && b <= 1);
    beta += b;
    normal += g;
    squares += g * g;
  }
  EXPECT_NEAR(flips[1], 1000, 100);
  for (int count : tops) EXPECT_NEAR(count, 800, 100);
  EXPECT_NEAR(beta / 4000, 0.5, 0.03);
  EXPECT_NEAR(normal / 4000, 0, 0.06);
  EXPECT_NEAR(squares / 4000, 1, 0.08);
  SampleRandom one(3, 1, 0), again(3, 1, 0);
  EXPECT_EQ(one.stream(2).word(), again.stream(2).word());
  EXPECT_NE(one.stream(2).word(), one.stream(3).word());
}

TEST(Transforms, CropsComeFromEverywhereAndKeepTheirSize) {
  const Tensor in = input("u8");
  std::set<std::vector<double>> seen;
  for (int64_t i = 0; i < 200; ++i) {
    SampleRandom random(0, 0, i);
    const Tensor made = transforms::random_crop({.height = 22, .width = 30}).apply(in, random);
    EXPECT_EQ(made.shape(), (Dims{3, 22, 30}));
    seen.insert(values_of(made));
  }
  EXPECT_EQ(seen.size(), 4u) << "two places down by two across";
  SampleRandom random(0, 0, 0);
  EXPECT_HAS(
      message_of<Error>([&] { transforms::random_crop({.height = 40, .width = 5}).apply(in, random); }),
      "at least 40 by 5");
}

TEST(Transforms, MixupAndCutmixMixImagesAsTheirLabels) {
  const int64_t n = 4, classes = 5, side = 8;
  std::vector<float> pixels(static_cast<size_t>(n * side * side));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(i / (side * side));  // image i is all i
  const Tensor images = from_vector(pixels, {n, 1, side, side}),
               labels = from_vector<int64_t>({0, 1, 2, 3}, {n});
  for (int64_t trial = 0; trial < 20; ++trial) {
    SampleRandom random(1, 0, trial), same(1, 0, trial);
    const std::vector<Tensor> mixed = transforms::mixup(classes, 0.8)({images, labels}, random),
                              again = transforms::mixup(classes, 0.8)({images, labels}, same);
    EXPECT_EQ(values_of(mixed[0]), values_of(again[0]));
    EXPECT_EQ(mixed[1].shape(), (Dims{n, classes}));
    const std::vector<double> x = values_of(mixed[0]), y = values_of(mixed[1]);
    const double lambda = y[1 * classes + 1];  // of sample 1, whose neighbour is sample 0
    EXPECT_NEAR(x[side * side], lambda, 1e-6);
    EXPECT_NEAR(y[1 * classes + 0], 1 - lambda, 1e-6);
    const std::vector<Tensor> cut = transforms::cutmix(classes, 1)({images, labels}, random);
    const std::vector<double> cx = values_of(cut[0]), cy = values_of(cut[1]);
    double own = 0;
    for (int64_t k = 0; k < side * side; ++k) own += cx[static_cast<size_t>(side * side + k)] == 1;
    EXPECT_NEAR(own / (side * side), cy[1 * classes + 1], 1e-6);
    EXPECT_NEAR(cy[1 * classes + 0], 1 - cy[1 * classes + 1], 1e-6);
  }
  SampleRandom random(0, 0, 0);
  EXPECT_HAS(message_of<Error>([&] { transforms::mixup(3)({images, labels}, random); }), "0 to 2; got 3");
  EXPECT_HAS(message_of<Error>([&] { transforms::mixup(3)({images}, random); }), "images f32");
}

}  // namespace
}  // namespace tandem::data
