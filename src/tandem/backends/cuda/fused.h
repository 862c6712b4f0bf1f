// Fused pointwise chains: CUDA C++ written from FusedPrograms and compiled at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/backends/cuda/device_state.h"
#include "tandem/ops/fused.h"

namespace tandem::cuda {

/// The source of one kernel, `fused`, that runs several programs, each on blocks of its own. Programs with the
/// same body share its code. The kernel takes one parameter, a row of 64-bit words; program p's words begin at
/// first_word: the number of elements, of blocks, whether all addresses allow wide loads, then the addresses of
/// the inputs and outputs.
struct FusedSource {
  struct Part {
    size_t first_word = 0;
    int64_t size = 0;
    int64_t per_block = 0;  // elements
    int inputs = 0, outputs = 0;
  };
  std::string text;
  std::vector<Part> parts;  // in the order of the programs
  size_t words = 0;
};
FusedSource write_fused_source(const std::vector<FusedProgram>& programs);

/// Compiles (or finds among those compiled before) the kernel of some programs.
std::unique_ptr<FusedKernel> compile_fused(DeviceState& state, const std::vector<FusedProgram>& programs);

}  // namespace tandem::cuda
