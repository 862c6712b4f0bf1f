// What a description may hold. Files come from anybody: what is larger is refused before it costs memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tandem/core/standard.h"

namespace tandem::zoo {

inline constexpr int64_t kMostText = 1 << 18;   // bytes of a file: config.json keeps its content
inline constexpr int64_t kMostLayers = 10'000;  // those of blocks included, each time that they are repeated
inline constexpr int kMostNested = 8;           // blocks within each other
inline constexpr int64_t kMostParameters = int64_t{1} << 31;  // of the model
inline constexpr int64_t kMostElements = int64_t{1} << 31;    // of one sample, on its way through the model
inline constexpr size_t kMostName = 64;                       // bytes
inline constexpr int kMostNameParts = 8;

/// Throws Error where a name is not made of letters, digits, _ and -, with dots between. An empty one is none.
void check_name(const std::string& name, const char* what);
/// Throws Error where a value could not be called so in any language.
void check_value_name(const std::string& name);

}  // namespace tandem::zoo
