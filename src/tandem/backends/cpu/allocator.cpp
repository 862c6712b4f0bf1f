#include "tandem/backends/cpu/allocator.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tandem/core/block_cache.h"
#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem::cpu {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kKeptByThread = 64;           // blocks a thread keeps of one small class
constexpr size_t kMapped = size_t{256} << 10;  // from here on a block is a mapping of its own

struct Rules {
  static constexpr size_t kUnit = kAlignment;
  static constexpr int kSteps = 4;
  static constexpr size_t kSlack = size_t{64} << 20;
  static size_t limit() { return memory_limit() / 4 * 3; }
};
using Cache = BlockCache<Rules>;

/// Blocks shared by all threads. Never destroyed: tensors in static storage may outlive everything.
Cache& first_cache() {
  static Cache& shared = *new Cache;
  return shared;
}
[[maybe_unused]] const auto& g_made_at_start = first_cache();  // in no fork's way

/// The cache of a device, made when it is first used.
Cache& cache_of(int device) {
  if (device == 0) [[likely]]
    return first_cache();
  TD_CHECK(device > 0 && device < kDevices, "device: the CPU has cpu:0 to cpu:", kDevices - 1,
           "; got cpu:", device, ".");
  constinit static std::atomic<Cache*> others[kDevices] = {};
  std::atomic<Cache*>& place = others[device];
  if (Cache* found = place.load(std::memory_order_acquire)) return *found;
  Cache* const fresh = new Cache;
  Cache* expected = nullptr;
  if (place.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *expected;
}

// ---- the system's side

void* take_from_system(size_t bytes) {
  if (bytes < kMapped) return std::aligned_alloc(kAlignment, bytes);
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void give_to_system(Cache& from, const Cache::Block& block) noexcept {
  if (block.bytes < kMapped)
    std::free(block.data);
  else
    munmap(block.data, block.bytes);
  from.count_returned(block.bytes);
}

/// Gives the pages of the heap that free() emptied back. It walks the heap: not for every block.
void trim_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// Outside of the cache's lock: it may take long.
void give_to_system(Cache& from, const std::vector<Cache::Block>& blocks) noexcept {
  constinit static std::atomic<size_t> freed{0};  // since the heap was last trimmed
  size_t small = 0;
  for (const Cache::Block& block : blocks) {
    if (block.bytes < kMapped) small += block.bytes;
    give_to_system(from, block);
  }
  if (small && freed.fetch_add(small, std::memory_order_relaxed) + small >= Rules::kSlack / 4) {
    freed.store(0, std::memory_order_relaxed);
    trim_heap();
  }
}

// ---- small blocks of the first device, which each thread keeps for itself

struct ThreadCache {
  std::vector<void*> blocks[Cache::kSmallClasses];
  ~ThreadCache() {
    flush();
    alive() = false;
  }
  void flush() {
    for (int i = 0; i < Cache::kSmallClasses; ++i) {
      for (void* block : blocks[i]) first_cache().put({i, (static_cast<size_t>(i) + 1) * kAlignment}, block);
      blocks[i].clear();
    }
  }
  /// False once this thread's cache is gone: blocks freed later in the thread's exit go to the shared one.
  static bool& alive() {
    constinit thread_local bool flag = true;
    return flag;
  }
};
ThreadCache* thread_cache() {
  if (!ThreadCache::alive()) return nullptr;
  thread_local ThreadCache cache;
  return &cache;
}
ThreadCache* thread_cache(int device, const Cache::SizeClass& c) {
  return device == 0 && c.index < Cache::kSmallClasses ? thread_cache() : nullptr;
}

void* fresh_block(int device, size_t bytes) {
  Cache& cache = cache_of(device);
  void* data = take_from_system(bytes);
  if (!data) {
    empty_cache(0);
    if (device != 0) empty_cache(device);
    data = take_from_system(bytes);
  }
  if (!data) {
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    throw_out_of_memory({DeviceKind::cpu, static_cast<uint8_t>(device)}, bytes, cache.stats(),
                        static_cast<size_t>(pages) * static_cast<size_t>(page), memory_limit());
  }
  cache.count_reserved(bytes);
  return data;
}

// ---- blocks that a stream uses, too

struct Held {
  Mutex mutex{LockOrder::memory};
  std::unordered_map<void*, std::vector<std::shared_ptr<const Event>>> events;
  std::atomic<size_t> count{0};  // of blocks; looked at by every release()
};
Held& held() {
  static Held& one = *new Held;
  return one;
}
[[maybe_unused]] const auto& g_held_at_start = held();

void wait_for_streams(void* data) {
  std::vector<std::shared_ptr<const Event>> events;
  {
    const std::lock_guard lock(held().mutex);
    const auto at = held().events.find(data);
    if (at == held().events.end()) return;
    events = std::move(at->second);
    held().events.erase(at);
    held().count.fetch_sub(1);
  }
  for (const auto& event : events) event->wait();
}

}  // namespace

void hold_until(void* data, std::shared_ptr<const Event> event) {
  const std::lock_guard lock(held().mutex);
  auto& events = held().events[data];
  if (events.empty()) held().count.fetch_add(1);
  events.push_back(std::move(event));
}

void* allocate(int device, size_t bytes) {
  if (bytes >= size_t{1} << 62)
    throw OutOfMemory(str("memory: an allocation must be under 2^62 bytes; got ", bytes, "."));
  const Cache::SizeClass c = Cache::size_class(bytes);
  Cache& cache = cache_of(device);
  void* data = nullptr;
  ThreadCache* mine = thread_cache(device, c);
  if (mine && !mine->blocks[c.index].empty()) {
    data = mine->blocks[c.index].back();
    mine->blocks[c.index].pop_back();
  } else {
    std::vector<Cache::Block> surplus;
    data = cache.take(c, &surplus);
    if (!surplus.empty()) give_to_system(cache, surplus);
  }
  if (!data) data = fresh_block(device, c.bytes);
  cache.count_used(c.bytes);
  return data;
}

void release(int device, void* data, size_t bytes) noexcept {
  if (!data) return;
  if (held().count.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wait_for_streams(data);
  const Cache::SizeClass c = Cache::size_class(bytes);
  Cache& cache = cache_of(device);
  cache.count_freed(c.bytes);
  ThreadCache* mine = thread_cache(device, c);
  try {
    if (mine && mine->blocks[c.index].size() < kKeptByThread)
      mine->blocks[c.index].push_back(data);
    else
      cache.put(c, data);
  } catch (const std::bad_alloc&) {
    give_to_system(cache, Cache::Block{data, c.bytes});
  }
}

MemoryStats memory_stats(int device) { return cache_of(device).stats(); }

void reset_peak(int device) { cache_of(device).reset_peak(); }

void empty_cache(int device) {
  if (device == 0)
    if (ThreadCache* mine = thread_cache()) mine->flush();
  Cache& cache = cache_of(device);
  give_to_system(cache, cache.take_all());
  trim_heap();
}

}  // namespace tandem::cpu
