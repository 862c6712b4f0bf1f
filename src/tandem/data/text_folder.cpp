// Texts in folders: one folder a class, .txt files in it, as image-folder has images.
#include <algorithm>
#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTestParts[] = {"test", "val", "valid"};  // the first that is there tests
constexpr size_t kMaxNotices = 5;                               // files that are named one by one

bool has_class(const fs::path& folder) {
  for (const std::string& name : folders_in(folder.string()))
    if (!files_in((folder / name).string(), {".txt"}).empty()) return true;
  return false;
}

std::string missing_in(const std::string& folder) {
  if (is_folder((fs::path(folder) / "train").string()))
    return has_class(fs::path(folder) / "train") ? "" : "a class's folder with .txt files in train/";
  return has_class(folder) ? "" : "a class's folder with .txt files";
}

/// The texts of a folder of classes. Files that cannot be read stop it by name, or are left out.
class Reader {
 public:
  explicit Reader(bool skip_bad) : skip_bad_(skip_bad) {}

  std::vector<LabelledText> read(const fs::path& folder, const std::vector<std::string>& classes) {
    std::vector<LabelledText> out;
    for (size_t i = 0; i < classes.size(); ++i) {
      size_t there = 0;
      const fs::path place = folder / classes[i];
      for (const std::string& file : files_in(place.string(), {".txt"})) {
        const std::string path = (place / file).string();
        try {
          out.push_back({read_text(path), static_cast<int64_t>(i), "'" + io::one_line(path) + "'"});
          ++there;
        } catch (const OutOfMemory&) {
          throw;  // not the file's fault
        } catch (const Error& error) {
          if (!skip_bad_) throw;
          if (++bad_ <= kMaxNotices) notices_.push_back(str("left out: ", error.what()));
        }
      }
      TD_CHECK(there > 0, "data text-folder '", io::one_line(place.string()),
               "': a class must have a text that can be read; it has none. Remove the folder, or put .txt "
               "files there.");
    }
    return out;
  }
  std::vector<std::string> notices() {
    if (bad_ > kMaxNotices) notices_.push_back(str("left out: and ", bad_ - kMaxNotices, " more files."));
    return notices_;
  }

 private:
  const bool skip_bad_;
  size_t bad_ = 0;
  std::vector<std::string> notices_;
};

}  // namespace

std::optional<std::string> locate_text_folder(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_text_folder(const DatasetInfo& info, const OpenOptions& options) {
  const fs::path folder = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                     "there must be a folder with a folder per class");
  const std::string where = str("data text-folder '", io::one_line(folder.string()), "': ");
  const bool has_train = is_folder((folder / "train").string());
  const fs::path train_place = has_train ? folder / "train" : folder;
  const std::vector<std::string> classes = folders_in(train_place.string());
  TD_CHECK(classes.size() >= 2, where, "there must be two classes or more; got '",
           io::one_line(classes.at(0), 50), "' alone. Make a folder for each class.");
  for (const std::string& name : classes)
    TD_CHECK(io::is_utf8(name), where, "the name of a class's folder must be UTF-8; '",
             io::one_line(name, 50), "' is not. Rename it.");
  Reader reader(options.skip_bad);
  std::vector<LabelledText> train = reader.read(train_place, classes), test;
  for (const char* part : kTestParts) {
    const fs::path place = folder / part;
    if (!has_train || !is_folder(place.string())) continue;
    const std::vector<std::string> own = folders_in(place.string());
    TD_CHECK(own == classes, where, part,
             "/ must have the classes of train/; one of them is missing or new. Rename the folders.");
    test = reader.read(place, classes);
    break;
  }
  Splits splits =
      classified_splits(info, folder.string(), std::move(train), std::move(test), classes, options);
  const std::vector<std::string> notices = reader.notices();
  splits.notices.insert(splits.notices.begin(), notices.begin(), notices.end());
  return splits;
}

}  // namespace tandem::data
