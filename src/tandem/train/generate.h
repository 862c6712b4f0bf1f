// How a language model goes on with a text: a word at a time, each chosen from what the model expects next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem {

enum class Engine : uint8_t;

struct GenerateOptions {
  int64_t count = 20;               ///< tokens
  double temperature = 0;           ///< 0: always the most probable; 1: as the model expects; more: bolder
  uint64_t seed = 0;                ///< of the choices; the same seed gives the same text
  std::vector<int64_t> never = {};  ///< tokens that are not chosen: padding, unknown
};
/// Throws Error for a count below 1, or a temperature that is negative or no number.
void check(const GenerateOptions& options);

/// The tokens that follow `begin`, which must be one or more. `model` takes tokens i64 (n, length) and its states
/// (nn/stateful.h), and gives (n, length, tokens). It is run in evaluation mode. Ties go to the smaller number.
std::vector<int64_t> generate(nn::Module& model, std::span<const int64_t> begin,
                              const GenerateOptions& options, Engine engine);

}  // namespace tandem
