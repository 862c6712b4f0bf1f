// What --limit takes of a run's samples: so many, drawn by chance with every class, the same in training and in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// What a limit takes of a set.
struct Limited {
  data::DatasetPtr set;               ///< all of it
  std::vector<int64_t> indices = {};  ///< of what is taken; empty: the set is taken whole
  int64_t classes = 0, of_classes = 0;
  bool is_drawn = false;

  /// The same samples of `from`, which has as many: the set, or the set augmented.
  data::DatasetPtr taken(const data::DatasetPtr& from) const;
  /// "100 of 4800 samples to train"
  std::string text(const char* part) const;
};

/// Draws by chance, with every class (data::draw_indices): data may lie in the order of its classes. The windows of a text
/// follow each other, so that its first ones are taken.
Limited limited_to(data::DatasetPtr set, std::optional<int64_t> limit, const std::string& task,
                   uint64_t seed);

/// What was taken of all parts, as a line; empty where that is everything. `notices` gets the classes that are left out.
std::string taken_text(const std::vector<std::pair<const char*, const Limited*>>& parts, uint64_t seed,
                       std::vector<std::string>& notices);

}  // namespace tandem
