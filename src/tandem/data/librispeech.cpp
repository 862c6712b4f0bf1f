// LibriSpeech (Panayotov et al. 2015): books read aloud, at 16 kHz. Parts are folders, such as train-clean-100, dev-clean and test-clean, in which
// SPEAKER/CHAPTER/ID.flac is the sound and SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt has a line for each, "ID TEXT".
#include <algorithm>
#include <filesystem>

#include "tandem/core/error.h"
#include "tandem/data/places.h"
#include "tandem/data/speech_set.h"
#include "tandem/data/text.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

bool is_part(const std::string& name) {
  return name.starts_with("train-") || name.starts_with("dev-") || name.starts_with("test-");
}

/// The folder itself, or the one that unpacking makes in it; "" where neither has a part.
std::string parts_in(const std::string& folder) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "LibriSpeech"}) {
    const std::vector<std::string> names = folders_in(place.string());
    if (std::any_of(names.begin(), names.end(), is_part)) return place.string();
  }
  return "";
}

std::string missing_in(const std::string& folder) {
  return parts_in(folder).empty() ? "a part such as train-clean-100, dev-clean or test-clean" : "";
}

void read_chapter(const fs::path& folder, std::vector<Utterance>& out) {
  for (const std::string& list : files_in(folder.string(), {".trans.txt"})) {
    const std::string path = (folder / list).string(), text = read_text(path);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      at = end + 1;
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      const size_t space = line.find(' ');
      const std::string name = line.substr(0, space);
      TD_CHECK(space != std::string::npos && space + 1 < line.size() && name.find('/') == std::string::npos,
               "read '", io::one_line(path), "': a line must be ID TEXT; got '", io::one_line(line, 60),
               "'. Fetch the file again.");
      std::string sound;
      for (const char* ending : {".flac", ".wav"})
        if (const std::string file = (folder / (name + ending)).string(); sound.empty() && is_file(file))
          sound = file;
      TD_CHECK(!sound.empty(), "read '", io::one_line(path),
               "': there must be a file of sound for each line; '", io::one_line(name, 60),
               ".flac' is not there. Unpack the archive again.");
      out.push_back({sound, line.substr(space + 1)});
    }
  }
}

std::vector<Utterance> read_part(const fs::path& part) {
  std::vector<Utterance> out;
  for (const std::string& speaker : folders_in(part.string()))
    for (const std::string& chapter : folders_in((part / speaker).string()))
      read_chapter(part / speaker / chapter, out);
  TD_CHECK(!out.empty(), "data librispeech '", io::one_line(part.string()),
           "': must hold SPEAKER/CHAPTER/*.trans.txt with the texts of utterances; it holds none. Unpack the "
           "archive again.");
  return out;
}

}  // namespace

std::optional<std::string> locate_librispeech(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

// All parts for training are taken, and of the others the clean one where both are there.
Splits open_librispeech(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                       "a part of it must be in one folder");
  const fs::path root = parts_in(place);
  const std::vector<std::string> names = folders_in(root.string());
  SpeechParts parts;
  std::string taken;
  const auto take = [&](const std::string& name, std::vector<Utterance>& to) {
    std::vector<Utterance> part = read_part(root / name);
    to.insert(to.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
    taken += (taken.empty() ? "" : ", ") + name;
  };
  const auto take_one = [&](const std::string& begin, std::vector<Utterance>& to) {
    for (const char* kind : {"clean", "other"})
      if (to.empty() && std::find(names.begin(), names.end(), begin + kind) != names.end())
        take(begin + kind, to);
  };
  for (const std::string& name : names)
    if (name.starts_with("train-")) take(name, parts.train);
  if (parts.train.empty()) {  // a piece of it, to try things out: all that is there
    for (const std::string& name : names)
      if (is_part(name)) take(name, parts.train);
  } else {
    take_one("dev-", parts.valid);
    take_one("test-", parts.test);
    if (parts.test.empty()) std::swap(parts.test, parts.valid);
  }
  Splits splits = speech_splits(info, place, std::move(parts), options);
  splits.notices.push_back(str("parts: ", taken, "."));
  return splits;
}

}  // namespace tandem::data
