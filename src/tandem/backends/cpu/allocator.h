// The CPU's caching allocators, one for each of its devices (see core/device.h).
#pragma once

#include <cstddef>

#include "tandem/core/backend.h"

namespace tandem::cpu {

inline constexpr int kDevices = 8;

/// 64-byte aligned; never null. Throws Error when the system has no more, or where there is no such device.
void* allocate(int device, size_t bytes);
void release(int device, void* data, size_t bytes) noexcept;
MemoryStats memory_stats(int device);
void reset_peak(int device);
/// Gives everything that is kept back to the system, but for the small blocks that other threads keep (at most 9 MB
/// each).
void empty_cache(int device);

/// `data` is in use until the event has passed: release() waits for it.
void hold_until(void* data, std::shared_ptr<const Event> event);

/// The bytes that this process may use: the machine's memory, or less where a control group says so.
size_t memory_limit();

}  // namespace tandem::cpu
