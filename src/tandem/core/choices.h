// Which implementation computes a heavy op where there are several, which round differently. A choice holds for the whole
// process, both engines and any number of threads: the bits of a run depend on the table of choices and on nothing else that
// happens. implementations.h is how kernels make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

enum class ChoiceMode : uint8_t {
  fixed,      ///< the one algorithm that does every shape
  heuristic,  ///< by rule: shape and type decide
  profile     ///< those that can are timed at the first call of a shape, and the fastest is kept
};
inline constexpr ChoiceMode kChoiceModes[] = {ChoiceMode::fixed, ChoiceMode::heuristic, ChoiceMode::profile};
const char* name(ChoiceMode mode);
/// Throws Error, in the name of the setting.
ChoiceMode parse_choice_mode(const std::string& text, const char* setting = "conv");

struct ConvolutionChoice {
  ChoiceMode mode = ChoiceMode::heuristic;
  size_t workspace = size_t{2} << 30;  ///< bytes that a GPU's algorithm may take beside its tensors
  /// profile: what was found is read from and added to a file, $TANDEM_CACHE/algorithms.tsv or
  /// ~/.cache/tandem/algorithms.tsv.
  bool keep = true;
};
/// How convolutions are computed from now on, in the whole process. Not while other threads compute.
void set_convolution_choice(const ConvolutionChoice& choice);
ConvolutionChoice convolution_choice();

struct MatmulChoice {
  ChoiceMode mode = ChoiceMode::heuristic;
  bool keep = true;  ///< as of a convolution
};
/// How matmul, linear and, on a GPU, recurrent sequences are computed from now on, likewise. Products inside other ops go by rule.
void set_matmul_choice(const MatmulChoice& choice);
MatmulChoice matmul_choice();

/// Whether f32 products of a GPU may round their factors to tf32 (10 bits of mantissa), from now on, likewise. Until it is
/// set: yes, unless the environment says TANDEM_TF32=0 when the first is computed.
void set_tf32(bool allowed);
bool tf32();

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
