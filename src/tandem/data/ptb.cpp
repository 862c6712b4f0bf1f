// Penn Treebank as Mikolov prepared it: ptb.train.txt, ptb.valid.txt and ptb.test.txt, a sentence a line, words apart by
// spaces, rare ones written <unk>.
#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/text_splits.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

/// Of a part, in the folder or where the original archive has it; "" where it is in neither.
std::string file_of(const std::string& folder, const char* part) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "simple-examples" / "data"})
    if (const std::string path = (place / str("ptb.", part, ".txt")).string(); is_file(path)) return path;
  return "";
}

std::string missing_in(const std::string& folder) {
  for (const char* part : {"train", "valid", "test"})
    if (file_of(folder, part).empty()) return str("ptb.", part, ".txt");
  return "";
}

}  // namespace

std::optional<std::string> locate_ptb(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in);
}

Splits open_ptb(const DatasetInfo& info, const OpenOptions& options) {
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_in,
                                        "its three files must be in one folder");
  const auto part = [&](const char* name) { return read_text(file_of(folder, name)); };
  return language_splits(info, folder, {part("train"), part("valid"), part("test")}, Tokens::spaces, options);
}

}  // namespace tandem::data
