#include "tandem/backends/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "tandem/backends/cuda/check.h"

namespace tandem::cuda {

void Staging::copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < bytes; at += kBytes) {
    const size_t piece = std::min(kBytes, bytes - at);
    Slot& slot = slots_[next_++ % slots_.size()];
    if (!slot.memory) {
      check(cudaHostAlloc(&slot.memory, kBytes, cudaHostAllocDefault), "cudaHostAlloc");
      check(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "cudaEventCreate");
    } else {
      check(cudaEventSynchronize(slot.done), "cudaEventSynchronize");  // its last copy has left
    }
    std::memcpy(slot.memory, static_cast<const char*>(from) + at, piece);
    check(cudaMemcpyAsync(static_cast<char*>(to) + at, slot.memory, piece, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to device");
    check(cudaEventRecord(slot.done, stream), "cudaEventRecord");
  }
}

}  // namespace tandem::cuda
