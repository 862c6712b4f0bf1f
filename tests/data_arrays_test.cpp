// NumPy arrays of the user's own as a data set: classes and quantities, splits, and values that cannot be learned from.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tandem/data/registry.h"
#include "tandem/io/npy.h"
#include "tandem/ops/create.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::TempFolder;
using Labels = std::vector<int64_t>;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

Labels labels_of(const Dataset& set) {
  Labels labels;
  for (int64_t i = 0; i < set.size(); ++i) labels.push_back(set.get(i)[1].item<int64_t>());
  return labels;
}

/// (n, 2): row i holds i and -i.
Tensor rows(int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i)), x.push_back(-x.back());
  return from_vector(x, {n, 2});
}

class Arrays : public ::testing::Test {
 protected:
  void save(const std::string& name, const Tensor& values) { io::save_npy(folder / (name + ".npy"), values); }
  Splits open(OpenOptions options = {}) const {
    options.data_dir = folder.path();
    return open_dataset("npy", options);
  }
  std::string refusal(const OpenOptions& options = {}) const {
    return message_of<Error>([&] { open(options); });
  }
  TempFolder folder;
};

TEST_F(Arrays, AreReadFromNpyAndNpz) {
  const Tensor x = from_vector<uint8_t>({0, 255, 51, 102}, {2, 1, 2}), y = from_vector<int32_t>({2, 0}, {2});
  for (const char* part : {"train", "test"}) {
    save(std::string(part) + "_x", x);
    save(std::string(part) + "_y", y);
  }
  fs::create_directories(folder / "packed");
  io::save_npz(folder / "packed/data.npz", {{"x_train", x}, {"y_train", y}, {"x_test", x}, {"y_test", y}},
               true);
  for (const std::string& dir : {folder.path(), folder / "packed", folder / "packed/data.npz"}) {
    const Splits splits = open_dataset("npy", {.data_dir = dir});
    EXPECT_EQ(splits.info.sample_shape, (Dims{1, 2}));
    EXPECT_EQ(splits.info.classes, 3);
    EXPECT_EQ(splits.task, "classification");
    EXPECT_EQ(splits.train->get(1)[0].to_vector<float>(), (std::vector<float>{0.2f, 0.4f}));
    EXPECT_EQ(labels_of(*splits.test), (Labels{2, 0}));
    EXPECT_FALSE(splits.format) << "these are no images";
    EXPECT_HAS(splits.notices.at(0), "of the classes 0 to 2 1 have no sample for training");
  }
  save("test_y", from_vector<float>({0.5f, 1}, {2}));
  EXPECT_HAS(refusal(), "label 0 is 0.5");
  fs::remove(folder / "test_y.npy");
  EXPECT_HAS(refusal(), "test_y.npy (or an .npz file) is missing");
  fs::remove(folder / "test_x.npy");
  EXPECT_EQ(open({.task = "regression"}).test->size(), 1) << "without a test part: split";
  fs::remove(folder / "train_y.npy");
  EXPECT_HAS(refusal(), "train_y.npy (or an .npz file) is missing");
  io::save_npz(folder / "packed/more.npz", {{"x", x}}, false);
  EXPECT_HAS(message_of<Error>([&] { open_dataset("npy", {.data_dir = folder / "packed"}); }),
             "must hold one .npz file; it holds 2 (data.npz, more.npz). Name the one");
  EXPECT_HAS(message_of<Error>([&] { open_dataset("npy", {.data_dir = folder / "packed/more.npz"}); }),
             "y is missing");
}

TEST_F(Arrays, AloneAreSplitBySeedEachClassInEqualShares) {
  std::vector<int64_t> y;
  for (int64_t i = 0; i < 40; ++i) y.push_back(i % 4 == 0 ? 5 : 2);
  save("x", rows(40));
  save("y", from_vector(y, {40}));
  const Splits splits = open({.split_seed = 3});
  EXPECT_EQ(splits.info.classes, 6);
  EXPECT_EQ(splits.info.train_size, 32);
  EXPECT_EQ(splits.info.test_size, 8);
  const Labels labels = labels_of(*splits.test);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 5), 2);
  EXPECT_HAS(splits.notices.at(1), "8 of 40 samples were split off for testing (seed 3).");
  for (int64_t i = 0; i < 8; ++i) {
    const std::vector<Tensor> sample = splits.test->get(i);
    const auto row = static_cast<size_t>(sample[0].to_vector<float>()[0]);
    EXPECT_EQ(sample[1].item<int64_t>(), y[row]) << "inputs and labels stay together";
  }
  EXPECT_EQ(fingerprint(*splits.test), fingerprint(*open({.split_seed = 3}).test));
  EXPECT_NE(fingerprint(*splits.test), fingerprint(*open({.split_seed = 4}).test));
  EXPECT_EQ(open({.test_share = 0.5}).test->size(), 20);
  fs::create_directories(folder / "packed");
  io::save_npz(folder / "packed/a.npz", {{"X", rows(40)}, {"y", from_vector(y, {40})}}, true);
  EXPECT_EQ(fingerprint(*open_dataset("npy", {.data_dir = folder / "packed", .split_seed = 3}).test),
            fingerprint(*splits.test));
}

TEST_F(Arrays, OfFloatingTargetsAreRegressionUnlessToldOtherwise) {
  save("x", rows(10));
  save("y", from_vector<double>({0, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}, {10}));
  const Splits one = open();
  EXPECT_EQ(one.task, "regression");
  EXPECT_EQ(one.info.classes, 0);
  EXPECT_EQ(one.test->get(0)[1].shape(), Dims{});
  EXPECT_EQ(one.test->get(0)[1].dtype(), DType::f32);
  EXPECT_EQ(one.notices.size(), 1u);
  EXPECT_HAS(refusal({.task = "classification"}),
             "labels must be whole numbers from 0 to 65535; label 1 is 1.5");

  save("y", from_vector<float>(std::vector<float>(30, 0.25f), {10, 3}));
  EXPECT_EQ(open().train->get(0)[1].shape(), (Dims{3}));
  EXPECT_HAS(refusal({.task = "classification"}), "the labels must be (n,) for the 10 inputs; got (10, 3)");

  save("y", from_vector<float>({0, 1, 2, 0, 1, 2, 0, 1, 2, 0}, {10}));
  EXPECT_EQ(open().task, "regression");
  EXPECT_HAS(open().notices.at(0), "it has only 3 different whole numbers. Choose classification");
  EXPECT_EQ(open({.task = "classification"}).info.classes, 3);

  save("y", from_vector<int32_t>({-5, 1, 200000, 0, 1, 2, 0, 1, 2, 0}, {10}));
  EXPECT_HAS(refusal(), "label 0 is -5. For a quantity, choose task regression.");
  EXPECT_EQ(open({.task = "regression"}).info.classes, 0);
  save("y", from_vector<bool>({true, false, true, false, true, false, true, false, true, false}, {10}));
  EXPECT_EQ(open().info.classes, 2);
}

TEST_F(Arrays, OfByteImagesSayHowFilesBecomeInputs) {
  save("x", zeros({4, 3, 5, 6}, DType::u8));
  save("y", from_vector<int64_t>({0, 1, 0, 1}, {4}));
  const Splits splits = open();
  ASSERT_TRUE(splits.format);
  EXPECT_EQ(splits.format->width, 6);
  EXPECT_EQ(splits.format->short_side, 0);
  EXPECT_EQ(image_to_input(full({3, 9, 9}, 51, DType::u8), *splits.format).to_vector<float>()[7], 0.2f);
  save("x", zeros({4, 7, 5, 6}, DType::u8));
  EXPECT_FALSE(open().format) << "seven channels are no image";
}

TEST_F(Arrays, OfOtherKindsOrLabelsThanThoseOfTrainingAreRefused) {
  const Tensor y = from_vector<int64_t>({0, 1, 0, 1}, {4});
  for (const char* name : {"train_y", "test_y"}) save(name, y);
  save("train_x", zeros({4, 2}, DType::u8));
  save("test_x", zeros({4, 2}));
  EXPECT_HAS(refusal(), "must both be u8, which is divided by 255, or neither; got u8 and f32.");
  save("train_x", zeros({4, 2}));
  EXPECT_EQ(open().byte_inputs, std::optional(false));
  save("test_y", from_vector<int64_t>({0, 1, 2, 1}, {4}));
  EXPECT_HAS(refusal(), "test_y.npy': its labels must be those of training; 2 is not one of them.");
}

TEST_F(Arrays, ThatCannotBeLearnedFromAreRefusedByRow) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor y = from_vector<int64_t>({0, 1, 0, 1}, {4});
  save("y", y);
  save("x", from_vector<float>({1, 2, 3, 4, 5, std::nanf(""), 7, 8}, {4, 2}));
  EXPECT_HAS(refusal(), "x.npy': every number must be finite in f32; row 2 holds nan. Remove the row");
  save("x", from_vector<double>({1, 2, 3, inf, 5, 6, 7, 8}, {4, 2}));
  EXPECT_HAS(refusal(), "row 1 holds inf");
  save("x", from_vector<double>({1, 2, 3, 4, 5, 6, 7, 1e300}, {4, 2}));
  EXPECT_HAS(refusal(), "row 3 holds 1e+300");
  save("x", from_vector<float>({1, 2, 3, 4}, {4}));
  EXPECT_HAS(refusal(), "the inputs must be (n, …) with at least one value; got (4,). Save them as (n, 1).");
  save("x", rows(3));
  EXPECT_HAS(refusal(), "the labels must be (n,) for the 3 inputs; got (4,)");
  save("x", rows(4));
  save("y", from_vector<int64_t>({3, 3, 3, 3}, {4}));
  EXPECT_HAS(refusal(), "there must be two classes or more; every label is 3.");
  save("y", from_vector<int64_t>({0, 1, 2, 3}, {4}));
  EXPECT_HAS(refusal(), "each of the 4 samples is a class of its own");
  save("y", from_vector<float>({0.5f, 1, std::nanf(""), 2}, {4}));
  EXPECT_HAS(refusal(), "y.npy': every number must be finite in f32; row 2 holds nan");
  EXPECT_HAS(refusal({.task = "classification"}), "label 0 is 0.5");
  save("x", rows(1));
  save("y", from_vector<float>({0.5f}, {1}));
  EXPECT_HAS(refusal(), "must hold two samples or more, for training and testing; got 1");
  save("train_x", rows(4));
  save("train_y", y);
  save("test_x", zeros({4, 3}));
  save("test_y", y);
  EXPECT_HAS(refusal(),
             "samples for training and testing must have one shape; got (2,) with targets () and (3,)");
}

}  // namespace
}  // namespace tandem::data
