// Copying one strided block of device memory into another.
#pragma once

#include <cuda_runtime.h>

#include "tandem/core/dtype.h"

namespace tandem::cuda {

/// Strides count elements. The two blocks do not overlap.
void strided_copy(cudaStream_t stream, int rank, const int64_t* shape, DType dtype, const void* from,
                  const int64_t* from_strides, void* to, const int64_t* to_strides);

}  // namespace tandem::cuda
