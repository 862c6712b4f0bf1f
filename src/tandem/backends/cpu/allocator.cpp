#include "tandem/backends/cpu/allocator.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem::cpu {

namespace {

constexpr size_t kAlignment = 64;
constexpr int kSmallClasses = 64;                 // multiples of 64 bytes up to 4 KiB, kept by each thread
constexpr int kClasses = kSmallClasses + 4 * 52;  // then four steps to a power of two
constexpr size_t kKeptByThread = 64;              // blocks a thread keeps of one small class
constexpr size_t kMapped = size_t{256} << 10;     // from here on a block is a mapping of its own
constexpr size_t kSlack = size_t{64} << 20;       // kept beyond what is in use, whatever that is
constexpr int kLookEvery = 64;                    // blocks that leave the pool between looks at the clock

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
constinit Counters g_counters;

// ---- the system's side

struct Block {
  void* data;
  size_t bytes;
};

void* take_from_system(size_t bytes) {
  if (bytes < kMapped) return std::aligned_alloc(kAlignment, bytes);
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void give_to_system(const Block& block) noexcept {
  if (block.bytes < kMapped)
    std::free(block.data);
  else
    munmap(block.data, block.bytes);
  g_counters.reserved.fetch_sub(block.bytes, std::memory_order_relaxed);
}

/// Gives the pages of the heap that free() emptied back. It walks the heap: not for every block.
void trim_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// Outside of the pool's lock: it may take long.
void give_to_system(const std::vector<Block>& blocks) noexcept {
  constinit static std::atomic<size_t> freed{0};  // since the heap was last trimmed
  size_t small = 0;
  for (const Block& block : blocks) {
    if (block.bytes < kMapped) small += block.bytes;
    give_to_system(block);
  }
  if (small && freed.fetch_add(small, std::memory_order_relaxed) + small >= kSlack / 4) {
    freed.store(0, std::memory_order_relaxed);
    trim_heap();
  }
}

// ---- the pool

using Clock = std::chrono::steady_clock;

/// Blocks shared by all threads. Never destroyed: tensors in static storage may outlive everything.
class Pool {
 public:
  /// A block of the class, or null; then `surplus` gets what must go back to the system before a new one is taken.
  void* take(const SizeClass& c, std::vector<Block>& surplus) {
    const std::lock_guard lock(mutex_);
    Free& from = free_[c.index];
    from.bytes = c.bytes;
    from.used = ++clock_;
    const size_t in_use = g_counters.in_use.load(std::memory_order_relaxed) + c.bytes;
    peak_ = std::max(peak_, in_use);
    if (clock_ % kLookEvery == 0) look_back(surplus);
    if (from.blocks.empty()) {
      shrink(allowed(in_use), c.bytes, surplus);
      return nullptr;
    }
    void* const data = from.blocks.back();
    from.blocks.pop_back();
    return data;
  }

  /// Throws std::bad_alloc where there is no memory for the list itself.
  void put(const SizeClass& c, void* data) {
    const std::lock_guard lock(mutex_);
    free_[c.index].bytes = c.bytes;
    free_[c.index].blocks.push_back(data);
  }

  std::vector<Block> take_all() {
    const std::lock_guard lock(mutex_);
    std::vector<Block> all;
    shrink(0, 0, all);
    return all;
  }

 private:
  struct Free {  // of one size class
    std::vector<void*> blocks;
    size_t bytes = 0;   // of a block
    uint64_t used = 0;  // clock_ when one was last asked for
  };

  /// How much may be reserved while `in_use` bytes are in use. In a loop that repeats itself the cache holds what the
  /// live tensors leave free, and what sizes that are not needed at the same time take beside each other; so: half as
  /// much again as the most that was in use lately. Less where that comes near the limit of the process.
  size_t allowed(size_t in_use) {
    const size_t high = std::max({in_use, peak_, peak_before_});
    const size_t wanted = high + std::max(high / 2, kSlack);
    if (wanted <= 2 * kSlack) return wanted;
    if (limit_ == 0) limit_ = memory_limit();
    return std::min(wanted, std::max(in_use, limit_ / 4 * 3));
  }

  /// "Lately" is the present window of time and the one before. A window lasts 4 s for each GB of cache, 16 times as long
  /// as the system takes to make such memory: what was given back too soon costs at most a few per cent.
  void look_back(std::vector<Block>& surplus) {
    const auto now = Clock::now();
    const double reserved = static_cast<double>(g_counters.reserved.load(std::memory_order_relaxed));
    if (std::chrono::duration<double>(now - began_).count() < 0.5 + 4e-9 * reserved) return;
    began_ = now;
    peak_before_ = peak_;
    peak_ = g_counters.in_use.load(std::memory_order_relaxed);
    shrink(allowed(peak_), 0, surplus);
  }

  /// Takes free blocks out, those first of whose class none was asked for the longest, until `more` bytes may be
  /// reserved.
  void shrink(size_t allowed, size_t more, std::vector<Block>& out) {
    size_t reserved = g_counters.reserved.load(std::memory_order_relaxed) + more;
    while (reserved > allowed) {
      Free* oldest = nullptr;
      for (Free& f : free_)
        if (!f.blocks.empty() && (!oldest || f.used < oldest->used)) oldest = &f;
      if (!oldest) return;
      const size_t excess = (reserved - allowed + oldest->bytes - 1) / oldest->bytes;
      for (size_t n = std::min(excess, oldest->blocks.size()); n > 0; --n) {
        out.push_back({oldest->blocks.back(), oldest->bytes});
        oldest->blocks.pop_back();
        reserved -= oldest->bytes;
      }
    }
  }

  Mutex mutex_{LockOrder::memory};
  Free free_[kClasses];
  uint64_t clock_ = 0;
  size_t peak_ = 0, peak_before_ = 0;  // of the bytes in use, in this window and the one before
  Clock::time_point began_ = Clock::now();
  size_t limit_ = 0;
};
Pool& pool() {
  static Pool& shared = *new Pool;
  return shared;
}
[[maybe_unused]] const auto& g_made_at_start = pool();  // in no fork's way

struct ThreadCache {
  std::vector<void*> blocks[kSmallClasses];
  ~ThreadCache() {
    flush();
    alive() = false;
  }
  void flush() {
    for (int i = 0; i < kSmallClasses; ++i) {
      for (void* block : blocks[i]) pool().put({i, (static_cast<size_t>(i) + 1) * kAlignment}, block);
      blocks[i].clear();
    }
  }
  /// False once this thread's cache is gone: blocks freed later in the thread's exit go to the shared pool.
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

void* fresh_block(size_t bytes) {
  void* data = take_from_system(bytes);
  if (!data) {
    empty_cache();
    data = take_from_system(bytes);
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
    std::vector<Block> surplus;
    data = pool().take(c, surplus);
    if (!surplus.empty()) give_to_system(surplus);
  }
  if (!data) data = fresh_block(c.bytes);
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
    if (cache && cache->blocks[c.index].size() < kKeptByThread)
      cache->blocks[c.index].push_back(data);
    else
      pool().put(c, data);
  } catch (const std::bad_alloc&) {
    give_to_system(Block{data, c.bytes});
  }
}

MemoryStats memory_stats() {
  return {g_counters.in_use.load(), g_counters.peak.load(), g_counters.reserved.load()};
}

void reset_peak() { g_counters.peak.store(g_counters.in_use.load()); }

void empty_cache() {
  if (ThreadCache* cache = thread_cache()) cache->flush();
  give_to_system(pool().take_all());
  trim_heap();
}

}  // namespace tandem::cpu
