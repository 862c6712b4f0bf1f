// Streams and events of the GPU, and pinned host memory.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "tandem/core/backend.h"

namespace tandem::cuda {

struct DeviceState;

std::unique_ptr<Stream> make_stream(DeviceState& state);
/// The present end of a queue. The device must be current.
std::shared_ptr<const Event> mark(cudaStream_t stream);
/// What is queued in `stream` from now on runs behind the event, which is one of mark()'s.
void queue_behind(cudaStream_t stream, const Event& event);

/// Page-locked host memory, which is kept for later once freed.
void* allocate_pinned(size_t bytes);
void free_pinned(void* data, size_t bytes) noexcept;

}  // namespace tandem::cuda
