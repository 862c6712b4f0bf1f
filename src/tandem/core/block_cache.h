// What an allocator keeps of the memory that was freed, by size class: a training step asks for the same sizes again and
// again, and fresh memory from the system costs more than the arithmetic on it. What is kept is bounded: see allowed().
// Both backends' allocators stand on this; they bring their own way to get memory and to give it back.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tandem/core/backend.h"
#include "tandem/core/mutex.h"

namespace tandem {

/// Rules gives the classes: multiples of kUnit bytes up to 4 KiB, then kSteps to a power of two; kSlack, the bytes that are
/// kept beyond what is in use, whatever that is; and limit(), the bytes that may be reserved at all.
template <class Rules>
class BlockCache {
 public:
  static constexpr int kSmallClasses = static_cast<int>(4096 / Rules::kUnit);
  static constexpr int kClasses = kSmallClasses + Rules::kSteps * 52;

  struct SizeClass {
    int index;
    size_t bytes;
  };
  struct Block {
    void* data;
    size_t bytes;
  };

  static SizeClass size_class(size_t bytes) {
    if (bytes == 0) bytes = 1;
    if (bytes <= 4096) {
      const size_t units = (bytes + Rules::kUnit - 1) / Rules::kUnit;
      return {static_cast<int>(units) - 1, units * Rules::kUnit};
    }
    const int power =
        std::bit_width(bytes - 1) - 1;  // 2^power < bytes <= 2^(power+1), or bytes == 2^power + …
    const size_t step = (size_t{1} << power) / Rules::kSteps;
    const size_t steps = (bytes - (size_t{1} << power) + step - 1) / step;  // 1 … kSteps
    return {kSmallClasses + Rules::kSteps * (power - 12) + static_cast<int>(steps) - 1,
            (size_t{1} << power) + steps * step};
  }

  /// A free block of the class, or null. `surplus` gets what must go back to the system; nothing where it is null.
  void* take(const SizeClass& c, std::vector<Block>* surplus) {
    const std::lock_guard lock(mutex_);
    Free& from = free_[c.index];
    from.bytes = c.bytes;
    from.used = ++clock_;
    const size_t in_use = in_use_.load(std::memory_order_relaxed) + c.bytes;
    peak_lately_ = std::max(peak_lately_, in_use);
    if (surplus && clock_ % kLookEvery == 0) look_back(*surplus);
    if (from.blocks.empty()) {
      if (surplus) shrink(allowed(in_use), c.bytes, *surplus);
      return nullptr;
    }
    void* const data = from.blocks.back();
    from.blocks.pop_back();
    return data;
  }

  /// Keeps a block. Throws std::bad_alloc where there is no memory for the list itself.
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

  // Who takes memory from the system, or hands a block out, counts it here.
  void count_reserved(size_t bytes) { reserved_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_returned(size_t bytes) { reserved_.fetch_sub(bytes, std::memory_order_relaxed); }
  void count_used(size_t bytes) {
    const size_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    size_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void count_freed(size_t bytes) { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }

  MemoryStats stats() {
    MemoryStats s{in_use_.load(), peak_.load(), reserved_.load()};
    const std::lock_guard lock(mutex_);
    for (const Free& f : free_)
      if (!f.blocks.empty()) s.largest_free = std::max(s.largest_free, f.bytes);
    return s;
  }
  void reset_peak() { peak_.store(in_use_.load()); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLookEvery = 64;  // blocks that leave the cache between looks at the clock

  struct Free {  // of one size class
    std::vector<void*> blocks;
    size_t bytes = 0;   // of a block
    uint64_t used = 0;  // clock_ when one was last asked for
  };

  /// How much may be reserved while `in_use` bytes are in use. In a loop that repeats itself the cache holds what the
  /// live tensors leave free, and what sizes that are not needed at the same time take beside each other; so: half as
  /// much again as the most that was in use lately. Less where that comes near the limit.
  size_t allowed(size_t in_use) {
    const size_t high = std::max({in_use, peak_lately_, peak_before_});
    const size_t wanted = high + std::max(high / 2, Rules::kSlack);
    if (wanted <= 2 * Rules::kSlack) return wanted;
    if (limit_ == 0) limit_ = Rules::limit();
    return std::min(wanted, std::max(in_use, limit_));
  }

  /// "Lately" is the present window of time and the one before. A window lasts 4 s for each GB of cache, 16 times as long
  /// as a system takes to make such memory: what was given back too soon costs at most a few per cent.
  void look_back(std::vector<Block>& surplus) {
    const auto now = Clock::now();
    const double reserved = static_cast<double>(reserved_.load(std::memory_order_relaxed));
    if (std::chrono::duration<double>(now - began_).count() < 0.5 + 4e-9 * reserved) return;
    began_ = now;
    peak_before_ = peak_lately_;
    peak_lately_ = in_use_.load(std::memory_order_relaxed);
    shrink(allowed(peak_lately_), 0, surplus);
  }

  /// Takes free blocks out, those first of whose class none was asked for the longest, until `more` bytes may be
  /// reserved.
  void shrink(size_t allowed, size_t more, std::vector<Block>& out) {
    size_t reserved = reserved_.load(std::memory_order_relaxed) + more;
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

  std::atomic<size_t> in_use_{0}, peak_{0}, reserved_{0};
  Mutex mutex_{LockOrder::memory};
  Free free_[kClasses];
  uint64_t clock_ = 0;
  size_t peak_lately_ = 0, peak_before_ = 0;  // of the bytes in use, in this window and the one before
  Clock::time_point began_ = Clock::now();
  size_t limit_ = 0;
};

}  // namespace tandem
