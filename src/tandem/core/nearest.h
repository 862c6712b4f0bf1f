// What somebody probably meant who wrote a name that nobody knows.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// The one of `names` that `word` was probably meant to be: "lenet" for "lenett". Empty: none is near.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names);

/// The same as the last sentence of a message, with the space before it: " Did you mean lenet?". Empty: none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names);

}  // namespace tandem
