// Numbers of a model that a user may set by their names: ModelOptions::settings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::zoo {

/// A whole number from `least` to `most`, or a probability of at least 0 and below 1: one of the two is there.
struct NamedNumber {
  const char* name;
  int64_t* whole;
  double* probability = nullptr;
  int64_t least = 1, most = 65536;
};

/// Sets what is given. Throws Error for an unknown name, with the list and the nearest one, and for a number that cannot be.
void set_by_name(const char* model, std::span<const std::pair<std::string, double>> given,
                 const std::vector<NamedNumber>& known);

}  // namespace tandem::zoo
