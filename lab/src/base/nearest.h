// What somebody probably meant who wrote a name that nobody knows.
#pragma once

#include <string>
#include <vector>

#include "tandem/zoo/layer_types.h"

namespace tandem::lab {

/// "lenet" for "lenett"; "" where none of the names is near.
inline std::string nearest_name(const std::string& word, const std::vector<std::string>& names) {
  return zoo::nearest(word, names);
}

/// The same as a sentence: "Did you mean lenet?".
inline std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return near.empty() ? "" : "Did you mean " + near + "?";
}

}  // namespace tandem::lab
