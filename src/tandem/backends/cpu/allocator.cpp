#include "tandem/backends/cpu/allocator.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::cpu {

namespace {

constexpr size_t kAlignment = 64;
constexpr int kSmallClasses = 64;                 // multiples of 64 bytes up to 4 KiB, kept by each thread
constexpr int kClasses = kSmallClasses + 4 * 52;  // then four steps to a power of two
constexpr size_t kKeptByThread = 64;              // blocks a thread keeps of one small class

struct SizeClass {
  int index;
  size_t bytes;
};

SizeClass size_class(size_t bytes) {
  if (bytes == 0) bytes = 1;
  if (bytes <= kSmallClasses * kAlignment) {
    const size_t units = (bytes + kAlignment - 1) / kAlignment;
    return {static_cast<int>(units) - 1, units * kAlignment};
  }
  const int power = std::bit_width(bytes - 1) - 1;  // 2^power < bytes <= 2^(power+1), or bytes == 2^power + …
  const size_t step = (size_t{1} << power) / 4;
  const size_t steps = (bytes - (size_t{1} << power) + step - 1) / step;  // 1 … 4
  return {kSmallClasses + 4 * (power - 12) + static_cast<int>(steps) - 1,
          (size_t{1} << power) + steps * step};
}

struct Counters {
  std::atomic<size_t> in_use{0}, peak{0}, reserved{0};
};
Counters g_counters;

/// Blocks shared by all threads. Never destroyed: tensors in static storage may outlive everything.
struct Shared {
  std::mutex mutex;
  std::vector<void*> blocks[kClasses];
};
Shared& shared() {
  static Shared* pool = new Shared;
  return *pool;
}

struct ThreadCache {
  std::vector<void*> blocks[kSmallClasses];
  ~ThreadCache() {
    Shared& pool = shared();
    std::lock_guard lock(pool.mutex);
    for (int i = 0; i < kSmallClasses; ++i)
      pool.blocks[i].insert(pool.blocks[i].end(), blocks[i].begin(), blocks[i].end());
    alive() = false;
  }
  /// False once this thread's cache is gone: blocks freed later in the thread's exit go to the shared pool.
  static bool& alive() {
    thread_local bool flag = true;
    return flag;
  }
};
ThreadCache* thread_cache() {
  if (!ThreadCache::alive()) return nullptr;
  thread_local ThreadCache cache;
  return &cache;
}

/// Gives every cached block of the shared pool back to the system.
void trim() {
  Shared& pool = shared();
  std::lock_guard lock(pool.mutex);
  for (auto& list : pool.blocks) {
    for (void* block : list) std::free(block);
    list.clear();
  }
}

void* from_system(size_t bytes) {
  void* data = std::aligned_alloc(kAlignment, bytes);
  if (!data) {
    trim();
    data = std::aligned_alloc(kAlignment, bytes);
  }
  if (!data)
    throw OutOfMemory(cat("memory: the system must have ", bytes, " bytes more; it has not (",
                          g_counters.in_use.load(),
                          " bytes are in use by tensors). Use a smaller batch or model."));
  g_counters.reserved.fetch_add(bytes, std::memory_order_relaxed);
  return data;
}

}  // namespace

void* allocate(size_t bytes) {
  if (bytes >= size_t{1} << 62)
    throw OutOfMemory(cat("memory: an allocation must be under 2^62 bytes; got ", bytes, "."));
  const SizeClass c = size_class(bytes);
  void* data = nullptr;
  ThreadCache* cache = c.index < kSmallClasses ? thread_cache() : nullptr;
  if (cache && !cache->blocks[c.index].empty()) {
    data = cache->blocks[c.index].back();
    cache->blocks[c.index].pop_back();
  } else {
    Shared& pool = shared();
    std::lock_guard lock(pool.mutex);
    auto& list = pool.blocks[c.index];
    if (!list.empty()) {
      data = list.back();
      list.pop_back();
    }
  }
  if (!data) data = from_system(c.bytes);
  const size_t now = g_counters.in_use.fetch_add(c.bytes, std::memory_order_relaxed) + c.bytes;
  size_t peak = g_counters.peak.load(std::memory_order_relaxed);
  while (now > peak && !g_counters.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return data;
}

void release(void* data, size_t bytes) noexcept {
  if (!data) return;
  const SizeClass c = size_class(bytes);
  g_counters.in_use.fetch_sub(c.bytes, std::memory_order_relaxed);
  ThreadCache* cache = c.index < kSmallClasses ? thread_cache() : nullptr;
  try {
    if (cache && cache->blocks[c.index].size() < kKeptByThread) {
      cache->blocks[c.index].push_back(data);
    } else {
      Shared& pool = shared();
      std::lock_guard lock(pool.mutex);
      pool.blocks[c.index].push_back(data);
    }
  } catch (...) {  // no memory for the list itself
    std::free(data);
  }
}

MemoryStats memory_stats() {
  return {g_counters.in_use.load(), g_counters.peak.load(), g_counters.reserved.load()};
}

void reset_peak() { g_counters.peak.store(g_counters.in_use.load()); }

}  // namespace tandem::cpu
