// How this process computes, apart from what it computes: what a run carries, and what is set while the run goes.
#pragma once

#include <cstdint>
#include <optional>

#include "tandem/core/choices.h"

namespace tandem {

/// What is unset stays as the process has it (set_threads, set_tf32, set_convolution_choice, set_matmul_choice).
struct Machine {
  std::optional<int64_t> threads = {};         ///< on the CPU; at the start of a process: its cores
  std::optional<bool> tf32 = {};               ///< f32 products of a GPU round their factors to tf32
  std::optional<ChoiceMode> conv = {};         ///< how convolutions choose their algorithm
  std::optional<int64_t> conv_workspace = {};  ///< bytes that a GPU's algorithm of a convolution may take
  std::optional<ChoiceMode> matmul = {};       ///< how matrix products choose theirs
};

/// Throws Error for the first that cannot be.
void check(const Machine& machine);

/// Computes as a Machine says until it goes; then the process is as it was before. For the whole process: not while other
/// threads compute.
class MachineScope {
 public:
  explicit MachineScope(const Machine& machine);
  ~MachineScope();
  MachineScope(const MachineScope&) = delete;
  MachineScope& operator=(const MachineScope&) = delete;

 private:
  static void apply(const Machine& machine);
  Machine before_;
};

}  // namespace tandem
