// Which algorithm a kernel takes where it has several, which round differently. A choice holds for the whole process, both
// engines and any number of threads: the bits of a run depend on the table of choices and on nothing else that happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class ChoiceMode : uint8_t {
  fixed,      ///< the one algorithm that does every shape
  heuristic,  ///< by rule: shape and type decide
  profile     ///< those that can are timed at the first call of a shape, and the fastest is kept
};
inline constexpr ChoiceMode kChoiceModes[] = {ChoiceMode::fixed, ChoiceMode::heuristic, ChoiceMode::profile};
const char* name(ChoiceMode mode);
ChoiceMode parse_choice_mode(const std::string& text);  ///< throws Error

struct ConvolutionChoice {
  ChoiceMode mode = ChoiceMode::heuristic;
  size_t workspace = size_t{256} << 20;  ///< bytes that a GPU's algorithm may take beside its tensors
  /// profile: what was found is read from and added to a file, $TANDEM_CACHE/algorithms.tsv or
  /// ~/.cache/tandem/algorithms.tsv.
  bool keep = true;
};
/// How convolutions are computed from now on, in the whole process. Not while other threads compute.
void set_convolution_choice(const ConvolutionChoice& choice);
ConvolutionChoice convolution_choice();

/// One line of the table: what was fastest, and its time.
struct Choice {
  std::string key;  ///< all that the times depend on: the operation, its sizes, type, device, versions
  std::string algorithm;
  double microseconds = 0;
};
/// The choices that this process took or made in mode profile, by key: what a checkpoint holds.
std::vector<Choice> choices_made();
/// Puts choices of a checkpoint before those of the file and before new ones.
void take_choices(const std::vector<Choice>& choices);

}  // namespace tandem
