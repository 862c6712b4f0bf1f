// The CPU's caching allocator: blocks are kept by size class when freed, since a training step asks for the same sizes
// again and again and fresh pages from the system cost more than the arithmetic on them. What is kept is bounded: see
// allowed() in the source file.
#pragma once

#include <cstddef>

#include "tandem/core/backend.h"

namespace tandem::cpu {

/// 64-byte aligned; never null. Throws Error when the system has no more.
void* allocate(size_t bytes);
void release(void* data, size_t bytes) noexcept;
MemoryStats memory_stats();
void reset_peak();
/// Gives everything that is kept back to the system, but for the small blocks that other threads keep (at most 9 MB
/// each).
void empty_cache();

/// The bytes that this process may use: the machine's memory, or less where a control group says so.
size_t memory_limit();

}  // namespace tandem::cpu
