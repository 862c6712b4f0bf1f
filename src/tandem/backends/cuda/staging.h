// Pinned staging: host bytes are copied into page-locked buffers, from which the GPU takes them while the host goes on.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "tandem/core/mutex.h"

namespace tandem::cuda {

class Staging {
 public:
  /// Queues a copy to the device. `from` may change as soon as this returns. The device must be current.
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  static constexpr size_t kBytes = size_t{4} << 20;  // of a buffer; longer copies go piece by piece
  struct Slot {
    void* memory = nullptr;  // lives as long as the process, like the device's state
    cudaEvent_t done = nullptr;
  };
  Mutex mutex_{LockOrder::staging};
  std::array<Slot, 4> slots_;
  size_t next_ = 0;
};

}  // namespace tandem::cuda
