// Fused pointwise chains on CPU: every step runs on a tile of elements that stays in cache.
#pragma once

#include <memory>

#include "tandem/core/backend.h"
#include "tandem/ops/fused.h"

namespace tandem::cpu {

std::unique_ptr<FusedKernel> compile_fused(const std::vector<FusedProgram>& programs);

}  // namespace tandem::cpu
