// Images in folders.
#include "tandem/data/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/transforms.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"

namespace tandem::data {

namespace fs = std::filesystem;

const std::vector<float>& kPhotoMean = *new std::vector<float>{0.485f, 0.456f, 0.406f};
const std::vector<float>& kPhotoDeviation = *new std::vector<float>{0.229f, 0.224f, 0.225f};

namespace {

constexpr int64_t kSide = 224, kShortSide = 256;
constexpr int64_t kTestEvery = 10;

bool is_image(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_folder(at->path())) names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// All images below a folder, sorted. Links to folders are not followed, so that there is no endless round.
std::vector<std::string> images_below(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (is_image(at->path()) && at->is_regular_file(ignored)) paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool has_class(const fs::path& folder) {
  for (const std::string& name : folders_in(folder.string())) {
    std::error_code error;
    for (fs::directory_iterator at(folder / name, error), end; !error && at != end; at.increment(error))
      if (is_image(at->path())) return true;
  }
  return false;
}

std::string missing_in(const std::string& folder) {
  if (is_folder(fs::path(folder) / "train")) {
    if (!has_class(fs::path(folder) / "train")) return "a class's folder with images in train/";
    return "";
  }
  return has_class(folder) ? "" : "a class's folder with images";
}

Transform for_testing() {
  return transforms::compose({transforms::resize_short_side(kShortSide),
                              transforms::center_crop(kSide, kSide),
                              transforms::normalise(kPhotoMean, kPhotoDeviation)});
}

}  // namespace

ImageFolder::ImageFolder(const std::string& folder, int64_t shrink_to) : shrink_to_(shrink_to) {
  TD_CHECK(is_folder(folder), "image folder '", io::one_line(folder), "': must be a folder; it is not.");
  for (const std::string& name : folders_in(folder)) {
    const std::vector<std::string> paths = images_below(fs::path(folder) / name);
    if (paths.empty()) continue;
    for (const std::string& path : paths) files_.push_back({path, static_cast<int64_t>(classes_.size())});
    classes_.push_back(name);
  }
  TD_CHECK(!files_.empty(), "image folder '", io::one_line(folder),
           "': must hold folders with .jpg, .jpeg or .png files, one folder a class; found no image.");
}

ImageFolder::ImageFolder(std::vector<File> files, std::vector<std::string> classes, int64_t shrink_to)
    : files_(std::move(files)), classes_(std::move(classes)), shrink_to_(shrink_to) {
  for (const File& file : files_)
    check_index("image folder", file.label, static_cast<int64_t>(classes_.size()));
}

std::vector<Tensor> ImageFolder::get(int64_t i) const {
  check_index("get", i, size());
  const File& file = files_[static_cast<size_t>(i)];
  return {io::read_image(file.path, {.channels = io::Channels::rgb, .shrink_to = shrink_to_}),
          from_vector<int64_t>({file.label}, {})};
}

std::string ImageFolder::describe() const {
  return cat(size(), " image files of ", classes_.size(), " classes");
}

std::string ImageFolder::sample_name(int64_t i) const {
  check_index("sample_name", i, size());
  return "'" + io::one_line(files_[static_cast<size_t>(i)].path) + "'";
}

std::optional<std::string> locate_image_folder(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_image_folder(const DatasetInfo& info, const OpenOptions& options) {
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                        "there must be a folder a class with JPEG or PNG files");
  std::shared_ptr<const ImageFolder> train, test;
  if (is_folder(fs::path(folder) / "train")) {
    train = std::make_shared<ImageFolder>((fs::path(folder) / "train").string());
    for (const char* part : {"test", "val"})
      if (!test && is_folder(fs::path(folder) / part))
        test = std::make_shared<ImageFolder>((fs::path(folder) / part).string());
    TD_CHECK(test, "data ", info.name, ": beside train/ there must be test/ or val/; '", io::one_line(folder),
             "' has neither. Make one of them.");
    TD_CHECK(test->classes() == train->classes(), "data ", info.name, ": train/ and ",
             "the test folder must have the same classes; got ", train->classes().size(), " and ",
             test->classes().size(), " in '", io::one_line(folder), "'.");
  } else {
    const ImageFolder all(folder);
    std::vector<ImageFolder::File> parts[2];
    for (size_t i = 0; i < all.files().size(); ++i)
      parts[i % kTestEvery == kTestEvery - 1].push_back(all.files()[i]);
    TD_CHECK(!parts[1].empty(), "data ", info.name, ": there must be at least ", kTestEvery, " images; '",
             io::one_line(folder), "' has ", all.size(), ".");
    train = std::make_shared<ImageFolder>(std::move(parts[0]), all.classes());
    test = std::make_shared<ImageFolder>(std::move(parts[1]), all.classes());
  }
  DatasetInfo found = info;
  found.classes = static_cast<int64_t>(train->classes().size());
  found.train_size = train->size();
  found.test_size = test->size();
  const auto augmented = [train](uint64_t seed) {
    return transform(train,
                     transforms::compose({transforms::random_resized_crop({.height = kSide, .width = kSide}),
                                          transforms::random_horizontal_flip(),
                                          transforms::normalise(kPhotoMean, kPhotoDeviation)}),
                     seed);
  };
  return {
      transform(train, for_testing()), transform(test, for_testing()), found, info.name, folder, augmented};
}

}  // namespace tandem::data
