// Reading SVHN.
#include "tandem/data/svhn.h"

#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"
#include "tandem/io/mat.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide;
constexpr const char* kTrain = "train_32x32.mat";
constexpr const char* kTest = "test_32x32.mat";

std::string missing_file(const std::string& folder) {
  for (const char* file : {kTrain, kTest}) {
    std::error_code ignored;
    if (!fs::is_regular_file(fs::path(folder) / file, ignored)) return file;
  }
  return "";
}

}  // namespace

std::shared_ptr<const ImageSet> read_svhn(const std::string& name, const std::string& path) {
  const std::string where = str("read '", io::one_line(path), "': ");
  const std::vector<io::MatArray> arrays = io::load_mat(path);
  const auto find = [&](const char* wanted) -> const io::MatArray& {
    for (const io::MatArray& array : arrays)
      if (array.name == wanted) return array;
    throw Error(str(where, "must hold the arrays X and y; there is no ", wanted, io::kDamaged));
  };
  const io::MatArray &x = find("X"), &y = find("y");
  TD_CHECK(x.dtype == DType::u8 && x.sizes.size() == 4 && x.sizes[0] == kSide && x.sizes[1] == kSide &&
               x.sizes[2] == 3 && x.sizes[3] >= 1,
           where, "X must be u8 (32, 32, 3, n); got ", x.dtype, " of ", x.sizes.size(), " axes",
           io::kDamaged);
  const int64_t count = x.sizes[3];
  TD_CHECK(y.count() == count, where, "there must be one label per image; got ", count, " images and ",
           y.count(), " labels", io::kDamaged);
  std::vector<uint8_t> images(x.values.size()), labels(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double label = y.number(i);
    TD_CHECK(label >= 0 && label <= 10 && label == static_cast<int>(label), where,
             "labels must be 1 to 10; label ", i, " is ", label, io::kDamaged);
    labels[static_cast<size_t>(i)] = static_cast<uint8_t>(static_cast<int>(label) % 10);
    // The rows run fastest in the file, the columns in memory.
    for (int64_t c = 0; c < 3; ++c) {
      const uint8_t* from = x.values.data() + (i * 3 + c) * kPlane;
      uint8_t* to = images.data() + (i * 3 + c) * kPlane;
      for (int64_t row = 0; row < kSide; ++row)
        for (int64_t column = 0; column < kSide; ++column)
          to[row * kSide + column] = from[column * kSide + row];
    }
  }
  const ImageFormat format{3, kSide, kSide, {0.4377f, 0.4438f, 0.4728f}, {0.1980f, 0.2010f, 0.1970f}};
  return std::make_shared<ImageSet>(name, format, std::move(images), std::move(labels));
}

std::optional<std::string> locate_svhn(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_file);
}

Splits open_svhn(const DatasetInfo& info, const OpenOptions& options) {
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_file,
                                        "its two .mat files must be in one folder");
  const auto train = read_svhn(info.title + ", train", (fs::path(folder) / kTrain).string());
  const auto test = read_svhn(info.title + ", test", (fs::path(folder) / kTest).string());
  DatasetInfo found = info;
  found.train_size = train->size();
  found.test_size = test->size();
  return {train, test, found, info.name, folder};
}

}  // namespace tandem::data
