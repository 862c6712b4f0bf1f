// How data sets are opened: the options that each takes, and what every opened set says about itself.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/data/registry.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;

TEST(OpenOptions, OnesThatADataSetDoesNotTakeAreRefusedWithThoseThatTakeThem) {
  const auto refusal = [](const char* name, const OpenOptions& options) {
    return message_of<Error>([&] { open_dataset(name, options); });
  };
  EXPECT_EQ(refusal("digits", {.target = "price"}),
            "data digits: does not take target, which is for csv; got 'price'. Leave it out.");
  EXPECT_HAS(refusal("mnist", {.image_size = {{32, 48}}}),
             "image_size, which is for image-folder; got 32 by 48.");
  EXPECT_HAS(refusal("csv", {.skip_bad = true}), "skip_bad, which is for image-folder");
  EXPECT_HAS(refusal("cifar10", {.test_share = 0.5}),
             "test_share, which is for librispeech, ljspeech, image-folder, npy, csv");
  EXPECT_EQ(refusal("synthetic-mnist", {.split_seed = 7}), "") << "a seed without a split changes nothing";
  EXPECT_HAS(refusal("svhn", {.task = "regression"}), "task, which is for npy, csv");
  EXPECT_HAS(refusal("npy", {.csv = {.no_header = true}}),
             "does not take csv, which is for csv; got some of delimiter");
  EXPECT_HAS(message_of<Error>([] { open_default({.task = "regression"}); }), "does not take task");
}

TEST(OpenOptions, ValuesThatNoneTakesAreRefused) {
  EXPECT_HAS(message_of<Error>([] { open_dataset("csv", {.task = "ranking"}); }),
             "task: must be classification or regression; got 'ranking'.");
  for (double share : {0.0, 1.0, -0.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_HAS(message_of<Error>([&] { open_dataset("npy", {.test_share = share}); }),
               "test_share: must be above 0 and below 1");
}

TEST(Splits, OfImagesSayHowImagesBecomeInputs) {
  const Splits digits = open_dataset("digits");
  ASSERT_TRUE(digits.format);
  EXPECT_EQ(digits.format->height, 28);
  EXPECT_EQ(digits.task, "classification");
  EXPECT_FALSE(open_dataset("synthetic-mnist").format) << "its samples were never pixels";
}

}  // namespace
}  // namespace tandem::data
