// Images in folders.
#include "tandem/data/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "tandem/core/threads.h"
#include "tandem/data/places.h"
#include "tandem/data/split.h"
#include "tandem/data/transforms.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"

namespace tandem::data {

namespace fs = std::filesystem;

const std::vector<float>& kPhotoMean = *new std::vector<float>{0.485f, 0.456f, 0.406f};
const std::vector<float>& kPhotoDeviation = *new std::vector<float>{0.229f, 0.224f, 0.225f};

namespace {

constexpr int64_t kSide = 224, kShortSide = 256;  // what image models are trained with
constexpr int64_t kMaxSide = 8192;
constexpr size_t kMaxNotices = 5;  // files that are named one by one
constexpr const char* kRead[] = {".jpg", ".jpeg", ".png"};
constexpr const char* kNotRead[] = {".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".jfif"};

template <size_t n>
bool has_ending(const fs::path& path, const char* const (&endings)[n]) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::find(endings, endings + n, ending) != endings + n;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }
bool is_image(const fs::path& path) { return has_ending(path, kRead) && !is_hidden(path); }

[[noreturn]] void fail_to_read(const fs::path& folder, const std::error_code& error) {
  throw resource_error("image folder '", io::one_line(folder.string()),
                       "': cannot be read: ", error.message(), ".");
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// The folders in a folder, sorted.
std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_folder(at->path()) && !is_hidden(at->path())) names.push_back(at->path().filename().string());
  if (error) fail_to_read(folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

/// All images below a folder, sorted. Links to folders are not followed, so that there is no endless round. `others`
/// counts the files of kinds that are not read.
std::vector<std::string> images_below(const fs::path& folder, int64_t& others) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (is_hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file(ignored)) {
      if (is_image(at->path())) paths.push_back(at->path().string());
      others += has_ending(at->path(), kNotRead);
    }
  }
  if (error) fail_to_read(folder, error);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool has_class(const fs::path& folder) {
  std::error_code error;
  if (fs::directory_iterator(folder, error); error) return false;
  for (const std::string& name : folders_in(folder.string())) {
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

Transform for_testing(const ImageFormat& format) {
  return {[format](const Tensor& image, SampleRandom&) { return image_to_input(image, format); }};
}

io::DecodeOptions decoding(int64_t shrink_to) {
  return {.channels = io::Channels::rgb, .shrink_to = shrink_to};
}

using Files = std::vector<ImageFolder::File>;

/// Leaves out the files that cannot be made inputs, with notices. Each is decoded once.
Files readable(const Files& files, const ImageFormat& format, std::vector<std::string>& notices) {
  std::vector<std::string> faults(files.size());
  parallel_for(static_cast<int64_t>(files.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      image_to_input(io::read_image(files[at].path, decoding(0)), format);
    } catch (const OutOfMemory&) {
      throw;  // not the file's fault
    } catch (const Error& error) {
      faults[at] = error.what();
      if (faults[at].find(io::one_line(files[at].path)) == std::string::npos)
        faults[at] = cat("'", io::one_line(files[at].path), "': ", faults[at]);
    }
  });
  Files kept;
  size_t bad = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (faults[i].empty())
      kept.push_back(files[i]);
    else if (++bad <= kMaxNotices)
      notices.push_back("left out: " + faults[i]);
  }
  if (bad > kMaxNotices) notices.push_back(cat("left out: and ", bad - kMaxNotices, " more files."));
  return kept;
}

/// Refuses files that leave a class without an image to learn from.
void check_classes(const std::string& where, const Files& files, const std::vector<std::string>& classes) {
  std::vector<int64_t> count(classes.size());
  for (const ImageFolder::File& file : files) ++count[static_cast<size_t>(file.label)];
  for (size_t i = 0; i < classes.size(); ++i)
    TD_CHECK(count[i] > 0, where, "every class must have an image that can be read; all of '",
             io::one_line(classes[i], 50), "' were left out. Remove the class, or put images there.");
}

}  // namespace

ImageFormat image_folder_format(int64_t height, int64_t width) {
  TD_CHECK(height >= 1 && height <= kMaxSide && width >= 1 && width <= kMaxSide,
           "image_size: height and width must be 1 to ", kMaxSide, "; got ", height, " by ", width, ".");
  const int64_t shorter = std::min(height, width);
  return {3, height, width, kPhotoMean, kPhotoDeviation, (shorter * kShortSide + kSide / 2) / kSide};
}

void ImageFolder::add_class(const std::string& folder, int64_t label) {
  for (const std::string& path : images_below(folder, other_images_)) files_.push_back({path, label});
}

ImageFolder::ImageFolder(const std::string& folder, int64_t shrink_to) : shrink_to_(shrink_to) {
  const std::string where = cat("image folder '", io::one_line(folder), "': ");
  TD_CHECK(is_folder(folder), where, "must be a folder; it is not.");
  classes_ = folders_in(folder);
  std::string empty_class;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const size_t before = files_.size();
    add_class((fs::path(folder) / classes_[i]).string(), static_cast<int64_t>(i));
    if (files_.size() == before && empty_class.empty()) empty_class = classes_[i];
  }
  TD_CHECK(!files_.empty(), where,
           "must hold folders with .jpg, .jpeg or .png files, one folder a class; found no image.");
  TD_CHECK(empty_class.empty(), where, "every class's folder must hold .jpg, .jpeg or .png files; '",
           io::one_line(empty_class, 50), "' holds none. Remove it, or put images there.");
}

ImageFolder::ImageFolder(const std::string& folder, std::vector<std::string> classes, int64_t shrink_to)
    : classes_(std::move(classes)), shrink_to_(shrink_to) {
  const std::string where = cat("image folder '", io::one_line(folder), "': ");
  TD_CHECK(is_folder(folder), where, "must be a folder; it is not.");
  for (const std::string& name : folders_in(folder)) {
    const auto found = std::find(classes_.begin(), classes_.end(), name);
    TD_CHECK(found != classes_.end(), where, "its classes must be those of training; '",
             io::one_line(name, 50), "' is not one of them. Remove it, or put images of it into training.");
    add_class((fs::path(folder) / name).string(), found - classes_.begin());
  }
  TD_CHECK(!files_.empty(), where,
           "must hold folders with .jpg, .jpeg or .png files, one folder a class; found no image.");
}

ImageFolder::ImageFolder(std::vector<File> files, std::vector<std::string> classes, int64_t shrink_to)
    : files_(std::move(files)), classes_(std::move(classes)), shrink_to_(shrink_to) {
  for (const File& file : files_)
    check_index("image folder", file.label, static_cast<int64_t>(classes_.size()));
}

std::vector<Tensor> ImageFolder::get(int64_t i) const {
  check_index("get", i, size());
  const File& file = files_[static_cast<size_t>(i)];
  return {io::read_image(file.path, decoding(shrink_to_)), from_vector<int64_t>({file.label}, {})};
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
  const auto [height, width] = options.image_size.value_or(std::array<int64_t, 2>{kSide, kSide});
  const ImageFormat format = image_folder_format(height, width);
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                        "there must be a folder a class with JPEG or PNG files");
  const std::string where = cat("data ", info.name, ": '", io::one_line(folder), "': ");
  const auto part = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const bool has_train = is_folder(part("train"));
  for (const char* name : {"test", "val"})
    TD_CHECK(has_train || !has_class(part(name)), where, name,
             "/ holds classes: there must be train/ beside it. Make it, or name the folder of the classes.");
  const ImageFolder all(has_train ? part("train") : folder);
  TD_CHECK(all.classes().size() >= 2, where, "there must be two classes or more; got '",
           io::one_line(all.classes()[0], 50), "' alone. Make a folder for each class.");
  std::vector<std::string> notices;
  bool split_off = false;
  int64_t others = all.other_images();

  Files train = options.skip_bad ? readable(all.files(), format, notices) : all.files(), test;
  check_classes(where, train, all.classes());
  if (const char* name = is_folder(part("test")) ? "test" : "val"; has_train && is_folder(part(name))) {
    const ImageFolder given(part(name), all.classes());
    test = options.skip_bad ? readable(given.files(), format, notices) : given.files();
    TD_CHECK(!test.empty(), where, name, "/ must hold an image that can be read; all were left out.");
    others += given.other_images();
    if (name == std::string("test") && is_folder(part("val")))
      notices.push_back("val/ is not used: test/ is there.");
  } else {
    std::vector<int64_t> labels;
    for (const ImageFolder::File& file : train) labels.push_back(file.label);
    const SplitIndices parts = split_indices(labels, options.test_share, options.split_seed);
    TD_CHECK(!parts.test.empty(), where, "a class must have two images or more for a test part; each of the ",
             train.size(), " images is a class of its own. Add images.");
    const auto take = [&](const std::vector<int64_t>& indices) {
      Files taken;
      for (int64_t i : indices) taken.push_back(train[static_cast<size_t>(i)]);
      return taken;
    };
    notices.push_back(cat(parts.test.size(), " of ", train.size(),
                          " images were split off for testing (seed ", options.split_seed, ")."));
    test = take(parts.test);
    train = take(parts.train);
    split_off = true;
  }
  if (others > 0)
    notices.push_back(
        cat(others, " files of other kinds (.gif, .webp …) were left out: JPEG and PNG are read."));

  const auto train_set = std::make_shared<ImageFolder>(std::move(train), all.classes()),
             test_set = std::make_shared<ImageFolder>(std::move(test), all.classes());
  Splits splits{transform(train_set, for_testing(format)), transform(test_set, for_testing(format)), info,
                info.name, folder};
  splits.info.sample_shape = {3, height, width};
  splits.info.classes = static_cast<int64_t>(all.classes().size());
  splits.info.train_size = train_set->size();
  splits.info.test_size = test_set->size();
  splits.augmented = [train_set, format](uint64_t seed) {
    return transform(
        train_set,
        transforms::compose(
            {transforms::random_resized_crop({.height = format.height, .width = format.width}),
             transforms::random_horizontal_flip(), transforms::normalise(format.mean, format.deviation)}),
        seed);
  };
  splits.class_names = all.classes();
  splits.split_off = split_off;
  splits.format = format;
  splits.notices = std::move(notices);
  return splits;
}

}  // namespace tandem::data
