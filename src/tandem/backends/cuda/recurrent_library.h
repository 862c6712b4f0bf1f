// cuDNN's recurrent layers in the list of implementations of `recurrent`, which takes the products of the inputs: there they are rows
// that say where they are to be had instead.
#pragma once

#include <vector>

#include "tandem/core/candidates.h"
#include "tandem/ops/recurrent.h"

namespace tandem::cuda {

/// One row for each of cuDNN's algorithms (recurrent_cudnn.cpp), with the reason why `recurrent` does without it.
void add_library_rows(const RecurrentAttrs& attributes, std::vector<Candidate>& rows);

}  // namespace tandem::cuda
