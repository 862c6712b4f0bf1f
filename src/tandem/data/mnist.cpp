// Finding the files of the MNIST family, and reading them.
#include "tandem/data/mnist.h"

#include <filesystem>

#include "tandem/data/idx.h"
#include "tandem/data/places.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFashionSystemFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kFiles[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                   "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

/// The file in that folder under one of the spellings in use (with a dot before idx, with .gz), or "".
std::string find_file(const std::string& folder, const std::string& file) {
  std::string dotted = file;
  dotted[file.rfind("-idx")] = '.';
  for (const std::string& stem : {file, dotted})
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = fs::path(folder) / (stem + ending);
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) return path.string();
    }
  return "";
}

/// The first of the four files that the folder lacks, or "".
std::string missing_file(const std::string& folder) {
  for (const char* file : kFiles)
    if (find_file(folder, file).empty()) return std::string(file) + "[.gz]";
  return "";
}

Splits open(const DatasetInfo& info, const std::vector<std::string>& folders, float mean, float deviation) {
  const std::string folder =
      require_in(info, folders, missing_file, "its four idx files must be in one folder");
  const ImageFormat format{1, 28, 28, {mean}, {deviation}};
  const auto read = [&](const char* part, int first) -> DatasetPtr {
    return read_idx_images(str(info.title, ", ", part), find_file(folder, kFiles[first]),
                           find_file(folder, kFiles[first + 1]), format, static_cast<int>(info.classes));
  };
  return {read("train", 0), read("test", 2), info, info.name, folder};
}

}  // namespace

std::optional<std::string> locate_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_file);
}

std::optional<std::string> locate_fashion_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir, kFashionSystemFolder), missing_file);
}

Splits open_mnist(const DatasetInfo& info, const OpenOptions& options) {
  return open(info, search_folders(info.name, options.data_dir), 0.1307f, 0.3081f);
}

Splits open_fashion_mnist(const DatasetInfo& info, const OpenOptions& options) {
  return open(info, search_folders(info.name, options.data_dir, kFashionSystemFolder), 0.2860f, 0.3530f);
}

}  // namespace tandem::data
