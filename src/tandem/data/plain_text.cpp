// Plain text of the user's own for language modelling: a file, or a folder of .txt files.
#include <algorithm>
#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& endings() {
  static const auto& list = *new std::vector<std::string>{".txt", ".tokens"};
  return list;
}

std::string missing_in(const std::string& place) {
  return is_file(place) || !files_in(place, endings()).empty() ? "" : "a .txt file";
}

}  // namespace

std::optional<std::string> locate_text(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_text(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                       "there must be a text file, or a folder with .txt files");
  if (is_file(place)) return language_splits(info, place, {read_text(place)}, Tokens::words, options);
  const std::vector<std::string> files = files_in(place, endings());
  const bool has_parts =
      std::any_of(files.begin(), files.end(), [](const std::string& f) { return part_of(f) == "train"; });
  LongText text;
  std::string left_out;
  for (const std::string& file : files) {
    const std::string part = has_parts ? part_of(file) : "train";
    if (part.empty()) {
      left_out += (left_out.empty() ? "" : ", ") + io::one_line(file, 60);
      continue;
    }
    std::string& to = part == "train" ? text.train : part == "valid" ? text.valid : text.test;
    if (!to.empty()) to += "\n\n";  // a file ends a sentence
    to += read_text((fs::path(place) / file).string());
  }
  Splits splits = language_splits(info, place, std::move(text), Tokens::words, options);
  if (!left_out.empty())
    splits.notices.push_back(
        str("left out, as their names do not say train, valid or test: ", left_out, "."));
  return splits;
}

}  // namespace tandem::data
