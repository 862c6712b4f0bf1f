// Sentences and their translations of Many Things (Tatoeba), English first: a zip archive such as spa-eng.zip, or the .txt file in
// it. As DLBench (003) does, 80,000 pairs are to train on and 20,000 to test; which ones is drawn once and for all.
#include <algorithm>
#include <filesystem>

#include "tandem/data/loader.h"
#include "tandem/data/pairs.h"
#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/zip.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTrain = 80000, kTest = 20000;
constexpr uint64_t kOrderSeed = 3;  // of shuffled_order: which pairs are for what

const char* const kAbout = "_about.txt";  // in every archive, about the site

bool is_zip(const std::string& path) { return path.ends_with(".zip"); }

/// The archives and texts of a folder, or the file itself.
std::vector<std::string> files_of(const std::string& place) {
  if (is_file(place)) return {place};
  std::vector<std::string> paths;
  for (const std::string& file : files_in(place, {".zip", ".txt", ".tsv"}))
    if (file != kAbout && file.find("-about") == std::string::npos)
      paths.push_back((fs::path(place) / file).string());
  return paths;
}

/// The archive, where its text lies unpacked beside it, is not a second one.
std::string file_of(const std::string& place) {
  const std::vector<std::string> paths = files_of(place);
  if (paths.size() <= 1) return paths.empty() ? "" : paths[0];
  std::vector<std::string> texts;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(texts),
               [](const std::string& p) { return !is_zip(p); });
  return texts.size() == 1 && paths.size() == 2 ? texts[0] : "";
}

std::string missing_in(const std::string& place) {
  if (!file_of(place).empty()) return "";
  return files_of(place).empty() ? "an archive such as spa-eng.zip, or its .txt file"
                                 : "one archive or .txt file alone";
}

std::string text_in_archive(const std::string& path) {
  const std::string where = str("read '", io::one_line(path), "': ");
  const io::ZipReader archive("read", path);
  std::vector<const io::ZipReader::Entry*> texts;
  for (const io::ZipReader::Entry& entry : archive.entries()) {
    const std::string file = fs::path(entry.name).filename().string();
    if (file.ends_with(".txt") && file != kAbout && !file.starts_with("._")) texts.push_back(&entry);
  }
  TD_CHECK(texts.size() == 1, where, "the archive must hold one .txt file of pairs besides ", kAbout,
           "; it holds ", texts.size(), ". Give an archive of Many Things, or its .txt file.");
  const std::vector<uint8_t> bytes = archive.read(*texts[0]);
  return checked_text(str(where, io::one_line(texts[0]->name, 60), ": "),
                      {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::optional<std::string> locate_manythings(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_manythings(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                       "its archive or its .txt file must be in one folder");
  const std::string path = file_of(place);
  const std::vector<TextPair> all = tabbed_pairs(is_zip(path) ? text_in_archive(path) : read_text(path),
                                                 str("read '", io::one_line(path), "': "));
  TD_CHECK(all.size() >= 2, "data manythings '", io::one_line(path),
           "': there must be two pairs or more; got ", all.size(), ". Give the whole file.");
  // Of fewer pairs, the same share.
  const size_t test = std::max<size_t>(std::min(kTest, all.size() / 5), 1),
               train = std::min(kTrain, all.size() - test);
  const std::vector<int64_t> order = shuffled_order(static_cast<int64_t>(all.size()), kOrderSeed, 0);
  PairParts parts;
  for (size_t k = 0; k < train + test; ++k)
    (k < train ? parts.train : parts.test).push_back(all[static_cast<size_t>(order[k])]);
  return translation_splits(info, place, std::move(parts), options);
}

}  // namespace tandem::data
