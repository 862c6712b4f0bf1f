// A stable sort of (64-bit key, 32-bit value) pairs: the one radix sort that argsort and the scatters share, since each
// kind of pair costs minutes of compile time.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

/// Two buffers a kind; the first one holds the pairs before and after.
struct SortBuffers {
  uint64_t *keys, *other_keys;
  uint32_t *values, *other_values;
  void* temporary;
  size_t temporary_bytes;
  char* rest;  // what follows in the workspace
};

/// The bytes of workspace that n pairs and `rest` more bytes need, and their layout in it.
size_t sort_workspace(int64_t n, size_t rest);
SortBuffers sort_buffers(void* workspace, int64_t n);
/// By the lowest `bits` bits of the keys.
void sort_pairs(cudaStream_t stream, SortBuffers& buffers, int64_t n, int bits);

/// An index tensor of i64 or i32.
struct Indices {
  const void* data;
  bool wide;
  __device__ long long operator[](int64_t i) const {
    return wide ? static_cast<const long long*>(data)[i] : static_cast<const int*>(data)[i];
  }
};

}  // namespace tandem::cuda
