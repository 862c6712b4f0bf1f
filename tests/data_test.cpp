// Data sets, the idx reader, the search for MNIST, the drawn digits and the loader.
// ctest: asan tsan
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/data/compose.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/idx.h"
#include "tandem/data/loader.h"
#include "tandem/data/mnist.h"
#include "tandem/data/registry.h"
#include "tandem/io/sha256.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::TempFolder;
using testing::write_text;
namespace fs = std::filesystem;

/// Sample i is {f32 (2,) = (i, -i), i64 () = 10 i}; index `broken` throws.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    check_index("get", i, size_);
    TD_CHECK(i != broken_, "numbers: sample ", i, " is broken.");
    const auto x = static_cast<float>(i);
    return {from_vector<float>({x, -x}, {2}), from_vector<int64_t>({10 * i}, {})};
  }

 private:
  int64_t size_, broken_;
};

// --- Data sets

TEST(Dataset, BatchesAreStackedSamples) {
  const Numbers numbers(5);
  const std::vector<int64_t> indices{4, 0, 4};
  const std::vector<Tensor> batch = numbers.batch(indices);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].shape(), (Dims{3, 2}));
  EXPECT_EQ(batch[1].shape(), Dims{3});
  EXPECT_EQ(batch[0].to_vector<float>(), (std::vector<float>{4, -4, 0, -0.0f, 4, -4}));
  EXPECT_EQ(batch[1].to_vector<int64_t>(), (std::vector<int64_t>{40, 0, 40}));
}

TEST(Dataset, SamplesOfDifferentShapesAreNotStacked) {
  struct Growing final : Dataset {
    int64_t size() const override { return 3; }
    std::vector<Tensor> get(int64_t i) const override {
      return {from_vector(std::vector<float>(static_cast<size_t>(i + 1)), {i + 1})};
    }
  };
  const std::vector<int64_t> indices{0, 2};
  const std::string message = message_of<Error>([&] { Growing().batch(indices); });
  EXPECT_HAS(message, "sample 2 has f32 (3,) and sample 0 has f32 (1,)");
}

TEST(Dataset, SubsetsAndLimitsCompose) {
  const auto numbers = std::make_shared<Numbers>(10);
  const auto odd = std::make_shared<Subset>(numbers, std::vector<int64_t>{1, 3, 5, 7, 9});
  const DatasetPtr two = first(odd, 2);
  EXPECT_EQ(two->size(), 2);
  EXPECT_EQ(two->get(1)[1].item<int64_t>(), 30);
  const std::vector<int64_t> indices{1, 0};
  EXPECT_EQ(two->batch(indices)[1].to_vector<int64_t>(), (std::vector<int64_t>{30, 10}));
  EXPECT_EQ(first(numbers, 99), numbers) << "a limit beyond the end changes nothing";
  EXPECT_THROW(two->get(2), Error);
  EXPECT_THROW(first(numbers, 0), Error);
  EXPECT_THROW(Subset(numbers, {10}), Error);
}

TEST(ImageSet, NormalisesPixelsByChannel) {
  const ImageFormat format{2, 1, 2, {0.5f, 0.0f}, {0.25f, 2.0f}};
  const ImageSet set("two", format, {0, 255, 51, 102, 255, 0, 0, 255}, {3, 7});
  EXPECT_EQ(set.size(), 2);
  const std::vector<Tensor> sample = set.get(0);
  EXPECT_EQ(sample[0].shape(), (Dims{2, 1, 2}));
  EXPECT_EQ(sample[1].shape(), Dims{});
  EXPECT_EQ(sample[0].to_vector<float>(),
            (std::vector<float>{-2.0f, 2.0f, 51 / 255.0f / 2.0f, 102 / 255.0f / 2.0f}));
  const std::vector<int64_t> indices{1, 0, 1};
  const std::vector<Tensor> fast = set.batch(indices), plain = set.Dataset::batch(indices);
  EXPECT_EQ(fast[0].shape(), (Dims{3, 2, 1, 2}));
  EXPECT_EQ(fast[0].to_vector<float>(), plain[0].to_vector<float>());
  EXPECT_EQ(fast[1].to_vector<int64_t>(), (std::vector<int64_t>{7, 3, 7}));
  EXPECT_THROW(set.batch(std::vector<int64_t>{2}), Error);
  EXPECT_THROW(set.get(-1), Error);
  EXPECT_THROW(ImageSet("odd", format, {1, 2, 3}, {0}), Error);
}

// --- idx and MNIST

std::string idx(std::initializer_list<uint32_t> sizes, const std::string& values) {
  std::string text{0, 0, 8, static_cast<char>(sizes.size())};
  for (uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  return text + values;
}

std::string images(uint32_t count) { return idx({count, 28, 28}, std::string(count * 784, '\x40')); }

/// Writes a small data set of four files.
void write_small_mnist(const std::string& folder) {
  fs::create_directories(folder);
  write_text(folder + "/train-images-idx3-ubyte", images(3));
  write_text(folder + "/train-labels-idx1-ubyte", idx({3}, {1, 0, 9}));
  write_text(folder + "/t10k-images.idx3-ubyte", images(2));
  write_text(folder + "/t10k-labels.idx1-ubyte", idx({2}, {4, 5}));
}

TEST(Idx, FilesThatLieAreRefusedByWhatTheyMustHold) {
  TempFolder folder;
  const std::string path = folder / "digits-idx";
  const struct {
    std::string content;
    const char* expected;
  } cases[] = {
      {"", "it holds 0 bytes"},
      {std::string("\0\0\x08", 3), "it holds 3 bytes"},
      {"PK\x08\x03xxxxxxxxxxxx", "two zero bytes; got 80 and 75"},
      {std::string("\0\0\x0d\x03", 4) + std::string(12, '\0'), "32-bit floats"},
      {idx({5}, "abcde"), "must have 3 axes; got 1"},
      {idx({2, 2, 2}, "").substr(0, 10), "the header must take 16 bytes; the file holds 10"},
      {idx({2, 2, 2}, "1234567"), "must hold 8 values; it holds 7"},
      {idx({2, 2, 2}, "123456789"), "must hold 8 values; it holds 9"},
      {idx({0xffffffff, 0xffffffff, 0xffffffff}, "1"), "more than 2^63"},
  };
  for (const auto& c : cases) {
    write_text(path, c.content);
    const std::string message = message_of<Error>([&] { read_idx(path, 3); });
    EXPECT_HAS(message, path);
    EXPECT_HAS(message, c.expected);
  }
}

TEST(Idx, ImagesAndLabelsMustBelongTogether) {
  TempFolder folder;
  const std::string image_file = folder / "images", label_file = folder / "labels";
  const ImageFormat format;
  const auto read = [&] {
    return message_of<Error>([&] { read_idx_images("x", image_file, label_file, format, 10); });
  };
  write_text(image_file, images(2));
  write_text(label_file, idx({2}, {0, 9}));
  EXPECT_EQ(read(), "");
  write_text(label_file, idx({3}, {0, 9, 1}));
  EXPECT_HAS(read(), "2 images and 3 labels");
  write_text(label_file, idx({2}, {0, 10}));
  EXPECT_HAS(read(), "labels must be 0 to 9; label 1 is 10");
  write_text(image_file, idx({2, 2, 2}, "12345678"));
  EXPECT_HAS(read(), "must be 28 by 28; got 2 by 2");
  write_text(image_file, idx({0, 28, 28}, ""));
  EXPECT_HAS(read(), "at least one image");
}

TEST(Mnist, IsReadFromADataDirAndFromItsFolderThere) {
  TempFolder folder;
  write_small_mnist(folder / "mnist");
  for (const std::string& dir : {folder.path(), folder / "mnist", folder / "mnist/"}) {
    const Splits splits = open_dataset("mnist", {.data_dir = dir});
    EXPECT_EQ(splits.train->size(), 3);
    EXPECT_EQ(splits.test->size(), 2);
    EXPECT_EQ(splits.train->get(2)[1].item<int64_t>(), 9);
    EXPECT_FLOAT_EQ(splits.train->get(0)[0].to_vector<float>()[5], (64 / 255.0f - 0.1307f) / 0.3081f);
  }
  EXPECT_EQ(open_default({.data_dir = folder.path()}).name, "mnist");
}

TEST(Mnist, IsNotTakenFromAFolderOfFashionMnist) {
  TempFolder folder;
  write_small_mnist(folder / "fashion-mnist");
  EXPECT_EQ(open_default({.data_dir = folder / "fashion-mnist"}).name, "fashion-mnist");
  EXPECT_EQ(open_default({.data_dir = folder.path()}).name, "fashion-mnist");
  EXPECT_THROW(open_dataset("mnist", {.data_dir = folder / "fashion-mnist"}), Error);
}

TEST(Mnist, AMissingFileIsNamedWithTheFoldersSearchedAndTheMend) {
  TempFolder folder;
  write_small_mnist(folder / "mnist");
  fs::remove(folder / "mnist/t10k-images.idx3-ubyte");
  const std::string message = message_of<Error>([&] { open_dataset("mnist", {.data_dir = folder.path()}); });
  EXPECT_HAS(message, folder / "mnist (t10k-images-idx3-ubyte[.gz] is missing)");
  EXPECT_HAS(message, folder.path() + " (train-images-idx3-ubyte[.gz] is missing)");
  EXPECT_HAS(message, "`data_dir`");
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_HAS(message_of<Error>([&] { open_dataset("mnist", {.data_dir = folder / "absent"}); }),
             "no such folder");
  EXPECT_HAS(message_of<Error>([&] { open_default({.data_dir = folder / "absent"}); }), "`data` digits");
}

TEST(Mnist, IsSearchedInTheFolderOfTheEnvironmentFirst) {
  const char* before = std::getenv("TANDEM_DATA");
  const std::string kept = before ? before : "";
  TempFolder folder;
  setenv("TANDEM_DATA", folder.path().c_str(), 1);
  write_small_mnist(folder / "mnist");
  const Splits splits = open_default();
  before ? setenv("TANDEM_DATA", kept.c_str(), 1) : unsetenv("TANDEM_DATA");
  EXPECT_EQ(splits.name, "mnist");
  EXPECT_EQ(splits.where, folder / "mnist");
}

/// The real MNIST, where the machine that runs the tests has it.
std::string real_data_dir() {
  if (const char* root = std::getenv("TANDEM_DATA"); root && fs::is_directory(fs::path(root) / "mnist"))
    return root;
  const fs::path shared = testing::source_dir().parent_path() / "shared/data";
  return fs::is_directory(shared / "mnist") ? shared.string() : "";
}

TEST(Mnist, HoldsTheKnownImagesAndLabels) {
  const std::string dir = real_data_dir();
  if (dir.empty()) GTEST_SKIP() << "MNIST is not here: set TANDEM_DATA to the folder that holds mnist/";
  const Splits splits = open_dataset("mnist", {.data_dir = dir});
  EXPECT_EQ(splits.train->size(), 60000);
  EXPECT_EQ(splits.test->size(), 10000);
  for (int64_t i = 0; const int64_t label : {5, 0, 4, 1, 9})
    EXPECT_EQ(splits.train->get(i++)[1].item<int64_t>(), label);
  // Normalised with the mean and deviation of the training images, they have mean 0 and deviation 1.
  std::vector<int64_t> indices(10000);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<float> values = splits.train->batch(indices)[0].to_vector<float>();
  double sum = 0, squares = 0;
  for (float v : values) sum += v, squares += static_cast<double>(v) * v;
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0.0, 0.01);
  EXPECT_NEAR(squares / static_cast<double>(values.size()), 1.0, 0.02);
}

// --- Registry

TEST(Registry, AnUnknownNameIsRefusedWithTheNames) {
  EXPECT_HAS(
      message_of<Error>([] { open_dataset("mnst"); }),
      "one of mnist, fashion-mnist, cifar10, cifar100, svhn, imdb, ptb, librispeech, ljspeech, manythings, "
      "image-folder, npy, csv, text, text-folder, parallel-text, digits, synthetic-mnist");
}

TEST(Registry, TheListSaysWhereEachSetIs) {
  TempFolder folder;
  write_small_mnist(folder / "mnist");
  const std::vector<DatasetStatus> list = list_datasets(folder.path());
  for (const DatasetStatus& row : list) {
    const bool built_in = row.info.name == "digits" || row.info.name.starts_with("synthetic-");
    EXPECT_EQ(row.found, built_in || row.info.name == "mnist") << row.info.name;
    EXPECT_EQ(row.where, built_in ? "built in" : row.found ? folder / "mnist" : "") << row.info.name;
  }
}

TEST(Registry, TheDefaultIsTheFirstSetFound) {
  const std::vector<DatasetStatus> list = list_datasets();
  const auto found = [&](const std::string& name) {
    return std::any_of(list.begin(), list.end(),
                       [&](const DatasetStatus& row) { return row.info.name == name && row.found; });
  };
  EXPECT_EQ(open_default().name, found("mnist")           ? "mnist"
                                 : found("fashion-mnist") ? "fashion-mnist"
                                                          : "digits");
}

// --- Drawn digits

TEST(DrawnDigits, HaveTheSameBytesOnEveryMachine) {
  io::Sha256 sum;
  std::vector<uint8_t> image(784);
  for (int64_t i = 0; i < 500; ++i) {
    draw_digit(28, i, image.data());
    sum.update(image.data(), image.size());
    const uint8_t label = drawn_label(28, i);
    sum.update(&label, 1);
  }
  EXPECT_EQ(sum.hex(), "3c8a5c719966b043ea2665374a0be54cb30925a3a991d714cde3fdfd10a0e46b");
}

TEST(DrawnDigits, SamplesDoNotDependOnEachOtherOrOnThreads) {
  const DrawnDigits set("digits", 3, 100, 40), again("digits", 3, 100, 40);
  std::vector<int64_t> indices(40), reversed(40);
  std::iota(indices.begin(), indices.end(), 0);
  std::reverse_copy(indices.begin(), indices.end(), reversed.begin());
  std::vector<float> one, two;
  std::thread other([&] { one = set.batch(indices)[0].to_vector<float>(); });
  two = set.batch(indices)[0].to_vector<float>();
  other.join();
  EXPECT_EQ(one, two);
  std::vector<float> backwards = again.batch(reversed)[0].to_vector<float>();
  for (size_t i = 0; i < 40; ++i)
    EXPECT_TRUE(
        std::equal(one.begin() + i * 784, one.begin() + (i + 1) * 784, backwards.begin() + (39 - i) * 784));
}

TEST(DrawnDigits, TrainAndTestHaveNoImageInCommonAndAllClasses) {
  const Splits splits = open_dataset("digits");
  EXPECT_EQ(splits.train->size(), 60000);
  EXPECT_EQ(splits.test->size(), 10000);
  EXPECT_EQ(splits.where, "built in");
  const auto& train = dynamic_cast<const DrawnDigits&>(*splits.train);
  const auto& test = dynamic_cast<const DrawnDigits&>(*splits.test);
  std::set<std::string> seen;
  std::vector<int> counts(10);
  uint8_t scratch[784];
  for (int64_t i = 0; i < 300; ++i) {
    for (const DrawnDigits* set : {&train, &test}) {
      const auto* pixels = reinterpret_cast<const char*>(set->pixels(i, scratch));
      EXPECT_TRUE(seen.emplace(pixels, pixels + 784).second) << "image " << i << " is not new";
    }
  }
  for (int64_t i = 0; i < 10000; ++i) ++counts[static_cast<size_t>(train.label(i))];
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(DrawnDigits, ShowTheirDigitButNotTooPlainly) {
  // The nearest class mean is right far more often than by chance, and far from always.
  const DrawnDigits set("digits", 28, 0, 3000);
  constexpr int64_t kTrain = 2000;
  std::vector<int64_t> indices(3000);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<Tensor> all = set.batch(indices);
  const float* pixels = all[0].data<float>();
  std::vector<double> mean(7840);
  std::vector<double> count(10);
  for (int64_t i = 0; i < kTrain; ++i) {
    ++count[static_cast<size_t>(set.label(i))];
    for (int k = 0; k < 784; ++k) mean[static_cast<size_t>(784 * set.label(i) + k)] += pixels[i * 784 + k];
  }
  for (size_t k = 0; k < mean.size(); ++k) mean[k] /= count[k / 784];
  int right = 0;
  for (int64_t i = kTrain; i < 3000; ++i) {
    std::vector<double> distance(10);
    for (size_t c = 0; c < 10; ++c)
      for (size_t k = 0; k < 784; ++k) {
        const double d = pixels[static_cast<size_t>(i) * 784 + k] - mean[784 * c + k];
        distance[c] += d * d;
      }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == set.label(i);
  }
  EXPECT_GT(right, 500);
  EXPECT_LT(right, 900);
}

// --- Loader

std::vector<int64_t> labels_of(const Batch& batch) { return batch.tensors[1].to_vector<int64_t>(); }

std::vector<std::vector<int64_t>> epoch_of(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<std::vector<int64_t>> batches;
  loader.start_epoch(epoch, first_batch);
  while (auto batch = loader.next()) {
    EXPECT_EQ(batch->epoch, epoch);
    EXPECT_EQ(batch->index, first_batch + static_cast<int64_t>(batches.size()));
    EXPECT_EQ(batch->size, batch->tensors[0].size(0));
    batches.push_back(labels_of(*batch));
  }
  EXPECT_EQ(loader.next(), std::nullopt) << "the end stays the end";
  return batches;
}

TEST(Loader, GivesEverySampleOnceAnEpochInAnOrderOfSeedAndEpoch) {
  const Numbers numbers(103);
  Loader loader(numbers, {.batch = 10, .seed = 5});
  EXPECT_EQ(loader.batches(), 11);
  const auto zero = epoch_of(loader, 0), one = epoch_of(loader, 1), again = epoch_of(loader, 0);
  EXPECT_EQ(zero, again);
  EXPECT_NE(zero, one);
  EXPECT_EQ(zero.back().size(), 3u);
  std::set<int64_t> seen;
  for (const auto& batch : zero) seen.insert(batch.begin(), batch.end());
  EXPECT_EQ(seen.size(), 103u);
  Loader other(numbers, {.batch = 10, .seed = 6});
  EXPECT_NE(epoch_of(other, 0), zero);
  Loader plain(numbers, {.batch = 4, .shuffle = false});
  EXPECT_EQ(epoch_of(plain, 3)[1], (std::vector<int64_t>{40, 50, 60, 70}));
}

TEST(Loader, TheOrderOfASeedNeverChanges) {
  EXPECT_EQ(shuffled_order(10, 0, 0), (std::vector<int64_t>{7, 9, 3, 2, 0, 6, 8, 5, 4, 1}));
  EXPECT_EQ(shuffled_order(10, 7, 3), (std::vector<int64_t>{1, 5, 9, 4, 3, 6, 8, 0, 2, 7}));
}

TEST(Loader, EveryPlaceOfAnElementIsAboutAsLikely) {
  std::vector<int> place(8);
  for (int64_t epoch = 0; epoch < 8000; ++epoch) {
    const std::vector<int64_t> order = shuffled_order(8, 1, epoch);
    ++place[static_cast<size_t>(std::find(order.begin(), order.end(), 2) - order.begin())];
  }
  for (int count : place) EXPECT_NEAR(count, 1000, 150);
}

TEST(Loader, GivesTheSameBatchesForAnyNumberOfWorkers) {
  const Numbers numbers(97);
  Loader inline_loader(numbers, {.batch = 7, .workers = 0});
  const auto expected = epoch_of(inline_loader, 2);
  for (int workers : {1, 2, 5}) {
    for (int prefetch : {1, 3, 50}) {
      Loader loader(numbers, {.batch = 7, .workers = workers, .prefetch = prefetch});
      EXPECT_EQ(epoch_of(loader, 2), expected) << workers << " workers, prefetch " << prefetch;
    }
  }
}

TEST(Loader, StartsAnywhere) {
  const Numbers numbers(50);
  for (int workers : {0, 2}) {
    Loader loader(numbers, {.batch = 8, .workers = workers});
    const auto whole = epoch_of(loader, 4);
    for (int64_t from = 0; from <= loader.batches(); ++from) {
      loader.start_epoch(4, 0);
      for (int64_t k = 0; k < from; ++k) loader.next();
      EXPECT_EQ(loader.epoch(), 4);
      EXPECT_EQ(loader.next_batch(), from);
      Loader resumed(numbers, {.batch = 8, .workers = workers});
      const auto rest = epoch_of(resumed, loader.epoch(), loader.next_batch());
      EXPECT_EQ(rest, (std::vector<std::vector<int64_t>>(whole.begin() + from, whole.end())));
    }
  }
}

TEST(Loader, MayBeRestartedAndDestroyedAtAnyMoment) {
  const Numbers numbers(1000);
  Loader reference(numbers, {.batch = 3, .workers = 0});
  for (int round = 0; round < 50; ++round) {
    Loader loader(numbers, {.batch = 3, .workers = 3, .prefetch = 5});
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      loader.start_epoch(epoch, round);
      reference.start_epoch(epoch, round);
      for (int k = 0; k < round % 7; ++k) EXPECT_EQ(labels_of(*loader.next()), labels_of(*reference.next()));
    }
  }
}

TEST(Loader, TheLastBatchIsKeptDroppedOrFilledUp) {
  const Numbers numbers(7);
  Loader keep(numbers, {.batch = 3, .shuffle = false, .last_batch = LastBatch::keep});
  Loader drop(numbers, {.batch = 3, .shuffle = false, .last_batch = LastBatch::drop});
  Loader wrap(numbers, {.batch = 3, .shuffle = false, .last_batch = LastBatch::wrap});
  using Batches = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(epoch_of(keep, 0), (Batches{{0, 10, 20}, {30, 40, 50}, {60}}));
  EXPECT_EQ(epoch_of(drop, 0), (Batches{{0, 10, 20}, {30, 40, 50}}));
  EXPECT_EQ(epoch_of(wrap, 0), (Batches{{0, 10, 20}, {30, 40, 50}, {60, 0, 10}}));
  Loader larger(numbers, {.batch = 16, .shuffle = false, .last_batch = LastBatch::wrap});
  EXPECT_EQ(epoch_of(larger, 0)[0].back(), 10);
}

TEST(Loader, AnExceptionOfTheDataSetReachesTheCallerAtItsBatch) {
  const Numbers numbers(30, 17);
  for (int workers : {0, 1, 3}) {
    Loader loader(numbers, {.batch = 5, .shuffle = false, .workers = workers});
    loader.start_epoch(0);
    for (int k = 0; k < 3; ++k) EXPECT_TRUE(loader.next());
    EXPECT_EQ(message_of<Error>([&] { loader.next(); }), "numbers: sample 17 is broken.");
    EXPECT_THROW(loader.next(), Error) << "asked again";
    EXPECT_EQ(loader.next_batch(), 3);
    loader.start_epoch(1, 4);  // it can go on elsewhere
    EXPECT_EQ(labels_of(*loader.next()).front(), 200);
  }
}

/// What the program's own code throws.
struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Numbers of which sample 17 throws.
class Foreign final : public Dataset {
 public:
  explicit Foreign(std::function<void()> fail) : fail_(std::move(fail)) {}
  int64_t size() const override { return 30; }
  std::vector<Tensor> get(int64_t i) const override {
    if (i == 17) fail_();
    return Numbers(30).get(i);
  }

 private:
  std::function<void()> fail_;
};
const std::function<void()> kThrowMine = [] { throw Mine("cannot decode"); };

/// The Error that the first broken batch of an epoch ends with.
std::string foreign_error_of(const Dataset& set, LoaderOptions options) {
  std::string text;
  options.batch = 5;
  options.shuffle = false;
  for (const int64_t workers : {0, 1, 3}) {
    options.workers = workers;
    Loader loader(set, options);
    loader.start_epoch(0);
    try {
      while (loader.next()) continue;
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::foreign);
      EXPECT_TRUE(text.empty() || text == error.what());
      text = error.what();
      EXPECT_THROW(std::rethrow_if_nested(error), Mine) << "the program's own exception is in it";
    }
  }
  return text;
}

TEST(Loader, AnExceptionOfTheProgramNamesTheDataSetAndTheSample) {
  const auto foreign = std::make_shared<Foreign>(kThrowMine);
  EXPECT_EQ(foreign_error_of(*foreign, {}), "sample 17 of 30 samples: cannot decode");
  EXPECT_EQ(foreign_error_of(*shuffle(foreign, 3), {}), "sample 17 of 30 samples: cannot decode");
  EXPECT_EQ(foreign_error_of(*subset(foreign, 10, 20), {}), "sample 17 of 30 samples: cannot decode");
  EXPECT_EQ(foreign_error_of(*cache(foreign, 1000), {}), "sample 17 of 30 samples: cannot decode");
  EXPECT_EQ(message_of<Error>([&] { sample_at(*foreign, 17, 0); }), "sample 17 of 30 samples: cannot decode");
  EXPECT_EQ(message_of<Error>([&] { (void)foreign->length(17); }), "sample 17 of 30 samples: cannot decode");
  const DatasetPtr transformed = map(std::make_shared<Numbers>(30), [](Sample sample) {
    if (sample[1].item<int64_t>() == 170) throw Mine("cannot crop");
    return sample;
  });
  EXPECT_EQ(foreign_error_of(*transformed, {}), "sample 17 of 30 samples: cannot crop");
}

TEST(Loader, AnExceptionOfACollationOrABatchTransformNamesTheBatch) {
  const Numbers numbers(30);
  const std::string place = "batch 3 of epoch 0 of 30 samples (sample 15, sample 16, sample 17 and 2 more): ";
  EXPECT_EQ(foreign_error_of(numbers, {.collate = [](const Dataset& set, std::span<const int64_t> indices,
                                                     int64_t, int64_t) -> Named {
                               if (indices[0] == 15) throw Mine("cannot collate");
                               return named_batch(set, indices, 0);
                             }}),
            place + "cannot collate");
  EXPECT_EQ(foreign_error_of(numbers, {.transform =
                                           [](std::vector<Tensor> batch, SampleRandom&) {
                                             if (batch[1].to_vector<int64_t>()[0] == 150)
                                               throw Mine("cannot mix");
                                             return batch;
                                           }}),
            place + "cannot mix");
  struct Whole final : Dataset {
    int64_t size() const override { return 30; }
    std::vector<Tensor> get(int64_t i) const override { return Numbers(30).get(i); }
    std::vector<Tensor> batch(std::span<const int64_t> indices) const override {
      if (indices[0] == 15) throw Mine("cannot read");
      return Dataset::batch(indices);
    }
    std::string describe() const override { return "mine"; }
  } whole;
  EXPECT_EQ(foreign_error_of(whole, {}),
            "batch 3 of epoch 0 of mine (sample 15, sample 16, sample 17 and 2 more): cannot read");
}

TEST(Loader, WhatIsNoExceptionOfTheProgramStaysWhatItIs) {
  const auto after = [](std::function<void()> fail) {
    const Foreign set(std::move(fail));
    Loader loader(set, {.batch = 5, .shuffle = false, .workers = 2});
    loader.start_epoch(0);
    while (loader.next()) continue;
  };
  EXPECT_THROW(after([] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(after([] { throw InternalError("x"); }), InternalError);
  EXPECT_THROW(after([] { throw OutOfMemory("no memory"); }), OutOfMemory);
  EXPECT_EQ(message_of<Error>([&] { after([] { throw 42; }); }),
            "sample 17 of 30 samples: something was thrown that is no std::exception.");
}

TEST(Loader, RefusesOptionsThatMakeNoSense) {
  const Numbers numbers(7);
  const auto refusal = [](const Dataset& set, LoaderOptions options) {
    return message_of<Error>([&] { Loader loader(set, options); });
  };
  EXPECT_EQ(refusal(numbers, {.batch = 0}), "batch: must be at least 1; got 0.");
  EXPECT_EQ(refusal(numbers, {.batch = -3}), "batch: must be at least 1; got -3.");
  EXPECT_HAS(refusal(numbers, {.workers = -1}), "workers: must be 0 to 256; got -1");
  EXPECT_HAS(refusal(numbers, {.prefetch = 0}), "prefetch");
  EXPECT_HAS(refusal(numbers, {.batch = 8, .last_batch = LastBatch::drop}), "at most the 7 samples");
  EXPECT_HAS(refusal(Numbers(0), {}), "at least one sample");
  Loader loader(numbers, {.batch = 2});
  EXPECT_HAS(message_of<Error>([&] { loader.next(); }), "start_epoch");
  EXPECT_THROW(loader.start_epoch(-1), Error);
  EXPECT_THROW(loader.start_epoch(0, 5), Error);
  loader.start_epoch(0, 4);
  EXPECT_EQ(loader.next(), std::nullopt);
}

}  // namespace
}  // namespace tandem::data
