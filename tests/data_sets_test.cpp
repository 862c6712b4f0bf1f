// The data sets of the registry beside MNIST, and data sets made of data sets.
// ctest: asan tsan
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <set>

#include "tandem/data/compose.h"
#include "tandem/data/image_set.h"
#include "tandem/data/loader.h"
#include "tandem/data/registry.h"
#include "tandem/data/svhn.h"
#include "tandem/data/synthetic.h"
#include "tests/support/foreign_files.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::TempFolder;
using testing::write_text;
namespace fs = std::filesystem;

DatasetPtr numbers(int64_t n) {
  std::vector<float> x(static_cast<size_t>(2 * n));
  std::vector<int64_t> y(static_cast<size_t>(n));
  for (size_t i = 0; i < y.size(); ++i)
    x[2 * i] = static_cast<float>(i), x[2 * i + 1] = -x[2 * i], y[i] = static_cast<int64_t>(i);
  return std::make_shared<TensorSet>(std::vector{from_vector(x, {n, 2}), from_vector(y, {n})});
}

std::vector<int64_t> labels_of(const Dataset& set, int64_t epoch = 0) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < set.size(); ++i) labels.push_back(set.get_at(i, epoch)[1].item<int64_t>());
  return labels;
}

using Labels = std::vector<int64_t>;

// --- Composition

TEST(TensorSet, RowsAreSamples) {
  const DatasetPtr set = numbers(5);
  EXPECT_EQ(set->get(3)[0].to_vector<float>(), (std::vector<float>{3, -3}));
  const std::vector<int64_t> indices{4, 0, 4};
  const std::vector<Tensor> batch = set->batch(indices), plain = set->Dataset::batch(indices);
  EXPECT_EQ(batch[0].to_vector<float>(), plain[0].to_vector<float>());
  EXPECT_EQ(batch[1].to_vector<int64_t>(), (Labels{4, 0, 4}));
  EXPECT_THROW(set->get(5), Error);
  EXPECT_THROW(TensorSet(std::vector<Tensor>()), Error);
  EXPECT_THROW(TensorSet{Named()}, Error);
  EXPECT_THROW(TensorSet({from_vector<float>({1, 2}, {2}), from_vector<float>({1}, {1})}), Error);
  EXPECT_THROW(TensorSet({from_vector<float>({1}, {})}), Error);
}

TEST(Compose, SubsetsShardsAndConcatenationsGiveTheirSamples) {
  const DatasetPtr base = numbers(7);
  EXPECT_EQ(labels_of(*subset(base, 2, 5)), (Labels{2, 3, 4}));
  EXPECT_EQ(labels_of(*subset(base, {6, 0})), (Labels{6, 0}));
  EXPECT_EQ(labels_of(*concat({subset(base, 5, 7), subset(base, 0, 0), subset(base, 1, 2)})),
            (Labels{5, 6, 1}));
  EXPECT_EQ(labels_of(*shard(base, 0, 3)), (Labels{0, 3, 6}));
  EXPECT_EQ(labels_of(*shard(base, 2, 3)), (Labels{2, 5}));
  EXPECT_EQ(labels_of(*shard(base, 0, 3, LastBatch::drop)), (Labels{0, 3}));
  EXPECT_EQ(labels_of(*shard(base, 2, 3, LastBatch::wrap)), (Labels{2, 5, 1}));
  EXPECT_EQ(batched(base, 3)->size(), 3);
  EXPECT_EQ(batched(base, 3)->get(2)[1].to_vector<int64_t>(), (Labels{6}));
  EXPECT_EQ(batched(base, 3, LastBatch::wrap)->get(2)[1].to_vector<int64_t>(), (Labels{6, 0, 1}));
  EXPECT_EQ(batched(base, 3, LastBatch::drop)->size(), 2);
  EXPECT_THROW(subset(base, 3, 8), Error);
  EXPECT_THROW(shard(base, 3, 3), Error);
  EXPECT_THROW(shard(base, 0, 8, LastBatch::drop), Error);
  EXPECT_THROW(concat({}), Error);
  EXPECT_THROW(map(nullptr, [](Sample s) { return s; }), Error);
  EXPECT_THROW(shuffle(nullptr, 1), Error);
}

TEST(Compose, AShuffleIsAnOrderOfSeedAndEpoch) {
  const DatasetPtr base = numbers(20), mixed = shuffle(base, 5);
  EXPECT_EQ(labels_of(*mixed, 3), shuffled_order(20, 5, 3));
  EXPECT_EQ(labels_of(*mixed, 0), shuffled_order(20, 5, 0));
  EXPECT_NE(labels_of(*mixed, 3), labels_of(*mixed, 4));
  EXPECT_TRUE(subset(mixed, 0, 3)->varies());
  EXPECT_FALSE(subset(base, 0, 3)->varies());
}

TEST(Compose, RandomMapsDependOnSeedEpochAndIndexAlone) {
  const auto draw = [](Sample sample, SampleRandom& random) {
    sample[1] = from_vector<int64_t>({random.below(1 << 30)}, {});
    return sample;
  };
  const DatasetPtr one = map_random(numbers(30), draw, 7), again = map_random(numbers(30), draw, 7);
  EXPECT_EQ(labels_of(*one, 2), labels_of(*again, 2));
  EXPECT_NE(labels_of(*one, 2), labels_of(*one, 3));
  EXPECT_NE(labels_of(*one, 2), labels_of(*map_random(numbers(30), draw, 8), 2));
  const Labels values = labels_of(*one);
  EXPECT_EQ(std::set<int64_t>(values.begin(), values.end()).size(), 30u);
  // Any number of workers, any start: the same batches.
  const auto run = [&](int workers, int64_t from) {
    Loader loader(*one, {.batch = 4, .seed = 1, .workers = workers});
    loader.start_epoch(5, from);
    std::vector<Labels> batches;
    while (auto batch = loader.next()) batches.push_back(batch->tensors[1].to_vector<int64_t>());
    return batches;
  };
  const std::vector<Labels> whole = run(0, 0);
  EXPECT_EQ(run(3, 0), whole);
  EXPECT_EQ(run(2, 3), (std::vector<Labels>(whole.begin() + 3, whole.end())));
}

TEST(Compose, ACacheAsksOnceAndRefusesWhatVaries) {
  std::atomic<int> asked{0};
  const DatasetPtr slow = map(numbers(10), [&](Sample sample) {
    ++asked;
    return sample;
  });
  const DatasetPtr kept = cache(slow);
  EXPECT_EQ(labels_of(*kept), labels_of(*kept, 1));
  EXPECT_EQ(asked, 10);
  asked = 0;
  const DatasetPtr small = cache(slow, 5 * 16);  // room for five samples of 8 + 8 bytes
  labels_of(*small);
  labels_of(*small);
  EXPECT_EQ(asked, 15);
  EXPECT_HAS(message_of<Error>([&] { cache(shuffle(slow, 1)); }), "before them");
}

TEST(Compose, AnErrorOfASampleNamesIt) {
  const DatasetPtr bad = map(numbers(10), [](Sample sample) {
    TD_CHECK(sample[1].item<int64_t>() != 7, "the transform does not like it.");
    return sample;
  });
  for (int workers : {0, 2}) {
    Loader loader(*bad, {.batch = 5, .shuffle = false, .workers = workers});
    loader.start_epoch(0);
    loader.next();
    EXPECT_EQ(message_of<Error>([&] { loader.next(); }), "sample 7: the transform does not like it.");
  }
}

TEST(Loader, TransformsWholeBatchesByPlaceAlone) {
  const DatasetPtr base = numbers(20);
  const BatchTransform mark = [](std::vector<Tensor> batch, SampleRandom& random) {
    batch.push_back(from_vector<int64_t>({random.below(1 << 30)}, {}));
    return batch;
  };
  const auto run = [&](int workers) {
    Loader loader(*base, {.batch = 6, .workers = workers, .transform = mark});
    Labels marks;
    for (int64_t epoch : {0, 1}) {
      loader.start_epoch(epoch);
      while (auto batch = loader.next()) marks.push_back(batch->tensors[2].item<int64_t>());
    }
    return marks;
  };
  const Labels marks = run(0);
  EXPECT_EQ(run(3), marks);
  EXPECT_EQ(std::set<int64_t>(marks.begin(), marks.end()).size(), 8u);
}

// --- CIFAR

std::string cifar_records(int count, int label_bytes, int shift) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (label_bytes == 2) text += static_cast<char>(1);
    text += static_cast<char>((i + shift) % 10);
    for (int k = 0; k < 3072; ++k) text += static_cast<char>(k / 1024 * 50 + i);
  }
  return text;
}

TEST(Cifar, IsReadFromFilesFromTheirFolderAndFromTheArchive) {
  TempFolder folder;
  const std::string train = cifar_records(6, 1, 3), test = cifar_records(2, 1, 0);
  fs::create_directories(folder / "plain/cifar-10-batches-bin");
  for (const std::string& place : {folder / "plain/cifar-10-batches-bin", folder.path()}) {
    write_text(place + "/data_batch_1.bin", train);
    write_text(place + "/test_batch.bin", test);
  }
  fs::create_directories(folder / "packed/cifar10");
  write_text(folder / "packed/cifar10/cifar-10-binary.tar.gz",
             testing::gzip(testing::tar_file("cifar-10-batches-bin/data_batch_1.bin", train) +
                           testing::tar_file("cifar-10-batches-bin/test_batch.bin", test) +
                           std::string(1024, '\0')));
  for (const std::string& dir : {folder.path(), folder / "plain", folder / "packed"}) {
    const Splits splits = open_dataset("cifar10", {.data_dir = dir});
    EXPECT_EQ(splits.train->size(), 6);
    EXPECT_EQ(splits.info.train_size, 6);
    EXPECT_EQ(splits.test->size(), 2);
    EXPECT_EQ(splits.train->get(1)[1].item<int64_t>(), 4);
    const std::vector<float> pixels = splits.train->get(1)[0].to_vector<float>();
    EXPECT_FLOAT_EQ(pixels[0], (1 / 255.0f - 0.4914f) / 0.2470f);
    EXPECT_FLOAT_EQ(pixels[2048], (101 / 255.0f - 0.4465f) / 0.2616f);
    const DatasetPtr augmented = splits.augmented(3);
    EXPECT_TRUE(augmented->varies());
    EXPECT_EQ(augmented->get(1)[0].shape(), (Dims{3, 32, 32}));
  }
}

TEST(Cifar, HundredHasItsFineLabels) {
  TempFolder folder;
  write_text(folder / "train.bin", cifar_records(3, 2, 5));
  write_text(folder / "test.bin", cifar_records(1, 2, 0));
  const Splits splits = open_dataset("cifar100", {.data_dir = folder.path()});
  EXPECT_EQ(labels_of(*splits.train), (Labels{5, 6, 7}));
}

TEST(Cifar, DamageAndAbsenceAreTold) {
  TempFolder folder;
  const std::string missing =
      message_of<Error>([&] { open_dataset("cifar10", {.data_dir = folder.path()}); });
  EXPECT_HAS(missing, "cifar-10-binary.tar.gz, or data_batch_1.bin and test_batch.bin, is missing");
  EXPECT_HAS(missing, "tandem datasets --download cifar10");
  EXPECT_HAS(missing, "https://www.cs.toronto.edu/~kriz/");
  write_text(folder / "test_batch.bin", cifar_records(1, 1, 0));
  write_text(folder / "data_batch_1.bin", cifar_records(2, 1, 0).substr(1));
  EXPECT_HAS(message_of<Error>([&] { open_dataset("cifar10", {.data_dir = folder.path()}); }),
             "records of 3073 bytes");
  std::string wrong = cifar_records(2, 1, 0);
  wrong[3073] = 10;
  write_text(folder / "data_batch_1.bin", wrong);
  EXPECT_HAS(message_of<Error>([&] { open_dataset("cifar10", {.data_dir = folder.path()}); }),
             "label 1 is 10");
}

// --- SVHN

std::string svhn_file(int count, const std::string& labels) {
  std::string pixels;  // the row runs fastest
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < 3; ++c)
      for (int column = 0; column < 32; ++column)
        for (int row = 0; row < 32; ++row) pixels += static_cast<char>(row * 4 + column + c);
  return testing::mat_header() +
         testing::mat_packed(testing::mat_array("X", 9, 2, {32, 32, 3, count}, pixels)) +
         testing::mat_packed(testing::mat_array("y", 9, 2, {static_cast<int32_t>(labels.size()), 1}, labels));
}

TEST(Svhn, RowsAndColumnsAreTurnedAndTenIsZero) {
  TempFolder folder;
  write_text(folder / "train_32x32.mat", svhn_file(3, {10, 1, 9}));
  write_text(folder / "test_32x32.mat", svhn_file(1, {5}));
  const Splits splits = open_dataset("svhn", {.data_dir = folder.path()});
  EXPECT_EQ(labels_of(*splits.train), (Labels{0, 1, 9}));
  uint8_t scratch[3072];
  const auto& images = dynamic_cast<const ImageDataset&>(*splits.train);
  const uint8_t* pixels = images.pixels(2, scratch);
  EXPECT_EQ(pixels[0], 0);
  EXPECT_EQ(pixels[1], 1) << "the next column";
  EXPECT_EQ(pixels[32], 4) << "the next row";
  EXPECT_EQ(pixels[1024], 1) << "the next channel";
  const auto refusal = [&](const std::string& content) {
    write_text(folder / "test_32x32.mat", content);
    return message_of<Error>([&] { read_svhn("x", folder / "test_32x32.mat"); });
  };
  EXPECT_HAS(refusal(svhn_file(1, {11})), "label 0 is 11");
  EXPECT_HAS(refusal(svhn_file(2, {1})), "2 images and 1 labels");
  EXPECT_HAS(refusal(testing::mat_header()), "there is no X");
}

// --- Synthetic

TEST(Synthetic, HaveTheShapesOfTheirModelsAndSamplesThatDoNotChange) {
  for (const SyntheticKind& kind : synthetic_kinds()) {
    const Splits splits = open_dataset(std::string("synthetic-") + kind.name);
    EXPECT_EQ(splits.train->size(), kind.train_size);
    const std::vector<int64_t> indices{kind.train_size - 1, 5};
    const std::vector<Tensor> batch = splits.train->batch(indices),
                              plain = splits.train->Dataset::batch(indices);
    EXPECT_EQ(batch[0].shape(), (Dims{2, kind.channels, kind.side, kind.side}));
    EXPECT_EQ(batch[0].to_vector<float>(), plain[0].to_vector<float>());
    EXPECT_NE(splits.train->get(0)[0].to_vector<float>(), splits.test->get(0)[0].to_vector<float>());
  }
}

TEST(Synthetic, CanBeLearnedAndHaveAllClasses) {
  const Splits splits = open_dataset("synthetic-cifar10");
  constexpr int64_t kTrain = 600, kSize = 3 * 32 * 32;
  std::vector<int64_t> indices(900);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<Tensor> all = splits.train->batch(indices);
  const std::vector<int64_t> labels = all[1].to_vector<int64_t>();
  std::vector<double> mean(10 * kSize), count(10);
  const float* pixels = all[0].data<float>();
  double sum = 0, squares = 0;
  for (int64_t k = 0; k < all[0].size(); ++k) sum += pixels[k], squares += double{pixels[k]} * pixels[k];
  EXPECT_NEAR(sum / static_cast<double>(all[0].size()), 0, 0.3);
  EXPECT_NEAR(squares / static_cast<double>(all[0].size()), 1, 0.6);
  for (int64_t i = 0; i < kTrain; ++i) {
    ++count[static_cast<size_t>(labels[static_cast<size_t>(i)])];
    for (int64_t k = 0; k < kSize; ++k)
      mean[static_cast<size_t>(labels[static_cast<size_t>(i)] * kSize + k)] += pixels[i * kSize + k];
  }
  for (double n : count) EXPECT_GT(n, 30);
  int right = 0;
  for (int64_t i = kTrain; i < 900; ++i) {
    std::vector<double> distance(10);
    for (size_t c = 0; c < 10; ++c)
      for (int64_t k = 0; k < kSize; ++k) {
        const double d = pixels[i * kSize + k] - mean[c * kSize + static_cast<size_t>(k)] / count[c];
        distance[c] += d * d;
      }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() ==
             labels[static_cast<size_t>(i)];
  }
  EXPECT_GT(right, 200) << "of 300, by the nearest mean";
}

// --- The real files, where the machine that runs the tests has them

std::string real_folder(const char* name) {
  std::vector<fs::path> roots{testing::source_dir().parent_path() / "shared/data"};
  if (const char* root = std::getenv("TANDEM_DATA"); root && *root) roots.insert(roots.begin(), root);
  for (const fs::path& root : roots)
    for (const std::string& folder : {std::string(name), std::string(name) + "-subset"})
      if (fs::is_directory(root / folder)) return (root / folder).string();
  return "";
}

TEST(Cifar, HoldsTheKnownImages) {
  const std::string dir = real_folder("cifar10");
  if (dir.empty()) GTEST_SKIP() << "CIFAR-10 is not here: set TANDEM_DATA to the folder that holds cifar10/";
  const Splits splits = open_dataset("cifar10", {.data_dir = dir});
  EXPECT_EQ(labels_of(*first(splits.train, 5)), (Labels{6, 9, 9, 4, 1}));
  EXPECT_EQ(labels_of(*first(splits.test, 5)), (Labels{3, 8, 8, 0, 6}));
}

TEST(Svhn, HoldsImagesThatFitItsMean) {
  const std::string dir = real_folder("svhn");
  if (dir.empty()) GTEST_SKIP() << "SVHN is not here: set TANDEM_DATA to the folder that holds svhn/";
  const Splits splits = open_dataset("svhn", {.data_dir = dir});
  std::vector<int64_t> indices(2000);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<float> values = splits.train->batch(indices)[0].to_vector<float>();
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0, 0.1);
}

}  // namespace
}  // namespace tandem::data
