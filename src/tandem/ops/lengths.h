// True lengths of sequences that are padded to one size, for functions that take them.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// lengths i64 (batch) -> bool (batch, steps): whether a step lies within the length of its sample. A length below `least`, 0
/// or 1, or above `steps` is refused: in the name of `op` where its value can be read here, else when the graph or the device
/// comes to it, as "lengths: every length must be from …".
Tensor within_lengths(const char* op, const Tensor& lengths, Dim batch, Dim steps, Dim least);

}  // namespace tandem
