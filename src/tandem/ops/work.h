// What an op costs, by its shapes: the one place that counts operations and bytes, for summaries of models and profiles.
#pragma once

#include <span>

#include "tandem/core/activity.h"
#include "tandem/ops/fused.h"

namespace tandem {

/// Floating-point operations: a multiplication and an addition for each term of a matrix product or convolution (gradients
/// of convolutions, too; padding counts), one for each addition of a bias, one for each element of anything else that
/// computes, nothing for what only moves data. Bytes: inputs that are read, each element once, and outputs.
Work work_of(const OpDef& op, const KernelArgs& args);
/// The same of a fused kernel: what lies between the ops is not moved.
Work work_of(std::span<const FusedProgram> programs, const KernelArgs& args);

}  // namespace tandem
