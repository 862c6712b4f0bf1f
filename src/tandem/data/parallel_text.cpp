// Parallel text of the user's own: two files with as many lines each, such as train.en and train.de, or one file of pairs with a tab
// between. Files may be gzip (.gz).
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "tandem/data/pairs.h"
#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

/// train.en.gz: stem "train", language "en".
struct Named {
  std::string stem, language, file;
};
std::optional<Named> named(const std::string& file) {
  const std::string plain = file.ends_with(".gz") ? file.substr(0, file.size() - 3) : file;
  const size_t dot = plain.rfind('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == plain.size()) return {};
  const std::string language = plain.substr(dot + 1);
  if (language == "txt" || language == "md" || language == "zip" || language == "json") return {};
  return Named{plain.substr(0, dot), language, file};
}

/// The stems of a folder that have files of exactly two languages, by language.
using Stems = std::map<std::string, std::map<std::string, std::string>>;
Stems stems_of(const std::string& folder) {
  Stems all, pairs;
  for (const std::string& file : files_in(folder, {""}))
    if (const std::optional<Named> name = named(file)) all[name->stem].emplace(name->language, file);
  for (const auto& [stem, files] : all)
    if (files.size() == 2) pairs[stem] = files;
  return pairs;
}

std::string missing_in(const std::string& place) {
  if (is_file(place) || !stems_of(place).empty()) return "";
  return "two files of lines whose names differ in the ending, such as train.en and train.de";
}

/// The two languages that all files have, that to translate from first.
std::array<std::string, 2> languages_of(const Stems& stems, const std::string& source,
                                        const std::string& where) {
  std::set<std::string> languages;
  for (const auto& [stem, files] : stems)
    for (const auto& [language, file] : files) languages.insert(language);
  std::string listed;
  for (const std::string& language : languages)
    listed += (listed.empty() ? "" : ", ") + io::one_line(language, 20);
  TD_CHECK(languages.size() == 2, where, "the files must be of two languages, by their endings; got ", listed,
           ". Leave files of two endings in the folder.");
  const std::string first = source.empty() ? *languages.begin() : source;
  TD_CHECK(languages.contains(first), where, "source: must be one of ", listed,
           ", the endings of the files; got '", io::one_line(first, 60), "'.");
  return {first, first == *languages.begin() ? *languages.rbegin() : *languages.begin()};
}

std::vector<TextPair> pairs_of(const std::string& folder, const std::map<std::string, std::string>& files,
                               const std::array<std::string, 2>& languages, const std::string& where) {
  std::vector<std::string> lines[2];
  std::string names[2];
  for (size_t side = 0; side < 2; ++side) {
    names[side] = files.at(languages[side]);
    lines[side] = lines_of(read_text((fs::path(folder) / names[side]).string()));
  }
  TD_CHECK(lines[0].size() == lines[1].size(), where,
           "both files must have as many lines: line k of one is "
           "the translation of line k of the other; ",
           io::one_line(names[0], 60), " has ", lines[0].size(), " and ", io::one_line(names[1], 60), " has ",
           lines[1].size(), ". Give files that belong together.");
  std::vector<TextPair> pairs;
  for (size_t i = 0; i < lines[0].size(); ++i)
    pairs.push_back({std::move(lines[0][i]), std::move(lines[1][i])});
  return pairs;
}

void append(std::vector<TextPair>& to, std::vector<TextPair> pairs) {
  std::move(pairs.begin(), pairs.end(), std::back_inserter(to));
}

}  // namespace

std::optional<std::string> locate_parallel_text(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_parallel_text(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place =
      require_in(info, search_folders(info.name, options.data_dir), missing_in,
                 "there must be two files of lines, or one file of pairs with a tab between");
  const std::string where = str("data ", info.name, " '", io::one_line(place), "': ");
  PairParts parts;
  if (is_file(place)) {
    TD_CHECK(options.text.source.empty(), where,
             "source: is for two files; one file of pairs has what is translated first. Leave `source` out.");
    parts.train = tabbed_pairs(read_text(place), str("read '", io::one_line(place), "': "));
    return translation_splits(info, place, std::move(parts), options);
  }
  const Stems stems = stems_of(place);
  const std::array<std::string, 2> languages = languages_of(stems, options.text.source, where);
  const bool has_parts =
      std::any_of(stems.begin(), stems.end(), [](const auto& row) { return part_of(row.first) == "train"; });
  std::string left_out;
  for (const auto& [stem, files] : stems) {
    const std::string part = has_parts ? part_of(stem) : "train";
    if (part.empty()) {
      left_out += (left_out.empty() ? "" : ", ") + io::one_line(stem, 60);
      continue;
    }
    append(part == "train"   ? parts.train
           : part == "valid" ? parts.valid
                             : parts.test,
           pairs_of(place, files, languages, where));
  }
  Splits splits = translation_splits(info, place, std::move(parts), options);
  splits.notices.push_back(
      str("translates ", io::one_line(languages[0], 20), " to ", io::one_line(languages[1], 20),
          options.text.source.empty()
              ? str("; `source` ", io::one_line(languages[1], 20), " is the other way round.")
              : "."));
  if (!left_out.empty())
    splits.notices.push_back(
        str("left out, as their names do not say train, valid or test: ", left_out, "."));
  return splits;
}

}  // namespace tandem::data
