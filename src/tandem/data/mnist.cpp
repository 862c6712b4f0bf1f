// Finding the files of the MNIST family, and reading them.
#include "tandem/data/mnist.h"

#include <cstdlib>
#include <filesystem>

#include "tandem/data/idx.h"
#include "tandem/io/file.h"

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
    if (find_file(folder, file).empty()) return file;
  return "";
}

std::optional<std::string> locate(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    if (missing_file(folder).empty()) return folder;
  return std::nullopt;
}

Splits open(const DatasetInfo& info, const std::vector<std::string>& folders, float mean, float deviation) {
  const std::optional<std::string> folder = locate(folders);
  if (!folder) {
    std::string searched;
    for (const std::string& candidate : folders) {
      std::error_code ignored;
      searched += cat(searched.empty() ? "" : "; ", io::one_line(candidate), " (",
                      fs::is_directory(candidate, ignored) ? missing_file(candidate) + "[.gz] is missing"
                                                           : std::string("no such folder"),
                      ")");
    }
    throw Error(cat("data ", info.name, ": its four idx files must be in one folder; searched ", searched,
                    ". ", info.how_to_get));
  }
  const ImageFormat format{1, 28, 28, {mean}, {deviation}};
  const auto read = [&](const char* part, int first) -> DatasetPtr {
    return read_idx_images(cat(info.title, ", ", part), find_file(*folder, kFiles[first]),
                           find_file(*folder, kFiles[first + 1]), format, static_cast<int>(info.classes));
  };
  return {read("train", 0), read("test", 2), info, info.name, *folder};
}

}  // namespace

std::vector<std::string> search_folders(const std::string& name, const std::string& data_dir,
                                        const std::string& system_folder) {
  if (!data_dir.empty()) {
    fs::path given(data_dir);
    std::vector<std::string> folders{(given / name).string()};
    if (!given.has_filename()) given = given.parent_path();  // a slash at the end
    bool is_of_another = false;
    for (const char* other : {"mnist", "fashion-mnist"})
      is_of_another = is_of_another || (given.filename() == other && name != other);
    if (!is_of_another) folders.push_back(given.string());
    return folders;
  }
  std::vector<std::string> folders;
  if (const char* root = std::getenv("TANDEM_DATA"); root && *root)
    folders.push_back((fs::path(root) / name).string());
  if (const char* home = std::getenv("HOME"); home && *home)
    folders.push_back((fs::path(home) / ".cache/tandem" / name).string());
  folders.push_back("./data/" + name);
  if (!system_folder.empty()) folders.push_back(system_folder);
  return folders;
}

std::optional<std::string> locate_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return locate(search_folders(info.name, data_dir));
}

std::optional<std::string> locate_fashion_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return locate(search_folders(info.name, data_dir, kFashionSystemFolder));
}

Splits open_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return open(info, search_folders(info.name, data_dir), 0.1307f, 0.3081f);
}

Splits open_fashion_mnist(const DatasetInfo& info, const std::string& data_dir) {
  return open(info, search_folders(info.name, data_dir, kFashionSystemFolder), 0.2860f, 0.3530f);
}

}  // namespace tandem::data
