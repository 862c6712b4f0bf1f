// What the readers of text have in common: from texts to sets of samples.
#pragma once

#include <string>
#include <vector>

#include "tandem/data/registry.h"

namespace tandem::data {

struct LabelledText {
  std::string text;
  int64_t label = 0;
  std::string name;  ///< what messages call it: its file
};

/// Sets of classified texts. Where there are none for testing, some are split off, each class in equal shares. `place` is
/// where they were read from.
Splits classified_splits(const DatasetInfo& info, const std::string& place, std::vector<LabelledText> train,
                         std::vector<LabelledText> test, std::vector<std::string> classes,
                         const OpenOptions& options);

/// A long text for language modelling, and its parts for validation and testing, empty where there are none. Without a part for
/// testing, one piece of the text is taken out for it, at a place that the seed draws.
struct LongText {
  std::string train, valid = {}, test = {};
};
/// `usual`: how the text is cut, where the user does not say it.
Splits language_splits(const DatasetInfo& info, const std::string& place, LongText text, Tokens usual,
                       const OpenOptions& options);

/// What the user left open of text, as the model usually has it.
OpenOptions with_usual(OpenOptions options);
/// "train", "valid" or "test", where a file's name has such a part: train.txt, wiki.valid.tokens; else "".
std::string part_of(const std::string& file);

/// The names of folders or files in a folder, sorted, without those that begin with a dot; empty where it cannot be read.
std::vector<std::string> folders_in(const std::string& folder);
std::vector<std::string> files_in(const std::string& folder, const std::vector<std::string>& endings);
bool is_file(const std::string& path);
bool is_folder(const std::string& path);

}  // namespace tandem::data
