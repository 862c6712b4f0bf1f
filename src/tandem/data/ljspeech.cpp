// Reading LJSpeech.
#include "tandem/data/ljspeech.h"

#include <filesystem>

#include "tandem/core/error.h"
#include "tandem/data/places.h"
#include "tandem/data/text.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

/// The folder itself, or the one that unpacking makes in it; "" where neither has the files.
std::string speech_in(const std::string& folder) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "LJSpeech-1.1"})
    if (is_file((place / "metadata.csv").string()) && is_folder((place / "wavs").string()))
      return place.string();
  return "";
}

std::string missing_in(const std::string& folder) {
  return speech_in(folder).empty() ? "metadata.csv, or wavs/ beside it," : "";
}

}  // namespace

std::vector<Utterance> read_ljspeech(const std::string& folder) {
  const std::string list = (fs::path(folder) / "metadata.csv").string();
  const std::string text = read_text(list);
  std::vector<Utterance> out;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    // Quotation marks are part of the texts: they do not protect anything.
    const size_t first = line.find('|'), last = line.rfind('|');
    const std::string where = str("read '", io::one_line(list), "': line ", number, " ");
    TD_CHECK(first != std::string::npos && first > 0 && last + 1 < line.size(), where,
             "must be ID|text|text in words; got '", io::one_line(line, 60), "'. Fetch the file again.");
    const std::string name = line.substr(0, first),
                      path = (fs::path(folder) / "wavs" / (name + ".wav")).string();
    TD_CHECK(name.find('/') == std::string::npos && is_file(path), where, "names '", io::one_line(name, 60),
             "', and there must be wavs/ID.wav for it; there is none. Unpack the archive again.");
    out.push_back({path, line.substr(last + 1)});
  }
  TD_CHECK(!out.empty(), "read '", io::one_line(list),
           "': must have a line for each utterance; it has none. Fetch the file again.");
  return out;
}

std::optional<std::string> locate_ljspeech(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_ljspeech(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                       "metadata.csv and wavs/ must be in one folder");
  return speech_splits(info, place, {read_ljspeech(speech_in(place))}, options);
}

}  // namespace tandem::data
