// Images in folders.
#include "tandem/data/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "tandem/core/threads.h"
#include "tandem/data/labels.h"
#include "tandem/data/places.h"
#include "tandem/data/split.h"
#include "tandem/data/transforms.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"

namespace tandem::data {

namespace fs = std::filesystem;

const std::vector<float>& kPhotoMean = *new std::vector<float>{0.485f, 0.456f, 0.406f};
const std::vector<float>& kPhotoDeviation = *new std::vector<float>{0.229f, 0.224f, 0.225f};

namespace {

constexpr int64_t kSide = 224, kShortSide = 256;  // what image models are trained with
constexpr int64_t kMaxSide = 8192;
constexpr const char* kTestParts[] = {"test", "val", "valid"};  // the first that is there tests
constexpr size_t kMaxNotices = 5;                               // files that are named one by one
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

bool is_link(const fs::path& path) {
  std::error_code ignored;
  return fs::is_symlink(path, ignored);
}

/// Whether a link in `folder` leads to it, or to a folder above it.
bool leads_up(const fs::path& link, const fs::path& folder) {
  std::error_code error;
  const fs::path to = fs::canonical(link, error), from = fs::canonical(folder, error);
  return !error && std::mismatch(to.begin(), to.end(), from.begin(), from.end()).first == to.end();
}

/// Things of one kind that were left out: how many, and the first.
struct LeftOut {
  int64_t count = 0;
  std::string first = {};
  void add(const fs::path& path) {
    if (count++ == 0 || path.string() < first) first = path.string();
  }
  void tell(const char* what, std::vector<std::string>& notices) const {
    if (count > 0)
      notices.push_back(str("left out: ", what, ": ", count, ", the first '", io::one_line(first), "'."));
  }
};

/// What lies in a folder of classes.
struct Listing {
  std::vector<std::string> folders = {};  // sorted
  LeftOut loose = {}, dangling = {}, circular = {};
};
Listing list(const std::string& folder) {
  Listing found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (is_hidden(path)) continue;
    if (is_link(path) && !fs::exists(path, ignored)) {
      found.dangling.add(path);
    } else if (is_folder(path)) {
      if (is_link(path) && leads_up(path, folder))
        found.circular.add(path);
      else
        found.folders.push_back(path.filename().string());
    } else if (is_image(path)) {
      found.loose.add(path);
    }
  }
  if (error) fail_to_read(folder, error);
  std::sort(found.folders.begin(), found.folders.end());
  return found;
}

/// What lies below the folder of a class. Links to folders are not followed, so that there is no endless round.
struct Images {
  std::vector<std::string> paths = {};  // sorted
  int64_t others = 0;                   // files of kinds that are not read
  LeftOut dangling = {}, links = {};
};
Images images_below(const fs::path& folder) {
  Images found;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (is_hidden(path)) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file(ignored)) {
      if (is_image(path)) found.paths.push_back(path.string());
      found.others += has_ending(path, kNotRead);
    } else if (is_link(path)) {
      (is_folder(path) ? found.links : found.dangling).add(path);
    }
  }
  if (error) fail_to_read(folder, error);
  std::sort(found.paths.begin(), found.paths.end());
  return found;
}

/// Whether there is an image in a class's folder, or below it.
bool has_class(const fs::path& folder) {
  std::error_code error;
  if (fs::directory_iterator(folder, error); error) return false;
  for (const std::string& name : list(folder.string()).folders)
    for (fs::recursive_directory_iterator at(folder / name, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code ignored;
      if (is_hidden(at->path()))
        at.disable_recursion_pending();
      else if (at->is_regular_file(ignored) && is_image(at->path()))
        return true;
    }
  return false;
}

/// The classes of a folder. Their names are kept with a run, as text.
std::vector<std::string> classes_in(const std::string& folder, std::vector<std::string>& notices) {
  Listing found = list(folder);
  found.loose.tell("images beside the classes' folders", notices);
  found.dangling.tell("links that lead nowhere", notices);
  found.circular.tell("links to the folder itself or to one above it", notices);
  for (const std::string& name : found.folders)
    TD_CHECK(io::is_utf8(name), "image folder '", io::one_line(folder),
             "': the name of a class's folder must be UTF-8; '", io::one_line(name, 50),
             "' is not. Rename it.");
  return std::move(found.folders);
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
        faults[at] = str("'", io::one_line(files[at].path), "': ", faults[at]);
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
  if (bad > kMaxNotices) notices.push_back(str("left out: and ", bad - kMaxNotices, " more files."));
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
  const Images found = images_below(folder);
  for (const std::string& path : found.paths) files_.push_back({path, label});
  other_images_ += found.others;
  found.dangling.tell("links that lead nowhere", notices_);
  found.links.tell("links to folders, which are not followed within a class", notices_);
}

ImageFolder::ImageFolder(const std::string& folder, int64_t shrink_to) : shrink_to_(shrink_to) {
  const std::string where = str("image folder '", io::one_line(folder), "': ");
  TD_CHECK(is_folder(folder), where, "must be a folder; it is not.");
  classes_ = classes_in(folder, notices_);
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
  const std::string where = str("image folder '", io::one_line(folder), "': ");
  TD_CHECK(is_folder(folder), where, "must be a folder; it is not.");
  for (const std::string& name : classes_in(folder, notices_)) {
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
  return str(size(), " image files of ", classes_.size(), " classes");
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
                                        "there must be a folder per class with JPEG or PNG files");
  const std::string where = str("data ", info.name, ": '", io::one_line(folder), "': ");
  const auto part = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const bool has_train = is_folder(part("train"));
  for (const char* name : kTestParts)
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
  notices.insert(notices.end(), all.notices().begin(), all.notices().end());
  std::vector<std::string> parts_there;
  for (const char* name : kTestParts)
    if (has_train && is_folder(part(name))) parts_there.emplace_back(name);
  if (!parts_there.empty()) {
    const std::string& name = parts_there[0];
    const ImageFolder given(part(name.c_str()), all.classes());
    test = options.skip_bad ? readable(given.files(), format, notices) : given.files();
    TD_CHECK(!test.empty(), where, name, "/ must hold an image that can be read; all were left out.");
    others += given.other_images();
    notices.insert(notices.end(), given.notices().begin(), given.notices().end());
    for (size_t i = 1; i < parts_there.size(); ++i)
      notices.push_back(str(parts_there[i], "/ is not used: ", name, "/ is there."));
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
    notices.push_back(str(parts.test.size(), " of ", train.size(),
                          " images were split off for testing (seed ", options.split_seed, ")."));
    test = take(parts.test);
    train = take(parts.train);
    split_off = true;
  }
  if (others > 0)
    notices.push_back(
        str(others, " files of other kinds (.gif, .webp …) were left out: JPEG and PNG are read."));

  const auto train_set = std::make_shared<ImageFolder>(std::move(train), all.classes()),
             test_set = std::make_shared<ImageFolder>(std::move(test), all.classes());
  const auto inputs =
      [&](const std::shared_ptr<ImageFolder>& images) {  // the files' folders tell the classes
        std::vector<int64_t> labels;
        for (const ImageFolder::File& file : images->files()) labels.push_back(file.label);
        return labelled(transform(images, for_testing(format)), std::move(labels));
      };
  Splits splits{inputs(train_set), inputs(test_set), info, info.name, folder};
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
