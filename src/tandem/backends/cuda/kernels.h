// The families of CUDA kernels. Each defines `void register_NAME_kernels()`, which fills in the CUDA rows of its ops; the build
// lists them (cmake/list_functions.cmake).
#pragma once

namespace tandem::cuda {

#define TD_LISTED(family) void family();
#include "lists/cuda_kernels.inc"
#undef TD_LISTED

}  // namespace tandem::cuda
