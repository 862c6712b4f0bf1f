// A fused program: several pointwise ops that run as one kernel, element by element. Every step rounds its
// result to its dtype, exactly as the separate ops would, through the same functors: the bits are the same.
#pragma once

#include <vector>

#include "tandem/core/op.h"

namespace tandem {

/// Registers 0 … inputs-1 hold the inputs; step s writes register inputs + s. All outputs have the program's
/// shape, row-major (or, for an output that an assign writes, the strides of its target, which equal
/// row-major).
struct FusedProgram {
  struct Step {
    const OpDef* op = nullptr;
    Attrs attrs;
    SmallVector<int, 3> in;    // registers
    DType dtype = DType::f32;  // of the result
  };
  struct Input {
    DType dtype = DType::f32;
    Dims strides;  // over `shape`; 0 where broadcast
  };
  Dims shape;
  std::vector<Input> inputs;
  std::vector<Step> steps;
  std::vector<int> outputs;  // registers (of steps) that are written to memory, in order
};

}  // namespace tandem
