// Every status that CUDA and its libraries return is checked here: a failure becomes an Error that names the
// call and the reason.
#pragma once

#include <cuda_runtime.h>

#include "tandem/core/error.h"

namespace tandem::cuda {

[[noreturn]] inline void fail(bool is_out_of_memory, const std::string& what) {
  if (is_out_of_memory) throw OutOfMemory(what);
  throw Error(what, ErrorKind::device);
}

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status == cudaErrorMemoryAllocation,
         str("cuda: ", call, " failed: ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")."));
}

/// After a kernel launch: was it accepted?
inline void launched(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace tandem::cuda
