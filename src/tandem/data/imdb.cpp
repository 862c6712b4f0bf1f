// IMDB reviews (Maas et al. 2011): the folder aclImdb, with a file for each review in train/pos, train/neg, test/pos and
// test/neg, or the official archive. Reviews without a label (train/unsup) are not read.
#include <algorithm>
#include <filesystem>
#include <map>

#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"
#include "tandem/io/tar.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "aclImdb_v1.tar.gz";
constexpr int64_t kMaxBytes = int64_t{1} << 30;
const char* const kParts[] = {"train", "test"};
const char* const kClasses[] = {"neg", "pos"};

/// The folder itself, or the one that unpacking makes in it; "" where neither has the reviews.
std::string reviews_in(const std::string& folder) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "aclImdb"}) {
    bool has_all = true;
    for (const char* part : kParts)
      for (const char* cls : kClasses) has_all = has_all && is_folder((place / part / cls).string());
    if (has_all) return place.string();
  }
  return "";
}

std::string missing_in(const std::string& folder) {
  if (!reviews_in(folder).empty() || is_file((fs::path(folder) / kArchive).string())) return "";
  return str(kArchive, ", or train/ and test/ with pos/ and neg/ each,");
}

/// Line breaks are tags in the files.
std::string without_tags(std::string text) {
  static constexpr std::string_view kBreak = "<br />";
  for (size_t at = text.find(kBreak); at != std::string::npos; at = text.find(kBreak, at))
    text.replace(at, kBreak.size(), " ");
  return text;
}

/// The reviews of a part by class, each in the order of the files' names.
struct Reviews {
  std::vector<LabelledText> of[2];
  void add(int64_t label, std::string text, std::string name) {
    of[label].push_back({without_tags(std::move(text)), label, std::move(name)});
  }
  /// One of each class in turn: the first few are of both.
  std::vector<LabelledText> in_turn() {
    std::vector<LabelledText> out;
    for (size_t i = 0; i < std::max(of[0].size(), of[1].size()); ++i)
      for (std::vector<LabelledText>& reviews : of)
        if (i < reviews.size()) out.push_back(std::move(reviews[i]));
    return out;
  }
};

void read_folder(const std::string& folder, Reviews (&parts)[2]) {
  for (size_t part = 0; part < 2; ++part)
    for (int64_t cls = 0; cls < 2; ++cls) {
      const fs::path place = fs::path(folder) / kParts[part] / kClasses[cls];
      const std::vector<std::string> files = files_in(place.string(), {".txt"});
      TD_CHECK(!files.empty(), "data imdb '", io::one_line(place.string()),
               "': must hold reviews, as .txt files; it holds none. Unpack the archive again.");
      for (const std::string& file : files) {
        const std::string path = (place / file).string();
        parts[part].add(cls, read_text(path), "'" + io::one_line(path) + "'");
      }
    }
}

void read_archive(const std::string& path, Reviews (&parts)[2]) {
  const std::string where = str("read '", io::one_line(path), "': ");
  const std::vector<uint8_t> archive = io::read_maybe_gzip("read", path, kMaxBytes);
  std::map<std::string, std::span<const uint8_t>> files;  // by name, as a folder has them
  for (const io::TarEntry& entry : io::read_tar(where, archive)) files[entry.name] = entry.bytes;
  for (const auto& [name, bytes] : files)
    for (size_t part = 0; part < 2; ++part)
      for (int64_t cls = 0; cls < 2; ++cls)
        if (name.find(str(kParts[part], "/", kClasses[cls], "/")) != std::string::npos &&
            name.ends_with(".txt"))
          parts[part].add(cls,
                          checked_text(str(where, name, ": "),
                                       {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
                          str(name, " in '", io::one_line(path), "'"));
  for (size_t part = 0; part < 2; ++part)
    for (size_t cls = 0; cls < 2; ++cls)
      TD_CHECK(!parts[part].of[cls].empty(), where, "the archive must hold ", kParts[part], "/",
               kClasses[cls], "/*.txt; it holds none. Fetch it again.");
}

}  // namespace

std::optional<std::string> locate_imdb(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_imdb(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                       "its reviews or their archive must be in one folder");
  Reviews parts[2];
  if (const std::string reviews = reviews_in(place); !reviews.empty())
    read_folder(reviews, parts);
  else
    read_archive((fs::path(place) / kArchive).string(), parts);
  return classified_splits(info, place, parts[0].in_turn(), parts[1].in_turn(), {kClasses[0], kClasses[1]},
                           options);
}

}  // namespace tandem::data
